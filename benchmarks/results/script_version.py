"""Which version of which script made a record, and whether the script has changed since.

The version is a digest of the script's code without comments, docstrings and formatting.  What the
script imports is not in it: a new builder in `models.py` would make every record stale.
"""

import ast
import functools
import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
STATES = {
    "current": "made by the script as it is",
    "stale": "made by an earlier version of the script",
    "unknown": "made before the versions of scripts were recorded",
}


def made_by(script: Path) -> dict[str, str]:
    """What a record tells of the script that makes it.

    Args:
        script: its file, or the folder of a package that is run as one.
    """
    return {"name": script.resolve().relative_to(ROOT).as_posix(), "version": version(script)}


def state(record: Mapping[str, Any]) -> str:
    """A key of `STATES`; a record of a script that is gone is stale."""
    script = record.get("script")
    if script is None:
        return "unknown"
    path = ROOT / script["name"]
    return "current" if path.exists() and version(path) == script["version"] else "stale"


def mark(records: Iterable[Mapping[str, Any]]) -> str:
    """What is said in a row of a table that is made of these records, if one is stale."""
    return " (earlier script)" if any(state(record) == "stale" for record in records) else ""


def note(records: Iterable[Mapping[str, Any]]) -> str:
    """What is said once below a table that is made of these records, if one is unknown."""
    unknown = [state(record) == "unknown" for record in records]
    if not any(unknown):
        return ""
    return f"\n{'All' if all(unknown) else 'Some'} of these were {STATES['unknown']}.\n"


def version(script: Path) -> str:
    """The digest of a script, or of all files of a package."""
    files = sorted(script.glob("*.py")) if script.is_dir() else [script]
    return digest(*(file.read_text(encoding="utf-8") for file in files))


@functools.cache
def digest(*sources: str) -> str:
    """The same for sources that differ in comments, docstrings and formatting alone."""
    trees = [_structure(ast.parse(source)) for source in sources]
    return hashlib.sha256(repr(trees).encode()).hexdigest()[:16]


def _structure(node: Any) -> Any:
    """A tree as nested lists, without empty fields: their number depends on Python's version."""
    if isinstance(node, ast.AST):
        fields = [(name, _structure(value)) for name, value in ast.iter_fields(node)]
        return [type(node).__name__, *(field for field in fields if field[1] not in ("None", []))]
    if isinstance(node, list):
        return [_structure(each) for each in node if not _is_docstring(each)]
    return repr(node)


def _is_docstring(node: Any) -> bool:
    """Whether a statement is a string that nothing uses."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )

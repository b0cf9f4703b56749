"""Turns the examples into notebooks and into pages of the site.

    python examples/notebook.py first_private_model        writes first_private_model.ipynb

An example is a Python file: its docstring is the introduction, `# %%` begins a cell of code, and
`# %% [markdown]` one of text in comments.
"""

import ast
import json
import re
import sys
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent
_MARK = re.compile(r"^# %%( \[markdown\])?.*\n", re.MULTILINE)


class Cell(NamedTuple):
    kind: str
    text: str


def cells(path: Path) -> list[Cell]:
    """The cells of an example; the first is its docstring."""
    source = path.read_text(encoding="utf-8")
    docstring = ast.get_docstring(ast.parse(source)) or ""
    title, _, rest = docstring.partition("\n")
    found = [Cell("markdown", f"# {title.rstrip('.')}\n{rest}".strip())]
    parts = _MARK.split(source)[1:]
    for mark, text in zip(parts[::2], parts[1::2], strict=True):
        if mark:
            text = "\n".join(line.removeprefix("#").removeprefix(" ") for line in text.splitlines())
        if text.strip():
            found.append(Cell("markdown" if mark else "code", text.strip()))
    return found


def to_markdown(path: Path) -> str:
    """A page: text, code, and the output of a recorded run where there is one."""
    parts = [f"```python\n{c.text}\n```" if c.kind == "code" else c.text for c in cells(path)]
    output = path.parent / "outputs" / f"{path.stem}.txt"
    if output.exists():
        parts += ["## A recorded run", f"```text\n{output.read_text(encoding='utf-8')}```"]
    return "\n\n".join(parts) + "\n"


def to_notebook(path: Path) -> dict:
    """A notebook of Jupyter's format 4.5, without outputs."""
    made = []
    for number, cell in enumerate(cells(path)):
        common = {"id": f"cell-{number}", "metadata": {}, "source": cell.text}
        code = {"execution_count": None, "outputs": []} if cell.kind == "code" else {}
        made.append({"cell_type": cell.kind, **common, **code})
    return {"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}


if __name__ == "__main__":
    for name in sys.argv[1:]:
        notebook = FOLDER / f"{Path(name).stem}.ipynb"
        notebook.write_text(json.dumps(to_notebook(notebook.with_suffix(".py")), indent=1) + "\n")
        print(notebook)

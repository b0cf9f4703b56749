"""The shape of the package: imports follow the pipeline, files stay short, the backend is checked.

`docs/design.md` has the same table in words.
"""

import ast
import functools
import os
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "tf_lowrank_dp"
FILES = sorted(PACKAGE.rglob("*.py"))
MAX_LINES = 300
MIN_LINES = 30

# What each part may import, besides itself. Read from left to right it is the pipeline.
BASE = {"_types", "errors", "_validate", "_keras", "_tensorflow", "_tf_data"}
ALGEBRA = {"per_example", "tracing"}
ALLOWED = {
    "_types": set(),
    "errors": set(),
    "_validate": set(),
    "_figure": set(),
    "launch": set(),
    "_keras": {"_types"},
    "_tensorflow": set(),
    "_tf_data": {"_tensorflow"},
    "accounting": {"errors", "_validate"},
    "sampling": BASE | {"accounting", "tracing"},
    "tracing": BASE,
    "per_example": BASE | {"tracing"},
    "layers": BASE | ALGEBRA,
    "gradient_methods": BASE | ALGEBRA | {"layers"},
    "release": BASE | ALGEBRA,
    "workers": BASE,
    "mechanism": BASE | ALGEBRA | {"sampling", "gradient_methods", "release", "workers"},
    "spending": BASE | {"accounting"},
    "algorithms": BASE | ALGEBRA | {"release"},
    "optimizers": BASE
    | ALGEBRA
    | {"accounting", "spending", "gradient_methods", "release", "algorithms"},
    "training": BASE
    | ALGEBRA
    | {"accounting", "sampling", "gradient_methods", "layers", "release", "mechanism"}
    | {"algorithms", "spending", "optimizers", "workers"},
    "extend": BASE | ALGEBRA | {"layers", "release", "algorithms", "optimizers"},
    # Attacks on any Keras model: they know nothing of how it was trained, and nothing imports them.
    "auditing": BASE | ALGEBRA | {"_figure"},
    "diagnostics": BASE
    | ALGEBRA
    | {
        "_figure",
        "accounting",
        "gradient_methods",
        "layers",
        "release",
        "mechanism",
        "algorithms",
        "optimizers",
        "training",
    },
    "__main__": {"accounting", "training"},
}


def module_of(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path): path for path in FILES}


@functools.cache
def imported_by(path):
    """Full names of all modules that a file imports, inside functions as well."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                names.add(submodule if submodule in MODULES else node.module)
    return frozenset(names)


def part_of(module):
    """The key of `ALLOWED` that a module of the package belongs to."""
    return module.removeprefix("tf_lowrank_dp.").split(".")[0]


def own(names):
    return {name for name in names if name in MODULES and name != "tf_lowrank_dp"}


def name_of(path):
    return str(path.relative_to(PACKAGE))


RULED = [path for path in FILES if part_of(module_of(path)) in ALLOWED]


@pytest.mark.parametrize("path", RULED, ids=name_of)
def test_imports_follow_the_pipeline(path):
    part = part_of(module_of(path))
    imported = {part_of(name) for name in own(imported_by(path))} - {part}
    assert imported <= ALLOWED[part], f"{part} may not import {sorted(imported - ALLOWED[part])}"


def test_the_root_modules_import_nothing_of_the_package():
    for name in ("errors", "_validate", "_figure", "_tensorflow"):
        assert not own(imported_by(PACKAGE / f"{name}.py"))


def test_the_allowed_directions_have_no_cycle():
    assert len(list(TopologicalSorter(ALLOWED).static_order())) == len(ALLOWED)


def test_files_import_each_other_in_no_circle():
    """Folders follow the pipeline, so this leaves no arrow that points back."""
    graph = {name: own(imported_by(path)) for name, path in MODULES.items()}
    assert len(list(TopologicalSorter(graph).static_order())) == len(graph)


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_file_that_only_one_other_uses_is_not_tiny(path):
    name = module_of(path)
    users = [other for other in FILES if name in imported_by(other)]
    if len(users) == 1 and path.name not in ("__init__.py",):
        lines = len(path.read_text(encoding="utf-8").splitlines())
        assert lines >= MIN_LINES, f"{path} has {lines} lines, all for {users[0]}"


def test_every_folder_has_a_rule():
    assert {part_of(module) for module in MODULES if module != "tf_lowrank_dp"} == set(ALLOWED)


def test_release_spaces_see_neither_the_mechanism_nor_the_data():
    for path in (PACKAGE / "release").glob("*.py"):
        imported = own(imported_by(path))
        assert not any(
            name.startswith(f"tf_lowrank_dp.{part}")
            for name in imported
            for part in ("mechanism", "sampling", "training", "layers")
        )


def test_accounting_imports_neither_tensorflow_nor_keras():
    for path in (PACKAGE / "accounting").glob("*.py"):
        tops = {name.split(".")[0] for name in imported_by(path)}
        assert not tops & {"tensorflow", "keras", "jax", "torch"}, path


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_files_stay_short(path):
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= MAX_LINES, f"{path} has {lines} lines: it usually holds two concepts"


STUB = """
import sys, types
keras = types.ModuleType("keras")
keras.backend = types.SimpleNamespace(backend=lambda: "jax")
sys.modules["keras"] = keras
import tf_lowrank_dp
"""


def test_another_backend_is_a_clear_error():
    """A stub stands in for keras on JAX, which need not be installed."""
    result = subprocess.run(
        [sys.executable, "-c", STUB],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "KERAS_BACKEND": "jax", "PYTHONPATH": str(ROOT)},
        timeout=300,
    )
    assert result.returncode != 0
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: Expected Keras with the TensorFlow backend.")
    assert "'jax'" in last and "KERAS_BACKEND=tensorflow" in last

"""Private names of Keras, KerasHub and TensorFlow stand in the port and nowhere else."""

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "tf_lowrank_dp"
PORT = (PACKAGE / "_keras", PACKAGE / "_tensorflow.py", PACKAGE / "_tf_data.py")
FILES = [p for p in sorted(PACKAGE.rglob("*.py")) if not any(p.is_relative_to(q) for q in PORT)]

MODULES = re.compile(r"keras\.src|tensorflow\.python|keras_hub\.src")
PRIVATE = re.compile(r"_[A-Za-z]\w*")
# Names of variables and globals of Keras, and a text of its errors.
TEXTS = re.compile(r"seed_generator_state|uninitialized_variables|stateless scope")
# Public in spite of the underscore: what named tuples have.
DOCUMENTED = {"_replace", "_fields", "_asdict"}
# Our own: on a Keras model; of the sampler whose rows parts share.
OURS = {"_privacy_state", "_draw_from"}


def tree_of(path):
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def defined_in(path):
    """Names that this file defines in its classes or sets on its objects, or as its own."""
    names = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Attribute | ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.attr if isinstance(node, ast.Attribute) else node.id)
    return names


def imported_files(path):
    """The files of the package that a file imports, and those that these import."""
    found, waiting = set(), [path]
    while waiting:
        for node in ast.walk(tree_of(waiting.pop())):
            if isinstance(node, ast.ImportFrom):
                names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
                files = {ROOT / (name.replace(".", "/") + ".py") for name in names}
                new = {file for file in files if file.is_relative_to(PACKAGE) and file.exists()}
                waiting += new - found
                found |= new
    return found


def is_self(node):
    is_super = isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    return (isinstance(node, ast.Name) and node.id in ("self", "cls")) or (
        is_super and node.func.id == "super"
    )


def private_names(path):
    """Names of others that a file uses: modules, and attributes that it does not define.

    Those of `self` may come from a base class, in a file that is imported.
    """
    own = defined_in(path)
    inherited = set().union(own, *map(defined_in, imported_files(path)))
    found = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import | ast.ImportFrom) and MODULES.search(ast.unparse(node)):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Attribute):
            if node.attr == "src" or MODULES.search(ast.unparse(node)):
                found.add(ast.unparse(node))
            if PRIVATE.fullmatch(node.attr):
                known = inherited if is_self(node.value) else own
                found |= {node.attr} - known
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
            is_attribute = PRIVATE.fullmatch(text) and text not in own
            if is_attribute or MODULES.search(text) or TEXTS.search(text):
                found.add(text)
    return found - DOCUMENTED - OURS


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_private_names_of_others_are_used_in_the_port_only(path):
    assert private_names(path) == set()


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("model._flatten_layers()", {"_flatten_layers"}),
        ("class A(Layer):\n  def f(self):\n    return self._kernel", {"_kernel"}),
        ("class A(Layer):\n  def f(self):\n    return super()._kernel", {"_kernel"}),
        ("import keras\nkeras.src.backend.x", {"keras.src", "keras.src.backend"}),
        ("from keras.src.backend import x", {"x"}),
        ("import tensorflow.python.framework.ops", {"tensorflow.python.framework.ops"}),
        ("for name in ('_mask',):\n  getattr(tensor, name)", {"_mask"}),
        ("register('keras_hub.src.Layer')", {"keras_hub.src.Layer"}),
        ("class A:\n  def __init__(self):\n    self._x = 1\n  def f(a):\n    return a._x", set()),
        ("x.__name__, point._replace(y=1)", set()),
    ],
)
def test_the_search_finds_private_names_in_every_form(tmp_path, code, names):
    path = tmp_path / "file.py"
    path.write_text(code)
    assert names <= private_names(path) <= names | {"keras.src.backend.x"}


def test_every_function_of_the_port_has_a_contract():
    tests = "\n".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    for path in [*PORT[0].glob("*.py"), *PORT[1:]]:
        names = [node.name for node in tree_of(path).body if isinstance(node, ast.FunctionDef)]
        for name in names if path.name != "missing.py" else ():
            used = len(re.findall(rf"\b{name}\(", tests))
            assert used or name.startswith("_"), f"{path.name}: {name}"


WITHOUT = """
import keras
from keras.src import backend
from keras.src.backend.common import variables
from keras.src.models import functional
for holder, name in (
    (keras.layers.Layer, "_flatten_layers"),
    (keras.layers.Layer, "_get_own_losses"),
    (backend, "set_keras_mask"),
    (variables, "AutocastScope"),
    (functional, "Functional"),
):
    delattr(holder, name)
import tf_lowrank_dp
"""


def test_the_package_can_be_imported_where_private_names_are_missing():
    command = [sys.executable, "-c", WITHOUT]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr

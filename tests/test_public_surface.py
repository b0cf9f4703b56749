"""Public means in an `__all__`: what is there, what is described, and what extensions may use."""

import ast
import doctest
import inspect
import subprocess
import sys
from pathlib import Path

import keras
import pytest

import tf_lowrank_dp as tfdp

ROOT = Path(__file__).resolve().parents[1]
MODULES = [getattr(tfdp, name) for name in tfdp.__all__ if inspect.ismodule(getattr(tfdp, name))]
EXTENSIONS = sorted((ROOT / "tests" / "extension").glob("*.py"))
SURFACE = {
    (f"{module.__name__}.{name}"): getattr(module, name)
    for module in (tfdp, *MODULES)
    for name in module.__all__
}
KIT = {name: getattr(tfdp.extend, name) for name in tfdp.extend.__all__}


def test_the_public_modules_come_with_the_import():
    assert {module.__name__.rpartition(".")[2] for module in MODULES} == {
        "algorithms",
        "auditing",
        "diagnostics",
        "extend",
        "layers",
    }


def test_matplotlib_and_keras_hub_are_not_imported():
    """Where Keras or TensorFlow import them, nothing can be said."""
    new = "before = {*sys.modules}; import tf_lowrank_dp; new = {*sys.modules} - before"
    code = f"import sys, keras, dp_accounting.pld; {new}; print(*new)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True
    ).stdout.split()
    assert "tf_lowrank_dp.auditing" in loaded
    assert not {name.partition(".")[0] for name in loaded} & {"matplotlib", "keras_hub", "sklearn"}


@pytest.mark.parametrize("name", SURFACE)
def test_public_names_are_described(name):
    assert inspect.getdoc(SURFACE[name])


def test_lists_name_what_exists_once():
    for module in (tfdp, *MODULES):
        assert len({*module.__all__}) == len(module.__all__)
        assert all(hasattr(module, name) for name in module.__all__)


@pytest.mark.parametrize("name", KIT)
def test_each_name_of_the_kit_has_an_example(name):
    """CI runs them with all other docstrings."""
    assert doctest.DocTestParser().get_examples(KIT[name].__doc__)


def test_captures_of_stock_layers_are_not_public():
    assert not hasattr(tfdp.layers, "Dense")
    assert "start_run" not in dir(tfdp)


def test_files_of_models_that_were_built_with_captures_load():
    config = {"name": "old", "units": 3}
    record = {"module": "tf_lowrank_dp.layers.dense", "class_name": "Dense", "config": config}
    layer = keras.saving.deserialize_keras_object(
        {**record, "registered_name": "tf_lowrank_dp>Dense"}
    )
    assert isinstance(layer, keras.layers.Dense) and layer.units == 3


def public_names(path):
    """Full names of what a file takes from the package, by its syntax tree."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    aliases, used = {}, set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] == "tf_lowrank_dp":
                    used.add(alias.name)
                    aliases[alias.asname or alias.name] = alias.name
        elif isinstance(node, ast.ImportFrom) and node.module.startswith("tf_lowrank_dp"):
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                used.add(name)
                aliases[alias.asname or alias.name] = name
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            name = ast.unparse(node)
            first, _, rest = name.partition(".")
            if first in aliases and rest.replace(".", "").isidentifier():
                used.add(f"{aliases[first]}.{rest}")
    return used


def is_public(name):
    """Whether each part of a dotted name is in the `__all__` of what is before it."""
    owner = tfdp
    for part in name.split(".")[1:]:
        if not inspect.ismodule(owner):
            return True  # an attribute of a public class
        if part not in owner.__all__:
            return False
        owner = getattr(owner, part)
    return True


def test_extensions_use_public_names_only():
    used = {name for path in EXTENSIONS for name in public_names(path)}
    assert {"tf_lowrank_dp.extend.OuterProduct", "tf_lowrank_dp.extend.ReleaseSpace"} <= used
    assert [name for name in sorted(used) if not is_public(name)] == []


@pytest.mark.parametrize(
    "name",
    ["tf_lowrank_dp.layers.dense", "tf_lowrank_dp.training.fit.fit", "tf_lowrank_dp.release"],
)
def test_a_private_name_is_noticed(name):
    assert not is_public(name)

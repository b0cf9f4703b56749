"""The accounting needs neither TensorFlow nor the rest of the package."""

import ast
import pathlib

import tf_lowrank_dp.accounting

ALLOWED = ("tf_lowrank_dp.accounting", "tf_lowrank_dp.errors", "tf_lowrank_dp._validate")


def imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield (
                    node.module if node.module != "tf_lowrank_dp" else f"{node.module}.{alias.name}"
                )


def test_accounting_imports_no_tensorflow_and_nothing_else_of_the_package():
    folder = pathlib.Path(tf_lowrank_dp.accounting.__file__).parent
    files = [*folder.glob("*.py"), folder.parent / "errors.py", folder.parent / "_validate.py"]
    for name in {name for path in files for name in imported(path)}:
        assert name.split(".")[0] not in ("tensorflow", "keras"), name
        assert not name.startswith("tf_lowrank_dp") or name.startswith(ALLOWED), name


def test_everything_exported_exists():
    for name in tf_lowrank_dp.accounting.__all__:
        assert hasattr(tf_lowrank_dp.accounting, name)

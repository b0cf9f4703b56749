"""The folders of `benchmarks/`: their commands are called with the folder or without."""

import importlib.util
import re
from pathlib import Path

import pytest

import benchmarks

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
COMMANDS = sorted(set(re.findall(r"python -m benchmarks\.(\w+)\.(\w+)", README)))


def place_of(name):
    """The file that `python -m NAME` runs."""
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.submodule_search_locations:
        spec = importlib.util.find_spec(f"{name}.__main__")
    return None if spec is None else Path(spec.origin)


def test_the_readme_names_every_folder():
    folders = {path.parent.name for path in (ROOT / "benchmarks").glob("*/__init__.py")}
    assert folders == set(benchmarks.FOLDERS) == {folder for folder, _ in COMMANDS}


@pytest.mark.parametrize("folder, name", COMMANDS)
def test_a_command_is_found_without_its_folder(folder, name):
    place = place_of(f"benchmarks.{folder}.{name}")
    assert place is not None and place.is_relative_to(ROOT / "benchmarks" / folder)
    assert place_of(f"benchmarks.{name}") == place


def test_every_command_is_in_the_readme():
    scripts = (ROOT / "benchmarks").glob("*/*.py")
    named = {path for path in scripts if '__name__ == "__main__"' in path.read_text("utf-8")}
    assert {(path.parent.name, path.stem) for path in named} <= set(COMMANDS)


def test_no_name_is_in_two_folders():
    """It would hide one of the two where the folder is left out."""
    names = [path.stem for path in (ROOT / "benchmarks").glob("*/*.py") if path.stem[0] != "_"]
    assert len(names) == len(set(names))

"""Which tests plain `pytest` runs: those of `tests/fast_set.txt` and of `docs/mutations.md`.

A line of the list is a folder, a file, a test function or a case of one, and stands for all tests
in it.  What notices a mutation belongs to the set without being listed.
"""

import itertools
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIST = ROOT / "tests" / "fast_set.txt"
MUTATIONS = ROOT / "docs" / "mutations.md"


def listed():
    """The lines of the list."""
    lines = LIST.read_text(encoding="utf-8").splitlines()
    return {line for line in lines if line and not line.startswith("#")}


def noticing_mutations():
    """The tests, by their ids, that the page on mutations names."""
    page = MUTATIONS.read_text(encoding="utf-8")
    return {f"tests/{test}" for test in re.findall(r"`([a-z_/]+\.py::[^`]+)`", page)}


def names_of(test):
    """What a line may say of a test: its id, its function, its file and the folders above it."""
    path, _, name = test.partition("::")
    folders = itertools.accumulate(path.split("/"), "{}/{}".format)
    return {*folders, f"{path}::{name.partition('[')[0]}", test}

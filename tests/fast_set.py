"""Which tests plain `pytest` runs: those of `tests/fast_set.txt` and of `docs/mutations.md`.

The others are cut into parts by their names, so that a run of limited time can take one of them.

A line of the list is a folder, a file, a test function or a case of one, and stands for all tests
in it.  What notices a mutation belongs to the set without being listed.
"""

import itertools
import re
import zlib
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


def is_in_part(test, part):
    """Whether a test is in part "K/N", 1 to N; the cases of a function are in one part.

    A file of `tests/workers` is in one part as a whole: its tests share what processes have done.
    """
    path, _, name = test.partition("::")
    together = path if path.startswith("tests/workers/") else f"{path}::{name.partition('[')[0]}"
    number, parts = map(int, part.split("/"))
    return zlib.crc32(together.encode()) % parts == number - 1

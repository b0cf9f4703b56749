"""Breaks copies of the package one by one, and lists the tests that notice.

`python -m tests.mutations.run` runs all of them and writes `docs/mutations.md`;
`python -m tests.mutations.run reused` those whose description holds the word, and writes nothing.
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from tests.mutations.mutations import MUTATIONS, RULES, Mutation

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "mutations.md"
_INTRODUCTION = """\
# Mutations

Each row breaks a rule of [design.md](design.md#the-rules-that-keep-it-private) in a copy of the
package, and names the tests that fail because of it (those that were run: others may fail as well).
Written by `python -m tests.mutations.run`, which takes about ten minutes. The broken optimizers are
among them: no clipping, noise divided by the batch size, noise reused, per-layer clipping with flat
accounting, NaN not handled, fixed batches accounted as Poisson draws, GEP counted as its public
code does.

| rule | broken | in | test that fails |
| --- | --- | --- | --- |
"""


def mutated(text: str, old: str, new: str) -> str:
    """The text with its only occurrence of `old` replaced.

    Raises:
        ValueError: there is none, or more than one.
    """
    if text.count(old) != 1:
        raise ValueError(f"Expected one occurrence. Received: {text.count(old)} of {old!r}.")
    return text.replace(old, new)


def failing_tests(mutation: Mutation, folder: pathlib.Path) -> list[str]:
    """Runs the tests of a mutation in a copy of the repository below `folder`."""
    for name in ("tf_lowrank_dp", "tests", "benchmarks"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    for file, old, new in mutation.edits:
        path = folder / "tf_lowrank_dp" / file
        path.write_text(mutated(path.read_text(), old, new))
    command = [sys.executable, *"-m pytest -n 0 -rf --tb=no -p no:cacheprovider".split()]
    command += [f"tests/{test}" for test in mutation.tests]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"Expected tests that run. Received:\n{done.stdout}{done.stderr}")
    return re.findall(r"^FAILED tests/(.+?)(?: - .*)?$", done.stdout, re.MULTILINE)


def row(mutation: Mutation, failed: list[str]) -> str:
    """The row of the page; of a parametrized test the first case that fails."""
    names = {}
    for test in failed:
        names.setdefault(test.partition("[")[0], test)
    tests = "<br>".join(f"`{test}`" for test in names.values())
    files = "<br>".join(dict.fromkeys(f"`{file}`" for file, _, _ in mutation.edits))
    rule = f"{mutation.rule}. {RULES[mutation.rule]}" if mutation.rule else RULES[0]
    return f"| {rule} | {mutation.what} | {files} | {tests} |"


def main() -> int:
    chosen = [m for m in MUTATIONS if all(word in m.what for word in sys.argv[1:])]
    rows, unnoticed = [], []
    for mutation in chosen:
        with tempfile.TemporaryDirectory() as folder:
            failed = failing_tests(mutation, pathlib.Path(folder))
        rows.append(row(mutation, failed))
        if not failed:
            unnoticed.append(mutation.what)
        print(rows[-1] if failed else f"NOT NOTICED: {mutation.what}", flush=True)
    if len(chosen) == len(MUTATIONS) and not unnoticed:
        PAGE.write_text(_INTRODUCTION + "\n".join(rows) + "\n")
    return len(unnoticed)


if __name__ == "__main__":
    sys.exit(main())

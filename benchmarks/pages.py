"""Writes the figures of README and docs from what is recorded.

python -m benchmarks.pages              rewrites the marked parts of README.md and docs/*.md

A part begins with `<!-- recorded: NAME -->` and ends with `<!-- end -->`.  `tests/docs` compares.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks import accuracy
from benchmarks.recorded import ROOT, interval, model_of, quickstart, step_times

_PART = re.compile(r"(<!-- recorded: ([\w ]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def pages() -> Iterator[Path]:
    """The pages that may have recorded parts."""
    yield ROOT / "README.md"
    yield from sorted((ROOT / "docs").rglob("*.md"))


def table(rows: list[list[str]]) -> str:
    """A Markdown table whose first row is the names of the columns."""
    lines = [rows[0], ["---"] * len(rows[0]), *rows[1:]]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def step_time_table() -> str:
    """All models."""
    columns = ("model, batch", "optimizer", "private / plain, graph", "XLA")
    rows = [[*columns]]
    for row in step_times():
        cells = [row[column] for column in columns]
        if cells[0] == next((line[0] for line in reversed(rows) if line[0]), None):
            cells[0] = ""
        rows.append(cells)
    return table(rows)


def faster() -> str:
    """The models whose private step takes less time than the ordinary one, by optimizer."""
    found: dict[str, list[str]] = {}
    for row in step_times():
        if interval(row["private / plain, graph"]).high < 1:
            found.setdefault(row["optimizer"].split(",")[0], []).append(model_of(row))
    return "".join(f"* {name}: {', '.join(models)}.\n" for name, models in found.items())


def quickstart_table() -> str:
    """Both data sets of the quickstart."""
    rows = [["data", "images", "non-private", "private", "epsilon, delta"]]
    for name, output in {"digits": "quickstart", "MNIST": "quickstart_mnist"}.items():
        run = quickstart(output)
        rows.append(
            [
                name,
                f"{run.training:,}",
                run.plain,
                run.private,
                f"{run.epsilon}, 1e-5",
            ]
        )
    return table(rows)


def accuracy_table() -> str:
    """Methods, networks and tasks of which all seeds are recorded."""
    lines = accuracy.table(accuracy.Runs(ROOT / "benchmarks/records/accuracy.jsonl", None).records)
    return "".join(f"{line}\n" for line in lines if not line.endswith(("| 1 |", "| 2 |")))


PARTS: dict[str, Callable[[], str]] = {
    "step time": step_time_table,
    "faster": faster,
    "quickstart": quickstart_table,
    "accuracy": accuracy_table,
}


def written(text: str) -> str:
    """A page with its recorded parts as they are recorded."""
    return _PART.sub(lambda part: part[1] + PARTS[part[2]]() + part[3], text)


if __name__ == "__main__":
    for path in pages():
        before = path.read_text(encoding="utf-8")
        after = written(before)
        if after != before:
            path.write_text(after, encoding="utf-8")
            print(path.relative_to(ROOT))

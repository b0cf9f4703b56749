"""The figures that are recorded in Markdown tables: what pages and pictures are made of.

A figure that is not in a committed table or in the output of an example has no place in a page.
"""

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = ROOT / "benchmarks" / "README.md"
GEP = ROOT / "docs" / "algorithms" / "gep.md"
OUTPUTS = ROOT / "examples" / "outputs"
RECORDS = Path(__file__).resolve().parent / "records"
MODEL_NAMES = {
    "mlp": "MLP (128, 256), 28x28",
    "cnn": "CNN of Lee and Kifer, 28x28",
    "lstm": "LSTM of 128 units, 28 rows",
    "transformer": "transformer encoder, 4 layers, width 256, 64 tokens",
    "resnet20": "ResNet-20 with GroupNorm, 32x32",
    "bert_small": "encoder of the size of BERT-small",
    "wrn28_4": "WRN-28-4 with GroupNorm, 32x32",
}
OPTIMIZER_NAMES = {"dpsgd": "DP-SGD", "rgp": "RGP, rank 8", "lsg": "LSG, rank 8, sparsity 0.5"}


class Interval(NamedTuple):
    """A figure, or the range of several runs."""

    low: float
    high: float

    @property
    def middle(self) -> float:
        return (self.low + self.high) / 2


def table(path: Path, *columns: str) -> list[dict[str, str]]:
    """Returns the rows of the first table of a file with these columns, by the names of columns.

    An empty first cell means the one above; a name that comes twice stands for its first column.

    Raises:
        LookupError: there is no such table.
    """
    lines = [_cells(line) for line in path.read_text(encoding="utf-8").splitlines()]
    heads = [number for number, cells in enumerate(lines) if {*columns} <= {*(cells or ())}]
    if not heads:
        raise LookupError(f"Expected a table with {columns} in {path}. Received: none.")
    names = lines[heads[0]] or []
    rows: list[dict[str, str]] = []
    for cells in lines[heads[0] + 2 :]:
        if cells is None:
            break
        row = dict(reversed([*zip(names, cells, strict=True)]))
        if not cells[0] and rows:
            row[names[0]] = rows[-1][names[0]]
        rows.append(row)
    return rows


def interval(text: str) -> Interval:
    """The figure or the range that a cell begins with, such as "0.78 to 0.83"."""
    numbers = [float(number) for number in re.findall(r"\d+\.?\d*", text)[:2]]
    if " to " not in text:
        numbers = numbers[:1]
    return Interval(min(numbers), max(numbers))


def lines(name: str) -> list[dict[str, Any]]:
    """The runs of `benchmarks/results/records/NAME.jsonl`, one a line, or of `NAME.json`."""
    document = RECORDS / f"{name}.json"
    if document.exists():
        return json.loads(document.read_text(encoding="utf-8"))["runs"]
    text = (RECORDS / f"{name}.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def step_times() -> list[dict[str, str]]:
    """Cost of a private step over the plain one, by model and optimizer."""
    return table(BENCHMARKS, "model, batch", "optimizer", "private / plain, graph", "XLA")


def model_of(row: dict[str, str]) -> str:
    """The model of a row of `step_times`, without its sizes."""
    return re.split(r", | \(", row["model, batch"])[0]


def sst2() -> list[dict[str, str]]:
    """Accuracy of all methods on SST-2 at one epsilon."""
    return table(BENCHMARKS, "method", "held out, % (mean)")


def mnist() -> list[dict[str, str]]:
    """Accuracy on MNIST over epsilon."""
    return table(GEP, "epsilon", "DP-SGD", "GEP")


def energy_kept() -> list[dict[str, str]]:
    """Which part of the gradient's energy carriers of several kinds keep."""
    return table(BENCHMARKS, "rank", "carriers of the weights", "random ones")


class Quickstart(NamedTuple):
    """What a recorded run of `examples/quickstart.py` printed."""

    training: int
    plain: str
    private: str
    epsilon: str


def quickstart(name: str) -> Quickstart:
    """The recorded run of `examples/outputs/NAME.txt`."""
    text = (OUTPUTS / f"{name}.txt").read_text(encoding="utf-8")
    plain, private = re.findall(r"^(?:non-private|private, epsilon \S+) +(\S+%)", text, re.M)
    training = re.search(r"(\d+) training", text)
    epsilon = re.search(r"^\(([0-9.]+), ", text, re.M)
    assert training is not None and epsilon is not None
    return Quickstart(int(training[1]), plain, private, epsilon[1])


def _cells(line: str) -> list[str] | None:
    """The cells of a line of a table, None for any other line."""
    line = line.strip()
    if not line.startswith("|"):
        return None
    return [cell.strip() for cell in line.strip("|").split("|")]

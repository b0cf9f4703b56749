"""Times private steps of this library and of its peers in turn, on the same models.

python -m benchmarks.speed.peers --environments ~/peers --quick
python -m benchmarks.speed.peers --environments ~/peers --json peers.jsonl
python -m benchmarks.speed.peers --report benchmarks/results/records/peers.jsonl

Each library trains as its documentation says, by its own loop and sampler, on arrays of random
numbers: `fit` here, `PrivacyEngine.make_private` with its Poisson loader in Opacus, `make_private`
and `fit` in jax-privacy (fixed batches, its default), `DPModel.fit` in TensorFlow Privacy (fixed
batches).  All sides of a model are alive at once, and take epochs in turn.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import statistics
from collections.abc import Iterable
from typing import NamedTuple

from benchmarks.results.report import origin
from benchmarks.speed.peers.sides import LIBRARIES, Side, python_of, versions_of

ORIGIN = origin(pathlib.Path(__file__).parent)

COLUMNS = "model, library, mode, step (ms), over plain, over our DP-SGD, peak (MiB)".split(", ")


class Case(NamedTuple):
    """Size of the batches and steps of an epoch, more of them where a step takes milliseconds."""

    batch: int
    steps: int


CASES = {
    "mlp": Case(128, 200),
    "cnn": Case(128, 40),
    "lstm": Case(128, 40),
    "transformer": Case(64, 10),
    "resnet20": Case(64, 10),
    "bert_small": Case(32, 5),
    "wrn28_4": Case(16, 5),
}
QUICK = {"mlp": Case(128, 40), "cnn": Case(128, 5)}
ROUNDS, QUICK_ROUNDS = 5, 3


def measure(model: str, case: Case, rounds: int, folder: pathlib.Path) -> list[dict]:
    """Records of all libraries and modes on one model."""
    sides, records = {}, []
    for name, library in LIBRARIES.items():
        python = python_of(name, folder)
        for mode in library.modes:
            record = {"model": model, "batch": case.batch, "library": name, "mode": mode}
            record |= {"steps": case.steps, "versions": versions_of(python)}
            side = Side(
                python, library.script, model=model, mode=mode, batch=case.batch, steps=case.steps
            )
            try:
                record["first_epoch_s"] = side.epoch()["since_start_s"]
            except RuntimeError as error:
                records.append(record | {"fails": str(error)})
                continue
            sides[name, mode] = side
            records.append(record | {"step_ms": [], "cpu_ms": []})
    timed = [record for record in records if "fails" not in record]
    for index in range(rounds):
        for record in timed[:: 1 if index % 2 else -1]:
            found = sides[record["library"], record["mode"]].epoch()
            record["step_ms"].append(1e3 * found["wall_s"] / case.steps)
            record["cpu_ms"].append(1e3 * found["cpu_s"] / case.steps)
            record["peak_mib"] = found["peak_mib"]
    for side in sides.values():
        side.close()
    return records


def table(records: Iterable[dict]) -> list[list[str]]:
    """Rows: model, library, mode, step, over its own plain step, over our DP-SGD step, memory."""
    records = list(records)
    median = {
        _key(record): statistics.median(record["step_ms"])
        for record in records
        if "fails" not in record
    }
    rows = []
    for record in records:
        model, library, mode = _key(record)
        if "fails" in record:
            rows.append([model, library, mode, "fails", record["fails"][:60], "", ""])
            continue
        step = median[model, library, mode]
        plain = median.get((model, library, "plain"))
        ours = median.get((model, "tf_lowrank_dp", "dpsgd"))
        rows.append(
            [model, library, mode, f"{step:.1f}", _ratio(step, plain), _ratio(step, ours)]
            + [f"{record['peak_mib']:.0f}"]
        )
    return rows


def _key(record: dict) -> tuple[str, str, str]:
    return record["model"], record["library"], record["mode"]


def _ratio(step: float, other: float | None) -> str:
    return "" if other is None else f"{step / other:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--environments", type=pathlib.Path, default="peers", metavar="FOLDER")
    parser.add_argument("--json", type=pathlib.Path, help="where records are appended")
    parser.add_argument("--report", type=pathlib.Path, help="print the table of recorded runs")
    parser.add_argument("--models", nargs="*", choices=[*CASES])
    parser.add_argument("--quick", action="store_true", help="five minutes: two models, few steps")
    given = parser.parse_args()
    if given.report:
        lines = given.report.read_text().splitlines()
        _print(json.loads(line)["records"] for line in lines)
        return
    cases = QUICK if given.quick else CASES
    rounds = QUICK_ROUNDS if given.quick else ROUNDS
    for model in given.models or cases:
        records = measure(model, cases[model], rounds, given.environments.resolve())
        _print([records])
        if given.json:
            line = json.dumps({**ORIGIN, "records": records})
            with given.json.open("a") as file:
                file.write(line + "\n")


def _print(runs: Iterable[list[dict]]) -> None:
    print("|", " | ".join(COLUMNS), "|\n|", " | ".join(["---"] * len(COLUMNS)), "|")
    for records in runs:
        for cells in table(records):
            print("|", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    main()

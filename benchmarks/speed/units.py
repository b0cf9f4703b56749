"""Cost of units of several rows: K copies of `b` examples beside `K b` examples, private both.

python -m benchmarks.speed.units --model cnn --rows 128 --json units.jsonl

Epochs of `model.fit` are taken in turn in one process, all with as many rows in a step: units of
one row, and of `--copies` rows each (`multiplicity`, copies that are the same).
"""

import argparse
import json
import statistics
import time
from typing import Any

import keras

from benchmarks.models import MODELS
from benchmarks.optimizers import OPTIMIZERS
from benchmarks.results.report import origin
from benchmarks.speed.measure import run_isolated

ORIGIN = origin(__file__)


def time_epochs(
    model: str, rows: int, copies: list[int], steps: int, epochs: int
) -> dict[int, list[float]]:
    """Seconds of each later epoch, by the number of copies."""
    import tf_lowrank_dp as tfdp

    fits = {}
    for each in copies:
        units = rows // each
        workload = MODELS[model](num_examples=steps * units)
        tfdp.make_private(workload.model)
        optimizer = OPTIMIZERS["dpsgd"](
            keras.optimizers.Adam(1e-3), l2_norm_clip=1.0, noise_multiplier=1.0
        )
        workload.model.compile(optimizer, workload.loss)
        fits[each] = workload, {"batch_size": units, "multiplicity": each, "verbose": 0}
    found: dict[int, list[float]] = {each: [] for each in copies}
    for epoch in range(epochs + 1):
        for each, (workload, settings) in fits.items():
            start = time.perf_counter()
            workload.model.fit(workload.x, workload.y, **settings)
            if epoch:  # the first one traces
                found[each].append(time.perf_counter() - start)
    return found


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """The JSON record: ratios are of an epoch of copies over one of single rows."""
    copies = [1, *args.copies]
    seconds = run_isolated(time_epochs, args.model, args.rows, copies, args.steps, args.epochs)
    ratios = {
        each: statistics.median(b / a for a, b in zip(seconds[1], seconds[each], strict=True))
        for each in args.copies
    }
    settings = {"model": args.model, "rows": args.rows, "steps": args.steps}
    return {"settings": settings, "ratios": ratios, "seconds": seconds, **ORIGIN}


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", choices=sorted(MODELS), default="cnn")
    parser.add_argument("--rows", type=int, default=128, help="of a step, expected")
    parser.add_argument("--copies", type=int, nargs="+", default=[4, 16])
    parser.add_argument("--steps", type=int, default=20, help="of an epoch")
    parser.add_argument("--epochs", type=int, default=5, help="timed, after the first")
    parser.add_argument("--json", help="file to which the record is added")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    """Prints the ratios and adds the record to a file."""
    args = parse_args(argv)
    record = measure(args)
    print(record["settings"], {each: round(ratio, 3) for each, ratio in record["ratios"].items()})
    if args.json:
        with open(args.json, "a") as file:
            file.write(json.dumps(record) + "\n")


if __name__ == "__main__":
    main()

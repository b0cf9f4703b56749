"""Memory that one more example of a batch costs, by the width of a transformer encoder.

The peak memory of a training step at two batch sizes gives the memory of one example. What an
ordinary step needs for it (activations) is linear in the width; what a private step adds is the
per-example state: `width^2` where gradients are stored, `rank * width` for RGP and LSG.

python -m benchmarks.speed.width --json width.json
"""

import argparse
import json
from pathlib import Path

from benchmarks.results.report import origin
from benchmarks.speed.measure import measure_start
from benchmarks.speed.steps import Spec

ORIGIN = origin(__file__)

# Name in the table, optimizer, gradient method.
METHODS = [
    ("plain", "plain", "auto"),
    ("DP-SGD, stored", "dpsgd", "vectorized"),
    ("DP-SGD", "dpsgd", "auto"),
    ("RGP", "rgp", "auto"),
    ("LSG", "lsg", "auto"),
]


def example_mib(
    width: int, optimizer: str, method: str, batches: tuple[int, int], runs: int
) -> float:
    """MiB by which the peak memory of a step grows with each example.

    Args:
        width: Width of the encoder.
        optimizer: Name in `OPTIMIZERS`.
        method: The gradient method.
        batches: The two batch sizes.
        runs: Processes for each, of which the median is taken.
    """
    model_args = {"layers": 1, "width": width, "tokens": 32, "vocab": 100}
    peaks = [
        measure_start(
            Spec("transformer", batch, optimizer, gradient_method=method, model_args=model_args),
            runs,
        ).process_mib
        for batch in batches
    ]
    return (peaks[1] - peaks[0]) / (batches[1] - batches[0])


def main(argv: list[str] | None = None) -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--widths", type=int, nargs="+", default=[256, 512, 1024, 2048])
    parser.add_argument("--batches", type=int, nargs=2, default=[16, 48])
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--methods", nargs="+", default=[name for name, *_ in METHODS])
    parser.add_argument("--json", type=Path, help="write the records to this file")
    args = parser.parse_args(argv)

    print("MiB for each example".ljust(22) + "".join(f"{width:>9}" for width in args.widths))
    records = []
    for name, optimizer, method in METHODS:
        if name not in args.methods:
            continue
        print(name.ljust(22), end="", flush=True)
        for width in args.widths:
            value = example_mib(width, optimizer, method, tuple(args.batches), args.runs)
            records.append({"method": name, "width": width, "mib_per_example": value})
            print(f"{value:9.2f}", end="", flush=True)
            if args.json:
                document = {**ORIGIN, "records": records}
                args.json.write_text(json.dumps(document, indent=1) + "\n")
        print()


if __name__ == "__main__":
    main()

"""Times other libraries on a GPU, on the models of which programs were exported.

python -m benchmarks.speed.gpu.peers --models bert_base --batch-sizes 64 --precisions bfloat16

Runs where PyTorch with Opacus, or JAX with Keras and jax-privacy, are installed, and no TensorFlow:
what is missing is reported as such.  A line of JSON for each library, mode, model, precision and
batch: milliseconds of a step (median of epochs after the first) and peak memory of the device.
"""

import argparse
import itertools
import json
import pathlib
import statistics
import sys

from benchmarks.results.report import origin
from benchmarks.speed.peers.serve import PRECISIONS
from benchmarks.speed.peers.sides import LIBRARIES, Side

ORIGIN = origin(__file__)

PEERS = ("opacus", "jax-privacy")


def measured(library: str, steps: int, epochs: int, **settings: object) -> dict:
    """The record of one library and mode."""
    record = {"library": library, **settings}
    side = Side(pathlib.Path(sys.executable), LIBRARIES[library].script, steps=steps, **settings)
    try:
        side.epoch()
        found = [side.epoch() for _ in range(epochs)]
    except RuntimeError as error:
        return record | {"failed": str(error)}
    finally:
        side.close()
    times = [1e3 * epoch["wall_s"] / steps for epoch in found]
    return record | {
        "median_ms": round(statistics.median(times), 3),
        "ms": [round(t, 3) for t in times],
        "peak_bytes": found[-1]["device_bytes"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--libraries", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument("--models", nargs="+", default=["bert_base", "wrn28_10"])
    parser.add_argument("--precisions", nargs="+", choices=PRECISIONS, default=["bfloat16"])
    parser.add_argument("--batch-sizes", nargs="+", type=int, default=[16, 64])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--steps", type=int, default=10, help="of an epoch")
    parser.add_argument("--epochs", type=int, default=3, help="after the first")
    args = parser.parse_args()
    for model, precision, batch in itertools.product(
        args.models, args.precisions, args.batch_sizes
    ):
        for library in args.libraries:
            for mode in LIBRARIES[library].modes:
                record = measured(
                    library, args.steps, args.epochs, mode=mode, model=model, batch=batch,
                    precision=precision, device=args.device,
                )  # fmt: skip
                print(json.dumps({**record, **ORIGIN}), flush=True)


if __name__ == "__main__":
    main()

"""Writes the steps that are to be timed on a GPU; `run.py` of the folder runs them there.

python -m benchmarks.speed.gpu export DIR
python -m benchmarks.speed.gpu export DIR --models bert_base --batch-sizes 64 --precisions bfloat16
"""

import argparse
import itertools
import os
import pathlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from benchmarks.optimizers import OPTIMIZERS  # noqa: E402
from benchmarks.speed.gpu.export import MODELS, PRECISIONS, Program, export  # noqa: E402


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=["export"])
    parser.add_argument("folder", type=pathlib.Path)
    most = [name for name in MODELS if name != "tiny"]
    parser.add_argument("--models", nargs="+", choices=MODELS, default=most)
    parser.add_argument(
        "--optimizers", nargs="+", choices=OPTIMIZERS, default=["plain", "dpsgd", "rgp", "lsg"]
    )
    parser.add_argument("--precisions", nargs="+", choices=PRECISIONS, default=list(PRECISIONS))
    parser.add_argument("--batch-sizes", nargs="+", type=int, default=[16, 64, 256])
    parser.add_argument("--check", action="store_true", help="TensorFlow computes each step too")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    """Runs the command line."""
    args = parse_args(argv)
    chosen = itertools.product(args.models, args.optimizers, args.precisions, args.batch_sizes)
    export([Program(*settings) for settings in chosen], args.folder, args.check)


if __name__ == "__main__":
    main()

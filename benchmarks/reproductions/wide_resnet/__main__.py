"""Wide ResNets on CIFAR-10, trained where there is a GPU and JAX: Tables 2 and 3 of Yu et al. 2021.

python -m benchmarks.reproductions.wide_resnet DIR --networks wrn16_4 --epsilon 8 --data-dir DATA

writes programs and images to a folder, here, where TensorFlow is; there,

python DIR/train.py wrn16_4 --images DIR/images --json record.jsonl

trains.  A step is that of `fit`, whole, noise and update included.
"""

import argparse
import os
import pathlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from benchmarks.optimizers import OPTIMIZERS  # noqa: E402
from benchmarks.reproductions.accuracy import HELD_OUT  # noqa: E402
from benchmarks.reproductions.mnist import load_images  # noqa: E402
from benchmarks.reproductions.wide_resnet.export import (  # noqa: E402
    NETWORKS,
    PRECISIONS,
    Training,
    write_programs,
)
from benchmarks.reproductions.wide_resnet.images import write_images  # noqa: E402

METHODS = ["plain", "dpsgd", "dpsgd-centred", "rgp", "lsg"]


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=["wrn16_4"])
    parser.add_argument("--methods", nargs="+", choices=OPTIMIZERS, default=METHODS)
    parser.add_argument("--epsilon", type=float, default=8.0)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=1000)
    parser.add_argument("--precision", choices=PRECISIONS, default="bfloat16")
    parser.add_argument("--data-dir", default=os.environ.get("TFDS_DATA_DIR"))
    parser.add_argument("--parts", type=int, default=1, help="folders of images, for transport")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    """Runs the command line."""
    args = parse_args(argv)
    splits = [
        ((255.0 * x).round().astype("uint8"), y) for x, y in load_images("cifar10", args.data_dir)
    ]
    examples = len(splits[0][1]) - HELD_OUT
    for network in args.networks:
        training = Training(
            network, args.epsilon, args.steps, args.batch_size, examples, args.precision
        )
        write_programs(training, args.methods, args.folder)
    total = sum(len(y) for _, y in splits)
    for part in range(args.parts):
        name = "images" if args.parts == 1 else f"images{part}"
        first, last = part * total // args.parts, (part + 1) * total // args.parts
        write_images(splits, first, last, args.folder / name)


if __name__ == "__main__":
    main()

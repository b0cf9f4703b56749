"""Accuracy of a small convolutional network trained on MNIST with differential privacy.

python -m benchmarks.reproductions.mnist --data-dir DIR --json mnist.json

MNIST is read through `tensorflow_datasets`, prepared beforehand in `--data-dir`, or where the
environment variable `TFDS_DATA_DIR` says; nothing is downloaded.
"""

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np

from benchmarks.models import mnist_cnn
from benchmarks.optimizers import OPTIMIZERS, PLAIN
from benchmarks.results.report import origin

ORIGIN = origin(__file__)

Split = tuple[np.ndarray, np.ndarray]


def load_mnist(data_dir: str | None) -> tuple[Split, Split]:
    """Returns the training and the test split as images in [0, 1] and integer labels."""
    return load_images("mnist", data_dir)


def load_images(name: str, data_dir: str | None) -> tuple[Split, Split]:
    """`load_mnist` of another dataset of images and labels, by its name there."""
    import tensorflow_datasets as tfds

    splits = tfds.as_numpy(
        tfds.load(
            name,
            split=["train", "test"],
            batch_size=-1,
            data_dir=data_dir,
            download=False,
            as_supervised=True,
        )
    )
    train, test = (
        (images.astype("float32") / 255.0, labels.astype("int32")) for images, labels in splits
    )
    return train, test


def build_optimizer(args: argparse.Namespace) -> keras.optimizers.Optimizer:
    """Returns the optimizer of the run around SGD with momentum or Adam."""
    if args.inner == "sgd":
        inner = keras.optimizers.SGD(args.lr, momentum=args.momentum)
    else:
        inner = keras.optimizers.Adam(args.lr)
    return OPTIMIZERS[args.optimizer](
        inner, l2_norm_clip=args.l2_norm_clip, epsilon=args.epsilon, delta=args.delta
    )


def train(args: argparse.Namespace, data: tuple[Split, Split]) -> dict[str, Any]:
    """Trains one network and returns its JSON record."""
    (x, y), test = data
    if args.examples:
        x, y = x[: args.examples], y[: args.examples]
    keras.utils.set_random_seed(args.seed)
    workload = mnist_cnn(num_examples=1)
    model = workload.model
    private = args.optimizer != PLAIN
    if private:
        import tf_lowrank_dp as tfdp

        tfdp.make_private(model, microbatch_size=args.microbatch_size)
    model.compile(
        optimizer=build_optimizer(args),
        loss=workload.loss,
        metrics=["accuracy"],
        jit_compile=args.jit,
    )
    start = time.perf_counter()
    history = model.fit(
        x,
        y,
        batch_size=args.batch_size,
        epochs=args.epochs,
        validation_data=test,
        validation_batch_size=1000,
        verbose=2,
    )
    wall_s = time.perf_counter() - start
    accuracy = history.history["val_accuracy"]
    return {
        "settings": vars(args) | {"json": None, "data_dir": None},
        **ORIGIN,
        "num_examples": len(x),
        "test_accuracy": accuracy[-1],
        "test_accuracy_per_epoch": accuracy,
        "epsilon": tfdp.privacy_spent(model, args.delta) if private else None,
        "privacy_statement": str(tfdp.privacy_statement(model)) if private else None,
        "wall_s": wall_s,
    }


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--optimizer", choices=sorted(OPTIMIZERS), default="dpsgd")
    parser.add_argument("--epsilon", type=float, default=2.0)
    parser.add_argument("--delta", type=float, default=1e-5)
    parser.add_argument("--l2-norm-clip", type=float, default=1.0)
    parser.add_argument("--batch-size", type=int, default=2000)
    parser.add_argument("--microbatch-size", type=int, default=None)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--inner", choices=["sgd", "adam"], default="sgd")
    parser.add_argument("--lr", type=float, default=0.25)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--seed", type=int, default=0, help="of the initial weights, not the noise")
    parser.add_argument("--jit", action="store_true", help="compile the steps with XLA")
    parser.add_argument("--examples", type=int, help="train on the first EXAMPLES only")
    parser.add_argument("--data-dir", default=os.environ.get("TFDS_DATA_DIR"))
    parser.add_argument("--json", type=Path, help="write the record to this file")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    """Runs the command line."""
    args = parse_args(argv)
    text = json.dumps(train(args, load_mnist(args.data_dir)), indent=1)
    print(text)
    if args.json:
        args.json.write_text(text + "\n")


if __name__ == "__main__":
    main()

"""Accuracy on MNIST at one epsilon with and without centred captures, tuned alike.

python -m benchmarks.centering --data-dir DIR --seeds 0 1 2 --json centering.json

A small network with ReLU is trained by SGD with momentum and a learning rate that falls linearly.
For each optimizer the learning rate is chosen on 5,000 training images that are held out, with the
first seed; test accuracy is that of all seeds at this rate. MNIST is read as in `benchmarks.mnist`.
"""

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import layers as kl

from benchmarks.mnist import Split, load_mnist
from benchmarks.optimizers import OPTIMIZERS
from benchmarks.report import environment

HELD_OUT = 5000


def network(activation: str) -> keras.Model:
    """The network of the DP-SGD tutorials, which begins with logits of 0."""
    initial = {"activation": activation, "kernel_initializer": "he_normal"}
    return keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            kl.Conv2D(16, 8, strides=2, padding="same", **initial),
            kl.MaxPooling2D(2, strides=1),
            kl.Conv2D(32, 4, strides=2, padding="valid", **initial),
            kl.MaxPooling2D(2, strides=1),
            kl.Flatten(),
            kl.Dense(32, **initial),
            kl.Dense(10, kernel_initializer="zeros"),
        ]
    )


def accuracies(
    args: argparse.Namespace, data: tuple[Split, Split], centering: bool, rate: float, seed: int
) -> dict[str, float]:
    """Trains one network; returns its accuracy on held-out training images and on test images."""
    import tf_lowrank_dp as tfdp

    (x, y), test = data
    keras.utils.set_random_seed(seed)
    model = tfdp.make_private(network(args.activation))
    schedule = keras.optimizers.schedules.PolynomialDecay(rate, args.steps, 0.0)
    optimizer = OPTIMIZERS[args.optimizer](
        keras.optimizers.SGD(schedule, momentum=0.9),
        l2_norm_clip=args.l2_norm_clip,
        epsilon=args.epsilon,
        delta=args.delta,
        centering=centering,
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss=loss, metrics=["accuracy"])
    start = time.perf_counter()
    model.fit(
        x[HELD_OUT:],
        y[HELD_OUT:],
        batch_size=args.batch_size,
        epochs=1,
        steps_per_epoch=args.steps,
        verbose=0,
    )
    wall_s = time.perf_counter() - start
    held, tested = (
        model.evaluate(*split, batch_size=1000, verbose=0)[1]
        for split in ((x[:HELD_OUT], y[:HELD_OUT]), test)
    )
    epsilon = tfdp.privacy_spent(model, args.delta)
    return {"held_out": held, "test": tested, "wall_s": wall_s, "epsilon": epsilon}


def compare(args: argparse.Namespace, data: tuple[Split, Split]) -> dict[str, Any]:
    """All runs, as a JSON record."""
    runs: list[dict[str, Any]] = []

    def run(centering: bool, rate: float, seed: int) -> dict[str, Any]:
        known = {"centering": centering, "rate": rate, "seed": seed}
        for done in runs:
            if known.items() <= done.items():
                return done
        runs.append(known | accuracies(args, data, centering, rate, seed))
        print(runs[-1], flush=True)
        return runs[-1]

    summary = {}
    for centering in (False, True):
        tried = [run(centering, rate, args.seeds[0]) for rate in args.rates]
        rate = max(tried, key=lambda found: found["held_out"])["rate"]
        test = [run(centering, rate, seed)["test"] for seed in args.seeds]
        name = "centred" if centering else "plain"
        summary[name] = {"rate": rate, "mean": float(np.mean(test)), "test": test}
    settings = vars(args) | {"json": None, "data_dir": None}
    return {"settings": settings, "environment": environment(), "runs": runs, "summary": summary}


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--optimizer", choices=sorted(OPTIMIZERS), default="dpsgd")
    parser.add_argument("--activation", choices=["relu", "tanh"], default="relu")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--delta", type=float, default=1e-5)
    parser.add_argument("--l2-norm-clip", type=float, default=0.3)
    parser.add_argument("--batch-size", type=int, default=500)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rates", type=float, nargs="+", default=[0.5, 1.0, 2.0, 4.0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="of the weights")
    parser.add_argument("--data-dir", default=os.environ.get("TFDS_DATA_DIR"))
    parser.add_argument("--json", type=Path, help="write the record to this file")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    """Runs the command line."""
    args = parse_args(argv)
    record = compare(args, load_mnist(args.data_dir))
    print(json.dumps(record["summary"], indent=1))
    if args.json:
        args.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()

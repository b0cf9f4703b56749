"""Test accuracy at equal epsilon: methods, networks and tasks, all tuned alike.

python -m benchmarks.reproductions.accuracy --data-dir DIR --tasks mnist --json accuracy.jsonl
python -m benchmarks.reproductions.accuracy --report accuracy.jsonl

For each task, method, activation and epsilon the learning rate is chosen from one grid on 5,000
training images that are held out, with the first seed; test accuracy is that of all seeds at this
rate.  Test images choose nothing.  SGD with momentum 0.9, a rate that falls linearly, steps and
batches of the task.  Every run is one line of the record: what is there is not run again.
"""

import argparse
import functools
import json
import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import layers as kl

from benchmarks.optimizers import OPTIMIZERS
from benchmarks.reproductions.mnist import Split, load_images
from benchmarks.results.report import origin
from benchmarks.results.script_version import mark

ORIGIN = origin(__file__)

HELD_OUT = 5000
DELTA = 1e-5


def mnist_cnn(activation: str) -> keras.Model:
    """The network of the DP-SGD tutorials, 26,000 weights."""
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


def mnist_mlp(activation: str, width: int = 256) -> keras.Model:
    """Two hidden layers of 256 units, or another width."""
    dense = [
        kl.Dense(width, activation, kernel_initializer="he_normal", bias_initializer="zeros")
        for _ in range(2)
    ]
    head = kl.Dense(10, kernel_initializer="zeros")
    return keras.Sequential([keras.Input((28, 28, 1)), kl.Flatten(), *dense, head])


def standardized_mnist_mlp(activation: str) -> keras.Model:
    """The same on pixels of mean 0 and deviation 1, by the constants that everybody knows."""
    scaled = kl.Rescaling(1 / 0.3081, -0.1307 / 0.3081)
    return keras.Sequential([keras.Input((28, 28, 1)), scaled, *mnist_mlp(activation).layers])


def cifar10_cnn(activation: str, widths: Sequence[int] = (32, 64, 128)) -> keras.Model:
    """Three stages of convolution, GroupNorm and pooling, the mean over pixels; 94,000 weights."""
    layers: list[keras.Layer] = [keras.Input((32, 32, 3))]
    for width in widths:
        layers += [
            kl.Conv2D(width, 3, padding="same", kernel_initializer="he_normal"),
            kl.GroupNormalization(8),
            kl.Activation(activation),
            kl.AveragePooling2D(2),
        ]
    head = kl.Dense(10, kernel_initializer="zeros")
    return keras.Sequential([*layers, kl.GlobalAveragePooling2D(), head])


class Task(NamedTuple):
    """Data, network and what all methods have in common on it."""

    data: str
    network: Callable[[str], keras.Model]
    steps: int
    batch_size: int
    l2_norm_clip: float
    rates: tuple[float, ...]


TASKS = {
    "mnist": Task("mnist", mnist_cnn, 200, 500, 0.3, (0.5, 1.0, 2.0, 4.0)),
    "mnist-mlp": Task("mnist", mnist_mlp, 200, 500, 0.3, (0.5, 1.0, 2.0, 4.0)),
    "mnist-mlp-32": Task(
        "mnist", functools.partial(mnist_mlp, width=32), 200, 500, 0.3, (0.5, 1.0, 2.0, 4.0)
    ),
    "mnist-mlp-1024": Task(
        "mnist", functools.partial(mnist_mlp, width=1024), 200, 500, 0.3, (0.5, 1.0, 2.0, 4.0)
    ),
    "mnist-mlp-standardized": Task(
        "mnist", standardized_mnist_mlp, 200, 500, 0.3, (0.25, 0.5, 1.0, 2.0)
    ),
    "cifar10": Task("cifar10", cifar10_cnn, 300, 500, 1.0, (0.8, 1.6, 3.2, 6.4, 12.8)),
    "cifar10-short": Task("cifar10", cifar10_cnn, 150, 250, 1.0, (0.8, 1.6, 3.2)),
}


class Method(NamedTuple):
    """An optimizer of `OPTIMIZERS` and how it is used.

    Attributes:
        optimizer: its name.
        centering: whether it centres what layers see.
        multiplicity: augmented copies of each image, whose gradients are averaged; None trains on
            the image itself.
    """

    optimizer: str
    centering: bool
    multiplicity: int | None = None


METHODS = {
    name + suffix: Method(name, centering)
    for name in ("dpsgd", "rgp", "lsg", "sparse", "powersgd")
    for suffix, centering in (("", False), (" centred", True))
} | {
    f"dpsgd{suffix} x{copies}": Method("dpsgd", centering, copies)
    for copies in (1, 4, 16)
    for suffix, centering in (("", False), (" centred", True))
}


def augmented() -> keras.Layer:
    """What De et al. (2022) do to images: a flip, and a shift by up to an eighth."""
    shift = kl.RandomTranslation(0.125, 0.125, fill_mode="reflect", interpolation="nearest")
    return kl.Pipeline([kl.RandomFlip("horizontal"), shift])


def accuracies(
    task: Task,
    data: tuple[Split, Split],
    method: str,
    activation: str,
    epsilon: float,
    rate: float,
    seed: int,
    steps: int,
) -> dict[str, float]:
    """Trains one network; returns its accuracy on held-out training images and on test images."""
    import tf_lowrank_dp as tfdp

    (x, y), test = data
    keras.utils.set_random_seed(seed)
    model = tfdp.make_private(task.network(activation))
    schedule = keras.optimizers.schedules.PolynomialDecay(rate, steps, 0.0)
    chosen = METHODS[method]
    optimizer = OPTIMIZERS[chosen.optimizer](
        keras.optimizers.SGD(schedule, momentum=0.9),
        l2_norm_clip=task.l2_norm_clip,
        epsilon=epsilon,
        delta=DELTA,
        centering=chosen.centering,
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss=loss, metrics=["accuracy"])
    start = time.perf_counter()
    private = x[HELD_OUT:], y[HELD_OUT:]
    copies = (
        {"augment": augmented(), "multiplicity": chosen.multiplicity} if chosen.multiplicity else {}
    )
    model.fit(*private, batch_size=task.batch_size, steps_per_epoch=steps, verbose=0, **copies)
    wall_s = time.perf_counter() - start
    held, tested = (
        model.evaluate(*split, batch_size=1000, verbose=0)[1]
        for split in ((x[:HELD_OUT], y[:HELD_OUT]), test)
    )
    spent = tfdp.privacy_spent(model, DELTA)
    keras.backend.clear_session()
    return {"held_out": held, "test": tested, "wall_s": wall_s, "epsilon_spent": spent}


class Runs:
    """Runs that are recorded, one JSON line each.

    Args:
        path: of the record, which may exist; None keeps runs in memory.
        data_dir: of `tensorflow_datasets`.
        steps: of each run instead of the task's, for a quick look; None for those.
    """

    def __init__(self, path: Path | None, data_dir: str | None, steps: int | None = None):
        self._path, self._data_dir, self._steps = path, data_dir, steps
        exists = path is not None and path.exists()
        self.records = (
            [json.loads(line) for line in path.read_text().splitlines()] if exists else []
        )
        self._data: dict[str, tuple[Split, Split]] = {}

    def get(
        self, task: str, method: str, activation: str, epsilon: float, rate: float, seed: int
    ) -> dict[str, Any]:
        """The run with these settings, recorded or done now."""
        steps = self._steps or TASKS[task].steps
        settings = {"task": task, "method": method, "activation": activation, "epsilon": epsilon}
        settings |= {"rate": rate, "seed": seed, "steps": steps}
        for record in self.records:
            if record["settings"] == settings:
                return record
        name = TASKS[task].data
        if name not in self._data:
            self._data[name] = load_images(name, self._data_dir)
        fixed = {"batch_size": TASKS[task].batch_size, "l2_norm_clip": TASKS[task].l2_norm_clip}
        found = accuracies(
            TASKS[task], self._data[name], method, activation, epsilon, rate, seed, steps
        )
        self.records.append({"settings": settings, **fixed, **found, **ORIGIN})
        print(settings, {key: round(value, 4) for key, value in found.items()}, flush=True)
        if self._path:
            with self._path.open("a") as file:
                file.write(json.dumps(self.records[-1]) + "\n")
        return self.records[-1]


def tuned(runs: Runs, task: str, *which: Any, seeds: Sequence[int]) -> list[dict[str, Any]]:
    """Runs of all seeds at the rate that held-out images choose with the first one."""
    tried = [runs.get(task, *which, rate, seeds[0]) for rate in TASKS[task].rates]
    best = max(tried, key=lambda record: record["held_out"])["settings"]["rate"]
    return [runs.get(task, *which, best, seed) for seed in seeds]


def table(records: Iterable[dict[str, Any]]) -> list[str]:
    """Lines of Markdown: mean and range of the test accuracy at the chosen rate, in per cent."""
    groups: dict[tuple, list[dict[str, Any]]] = {}
    for record in records:
        s = record["settings"]
        key = s["task"], s["epsilon"], s["activation"], s["method"]
        groups.setdefault(key, []).append(record)
    lines = ["| task | epsilon | activation | method | rate | test accuracy | seeds |"]
    lines.append("| --- " * 7 + "|")
    for (task, epsilon, activation, method), found in sorted(groups.items()):
        first = min(record["settings"]["seed"] for record in found)
        tried = [record for record in found if record["settings"]["seed"] == first]
        rate = max(tried, key=lambda record: record["held_out"])["settings"]["rate"]
        test = [100 * r["test"] for r in found if r["settings"]["rate"] == rate]
        shown = f"{np.mean(test):.2f} ({min(test):.2f} to {max(test):.2f})"
        cells = [task, f"{epsilon:g}", activation, method + mark(found), f"{rate:g}"]
        cells += [shown, str(len(test))]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=["mnist"])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=["dpsgd", "dpsgd centred"])
    parser.add_argument("--activations", nargs="+", default=["relu", "tanh"])
    parser.add_argument("--epsilon", nargs="+", type=float, default=[0.5, 1.0, 3.0])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], help="of the weights")
    parser.add_argument("--steps", type=int, help="fewer than the task's, for a quick look")
    parser.add_argument("--data-dir", default=os.environ.get("TFDS_DATA_DIR"))
    parser.add_argument("--json", type=Path, help="the record, to which runs are added")
    parser.add_argument("--report", type=Path, help="print the table of a record")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    """Runs the command line."""
    args = parse_args(argv)
    if args.report:
        print("\n".join(table(Runs(args.report, None).records)))
        return
    runs = Runs(args.json, args.data_dir, args.steps)
    for task in args.tasks:
        for epsilon in args.epsilon:
            for activation in args.activations:
                for method in args.methods:
                    tuned(runs, task, method, activation, epsilon, seeds=args.seeds)
    print("\n".join(table(runs.records)))


if __name__ == "__main__":
    main()

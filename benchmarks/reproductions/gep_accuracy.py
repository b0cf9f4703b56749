"""GEP with public images: Tables 1, 5 and 6 and Figures 4 to 7 of Yu et al. 2021.

python -m benchmarks.reproductions.gep_accuracy table1 --public-images FILE --json gep.json
python -m benchmarks.reproductions.gep_accuracy table1 --public-images FILE --dataset cifar10
python -m benchmarks.reproductions.gep_accuracy figures --public-images FILE --figure gep.png

| experiment | compares |
| --- | --- |
| table1 | DP-SGD, B-GEP and GEP at several epsilon |
| table5 | source and labels of the public data |
| table6 | numbers of public examples |
| figure6 | numbers of basis vectors |
| figures | projection error and stable ranks over one training run, of GEP's and of random bases |

The public images are an array `images (n, height, width, 3)` of bytes in an npz file. A small CNN
is trained on MNIST, with their inner 28x28 pixels in grey, and a ResNet-20 with group normalisation
on CIFAR-10, with 32x32 in colour. Both are read through `tensorflow_datasets`, prepared beforehand
in `--data-dir`, or where the environment variable `TFDS_DATA_DIR` says.
"""

import argparse
import dataclasses
import functools
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np

import tf_lowrank_dp as tfdp
from benchmarks.models import CLASSES, MODELS
from benchmarks.reproductions.mnist import Split, load_images
from benchmarks.results.records import Records
from benchmarks.results.report import origin
from benchmarks.results.script_version import mark

ORIGIN = origin(__file__)

HELD_OUT = 2000
"""Test images that choose the learning rate, or serve as public data; the others are reported."""

MODEL_OF = {"mnist": "gep_cnn", "cifar10": "resnet20"}
METHODS = ("dpsgd", "b-gep", "gep")

# Accuracies of Table 1 of the paper, by data, method and epsilon.
PAPER = {
    "mnist": {
        "dpsgd": {2.0: 94.7, 5.0: 96.8, 8.0: 97.2},
        "b-gep": {2.0: 93.1, 5.0: 94.5, 8.0: 95.9},
        "gep": {2.0: 96.3, 5.0: 97.9, 8.0: 98.4},
    },
    "cifar10": {
        "dpsgd": {2.0: 43.6, 5.0: 52.2, 8.0: 56.4},
        "b-gep": {2.0: 50.3, 5.0: 59.5, 8.0: 63.0},
        "gep": {2.0: 59.7, 5.0: 70.1, 8.0: 74.9},
    },
}


class Case(NamedTuple):
    """One row of an experiment.

    Attributes:
        method: "dpsgd", "b-gep" or "gep".
        epsilon: Budget.
        public: "images", "mnist" (held-out test images) or "noise".
        labels: "random" or "true" ones of the public data.
        num_public: Number of public examples.
        num_bases: Number of basis vectors of all groups.
    """

    method: str
    epsilon: float
    public: str = "images"
    labels: str = "random"
    num_public: int = 2000
    num_bases: int = 500


def cases_of(experiment: str, epsilons: list[float]) -> list[Case]:
    """Returns the rows of an experiment; all but Table 1 have the last epsilon."""
    last = epsilons[-1]
    if experiment == "table1":
        return [Case(method, epsilon) for epsilon in epsilons for method in METHODS]
    if experiment == "table5":
        sources = [("mnist", "true"), ("mnist", "random"), ("images", "random")]
        return [Case("gep", last, *source) for source in [*sources, ("noise", "random")]]
    if experiment == "table6":
        numbers = (500, 1000, 2000)
        return [Case(method, last, num_public=m) for m in numbers for method in ("b-gep", "gep")]
    if experiment == "figure6":
        numbers = (125, 250, 500, 1000)
        return [Case(method, last, num_bases=k) for k in numbers for method in ("b-gep", "gep")]
    return [Case("gep", last)]


class Data(NamedTuple):
    """Private images, and public ones of another source, of the same shape and in [0, 1]."""

    train: Split
    held_out: Split
    test: Split
    images: np.ndarray

    def public(self, case: Case) -> tuple[np.ndarray, Any]:
        """Returns the public examples of a case and their labels."""
        if case.public == "mnist":
            x, y = (array[: case.num_public] for array in self.held_out)
            return x, y if case.labels == "true" else "random"
        if case.public == "noise":
            shape = (case.num_public, *self.images.shape[1:])
            return np.random.default_rng(0).random(shape, dtype="float32"), "random"
        return self.images[: case.num_public], "random"

    def watched(self) -> Split:
        """Returns what projection errors are measured on: no public example is among it."""
        return self.test[0][:500], self.test[1][:500]


def load_data(args: argparse.Namespace) -> Data:
    """Returns the data of all experiments."""
    train, (x, y) = load_images(args.dataset, args.data_dir)
    held_out, test = (x[:HELD_OUT], y[:HELD_OUT]), (x[HELD_OUT:], y[HELD_OUT:])
    images = np.load(args.public_images)["images"] / 255.0
    height, width, channels = x.shape[1:]
    top, left = (images.shape[1] - height) // 2, (images.shape[2] - width) // 2
    images = images[:, top : top + height, left : left + width]
    if channels == 1:
        images = images.mean(-1, keepdims=True)
    return Data(train, held_out, test, images.astype("float32"))


@functools.cache
def noise_multiplier(epsilon: float, delta: float, **schedule: int) -> float:
    """Returns the multiplier of all runs with this budget; it is the same for every method."""
    return tfdp.calibrate_noise_multiplier(epsilon, delta, **schedule)


def build_optimizer(
    args, case: Case, learning_rate: float, data: Data
) -> keras.optimizers.Optimizer:
    """Returns the optimizer of a case around SGD with momentum 0.9 and linear decay."""
    schedule = keras.optimizers.schedules.PolynomialDecay(learning_rate, args.steps, 0.0)
    inner = keras.optimizers.SGD(schedule, momentum=0.9)
    multiplier = noise_multiplier(
        case.epsilon,
        args.delta,
        batch_size=args.batch_size,
        num_examples=len(data.train[0]),
        steps=args.steps,
    )
    privacy = {"noise_multiplier": multiplier, "delta": args.delta}
    if case.method == "dpsgd":
        return tfdp.DPSGDOptimizer(inner, l2_norm_clip=args.clip, **privacy)
    x, labels = data.public(case)
    return tfdp.GEPOptimizer(
        inner,
        public_data=x,
        public_labels=labels,
        num_classes=CLASSES,
        num_bases=case.num_bases,
        embedding_clip=args.clip,
        residual_clip=args.residual_clip,
        residual=case.method == "gep",
        refresh_every=args.refresh_every,
        **privacy,
    )


def train(
    args: argparse.Namespace,
    data: Data,
    case: Case,
    learning_rate: float,
    seed: int,
    callbacks: list[keras.callbacks.Callback] | None = None,
) -> dict[str, Any]:
    """Trains one network and returns its record."""
    keras.backend.clear_session()
    keras.utils.set_random_seed(seed)
    workload = MODELS[MODEL_OF[args.dataset]](num_examples=1)
    model = tfdp.make_private(workload.model, microbatch_size=args.microbatch_size)
    optimizer = build_optimizer(args, case, learning_rate, data)
    model.compile(optimizer, workload.loss, metrics=["accuracy"], jit_compile=False)
    sampler = tfdp.PoissonSampler(*data.train, batch_size=args.batch_size, steps=args.steps)
    start = time.perf_counter()
    model.fit(sampler, verbose=0, callbacks=callbacks)
    fit_s = time.perf_counter() - start
    held_out, test = (
        model.evaluate(*split, batch_size=1000, verbose=0, return_dict=True)["accuracy"]
        for split in (data.held_out, data.test)
    )
    found = {
        "accuracy": test,
        "held_out_accuracy": held_out,
        "epsilon": tfdp.privacy_spent(model),
        "noise_multiplier": optimizer.noise_multiplier,
        "fit_s": fit_s,
    }
    print(f"{case} lr {learning_rate:g} seed {seed}: {100 * test:.2f} in {fit_s:.0f} s", flush=True)
    if case.method != "dpsgd":
        residual = tfdp.diagnostics.anchor_residuals(model, *data.watched())["all"]
        found["anchor_residual"] = dataclasses.asdict(residual)
        print(f"    at the end: {residual}", flush=True)
    return found


def settings(args: argparse.Namespace, case: Case, rate: float, seed: int) -> dict[str, Any]:
    """Returns what makes a difference to a run."""
    names = ("dataset", "delta", "batch_size", "steps", "clip", "refresh_every", "residual_clip")
    common = {name: getattr(args, name) for name in names}
    if case.method == "dpsgd":
        del common["refresh_every"]
    if case.method != "gep":
        del common["residual_clip"]
    return {**case._asdict(), "learning_rate": rate, "seed": seed, **common}


def best_learning_rate(
    args: argparse.Namespace, case: Case, run: Callable[[Case, float, int], dict[str, Any]]
) -> float:
    """Returns the rate with the best held-out accuracy, of the method's row of Table 1."""
    if len(args.learning_rates) == 1:
        return args.learning_rates[0]
    row = Case(case.method, case.epsilon)
    found = {rate: run(row, rate, args.seeds[0]) for rate in args.learning_rates}
    return max(found, key=lambda rate: found[rate]["held_out_accuracy"])


def table(dataset: str, rows: list[tuple[Case, float, list[dict[str, Any]]]]) -> str:
    """Returns a Markdown table of cases, learning rates and records.

    "Missed" is the mean projection error `|sum r| / |sum g|` at the end (Figure 4).
    """
    lines = [
        "| method | epsilon | public data | labels | examples | bases | learning rate "
        "| test accuracy, % (mean) | lowest to highest | runs | missed at the end "
        "| Table 1 of the paper |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for case, rate, records in rows:
        public = ("", "", "", "") if case.method == "dpsgd" else case[2:]
        values = [100 * record["accuracy"] for record in records]
        in_paper = case == Case(case.method, case.epsilon)
        paper = PAPER[dataset][case.method].get(case.epsilon, "") if in_paper else ""
        cells = [case.method + mark(records), f"{case.epsilon:g}", *public, f"{rate:g}"]
        missed = [
            r["anchor_residual"]["projection_error"] for r in records if "anchor_residual" in r
        ]
        cells += [f"{np.mean(values):.2f}", f"{min(values):.2f} to {max(values):.2f}", len(values)]
        cells += [f"{np.mean(missed):.2f}" if missed else "", paper]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def draw(args: argparse.Namespace, data: Data, case: Case) -> None:
    """Trains once, watched, and draws Figures 4, 5 and 7."""
    monitors = {
        name: tfdp.diagnostics.AnchorMonitor(
            *data.watched(), every=args.every, random_basis=name == "random"
        )
        for name in ("GEP", "random")
    }
    train(args, data, case, args.learning_rates[0], args.seeds[0], list(monitors.values()))
    for name, monitor in monitors.items():
        for step, residuals in zip(monitor.history.steps, monitor.history.residuals, strict=True):
            print(name, step, residuals["all"])
    figure = tfdp.diagnostics.plot_anchors({n: m.history for n, m in monitors.items()})
    figure.savefig(args.figure)


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    experiments = ["table1", "table5", "table6", "figure6", "figures"]
    parser.add_argument("experiment", choices=experiments)
    parser.add_argument("--dataset", choices=sorted(MODEL_OF), default="mnist")
    parser.add_argument("--epsilons", nargs="+", type=float, default=[2.0, 5.0, 8.0])
    parser.add_argument("--delta", type=float, default=1e-5)
    parser.add_argument("--learning-rates", nargs="+", type=float, default=[0.25, 0.5])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--batch-size", type=int, default=500)
    parser.add_argument("--microbatch-size", type=int, default=1000)
    parser.add_argument("--refresh-every", type=int, default=20)
    parser.add_argument("--clip", type=float, default=1.0, help="of DP-SGD, and S1 of GEP")
    parser.add_argument("--residual-clip", type=float, default=0.4)
    parser.add_argument("--every", type=int, default=100, help="steps between points of figures")
    parser.add_argument("--figure", type=Path, default=Path("gep.png"))
    parser.add_argument("--public-images", type=Path, required=True)
    parser.add_argument("--data-dir", default=os.environ.get("TFDS_DATA_DIR"))
    parser.add_argument("--json", type=Path, help="record every run here; skip those it holds")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    """Runs the command line."""
    args = parse_args(argv)
    data, records = load_data(args), Records(args.json, ORIGIN)
    cases = cases_of(args.experiment, args.epsilons)
    if args.experiment == "figures":
        draw(args, data, *cases)
        return

    def run(case: Case, rate: float, seed: int) -> dict[str, Any]:
        return records.get(
            settings(args, case, rate, seed), lambda: train(args, data, case, rate, seed)
        )

    rates = [best_learning_rate(args, case, run) for case in cases]
    found = {case: [] for case in cases}
    for seed in args.seeds:  # all cases for one seed first: an interrupted run compares fairly
        for case, rate in zip(cases, rates, strict=True):
            found[case].append(run(case, rate, seed))
    print(
        table(
            args.dataset,
            [(case, rate, found[case]) for case, rate in zip(cases, rates, strict=True)],
        )
    )


if __name__ == "__main__":
    main()

"""What users wait for: `model.fit` on arrays, private beside plain, with `compile`'s defaults.

python -m benchmarks.speed.fit_time --model transformer --batch 64 --optimizer dpsgd
python -m benchmarks.speed.fit_time --all --json fit_time.jsonl

On a machine without a GPU Keras' `jit_compile="auto"` compiles nothing.

Epochs of both models are taken in turn in one process, the first ones reported apart.  `step_time`
leaves out what costs most at first: conversion, calibration, probe, tracing and compilation, and
that Poisson draws are of different sizes.

Ordinary epochs are taken twice: as they are, and `untuned`, which is what ratios are over unless
they say otherwise.
"""

import argparse
import contextlib
import dataclasses
import json
import statistics
import time
from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf

from benchmarks.models import MODELS, Workload
from benchmarks.optimizers import OPTIMIZERS, PLAIN
from benchmarks.results.report import origin
from benchmarks.speed.measure import peak_mib, reset_peak, run_isolated
from benchmarks.speed.untuned import untuned_arrays

ORIGIN = origin(__file__)

CASES = [("mlp", 128), ("cnn", 128), ("lstm", 128), ("transformer", 64)]
COLUMNS = "model batch mode optimizer first-step-s plain ratio wall cpu as-it-is memory"


@dataclasses.dataclass(frozen=True)
class Spec:
    """What to measure.

    Attributes:
        model: name in `MODELS`.
        batch: expected number of examples of a step.
        optimizer: name in `OPTIMIZERS`.
        jit: `jit_compile` of `compile`; "auto" is Keras' default, which is False on a CPU alone.
        steps: of an epoch.
        epochs: timed epochs, after the first.
        microbatch_size: of `make_private`.
    """

    model: str
    batch: int
    optimizer: str
    jit: bool | str = "auto"
    steps: int = 20
    epochs: int = 5
    microbatch_size: int | None = None


@dataclasses.dataclass
class Epochs:
    """Times of the epochs of one model.

    Attributes:
        first_step_s: seconds from `make_private` to the end of the first step.
        first_epoch_s: seconds from `make_private` to the end of the first epoch.
        wall_s: seconds of each later epoch, a `fit` of its own.
        cpu_s: processor seconds of the same.
    """

    first_step_s: float
    first_epoch_s: float
    wall_s: list[float]
    cpu_s: list[float]


class _FirstStep(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.at: float | None = None

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        self.at = self.at or time.perf_counter()


def _workload(spec: Spec) -> Workload:
    keras.utils.set_random_seed(0)
    return MODELS[spec.model](num_examples=spec.steps * spec.batch)


def _prepared(workload: Workload, spec: Spec) -> keras.Model:
    model = workload.model
    if spec.optimizer != PLAIN:
        import tf_lowrank_dp as tfdp

        tfdp.make_private(model, microbatch_size=spec.microbatch_size)
    # A target instead of a multiplier, so that calibration is part of it.
    optimizer = OPTIMIZERS[spec.optimizer](
        keras.optimizers.Adam(1e-3),
        l2_norm_clip=1.0,
        epsilon=8.0,
        delta=1e-5,
        planned_steps=spec.steps * (spec.epochs + 1),
    )
    model.compile(optimizer, workload.loss, jit_compile=spec.jit)
    return model


def _start(spec: Spec) -> tuple[keras.Model, Workload, Epochs]:
    workload, first = _workload(spec), _FirstStep()
    begin = time.perf_counter()
    model = _prepared(workload, spec)
    model.fit(workload.x, workload.y, batch_size=spec.batch, epochs=1, verbose=0, callbacks=[first])
    end = time.perf_counter()
    assert first.at is not None
    return model, workload, Epochs(first.at - begin, end - begin, [], [])


def _epoch(model: keras.Model, workload: Workload, spec: Spec, epochs: Epochs) -> None:
    wall, cpu = time.perf_counter(), time.process_time()
    model.fit(workload.x, workload.y, batch_size=spec.batch, epochs=1, verbose=0)
    epochs.wall_s.append(time.perf_counter() - wall)
    epochs.cpu_s.append(time.process_time() - cpu)


def time_fits(spec: Spec) -> tuple[Epochs, Epochs, Epochs]:
    """Epochs of the plain model, of the private one, and of the plain one as it is, in turn."""
    specs = [dataclasses.replace(spec, optimizer=PLAIN), spec]
    plain, private = [_start(each) for each in specs]
    as_it_is = dataclasses.replace(plain[2], wall_s=[], cpu_s=[])
    series = [
        (*plain, specs[0], untuned_arrays),
        (*private, spec, contextlib.nullcontext),
        (*plain[:2], as_it_is, specs[0], contextlib.nullcontext),
    ]
    for index in range(spec.epochs):
        for at in range(len(series)):
            model, workload, epochs, own, arrays = series[(index + at) % len(series)]
            with arrays():
                _epoch(model, workload, own, epochs)
    return plain[2], private[2], as_it_is


def peak_of_fit(spec: Spec) -> float:
    """MiB that two epochs take in this process, which must be a fresh one, beyond the data."""
    tf.zeros(1).numpy()
    workload = _workload(spec)
    reset_peak()
    before = peak_mib()
    model = _prepared(workload, spec)
    model.fit(workload.x, workload.y, batch_size=spec.batch, epochs=2, verbose=0)
    return peak_mib() - before


def measure(spec: Spec) -> dict[str, Any]:
    """The JSON record of one spec; ratios are private over plain."""
    plain, private, as_it_is = run_isolated(time_fits, spec)
    memory = [
        run_isolated(peak_of_fit, dataclasses.replace(spec, optimizer=name))
        for name in (PLAIN, spec.optimizer)
    ]

    def ratio(private_s: list[float], plain_s: list[float]) -> float:
        return statistics.median(a / b for a, b in zip(private_s, plain_s, strict=True))

    return {
        "spec": dataclasses.asdict(spec),
        "summary": {
            "first_step_ratio": private.first_step_s / plain.first_step_s,
            "wall_ratio": ratio(private.wall_s, plain.wall_s),
            "cpu_ratio": ratio(private.cpu_s, plain.cpu_s),
            "wall_ratio_as_it_is": ratio(private.wall_s, as_it_is.wall_s),
            "memory_ratio": memory[1] / memory[0],
        },
        "plain": dataclasses.asdict(plain),
        "private": dataclasses.asdict(private),
        "plain_as_it_is": dataclasses.asdict(as_it_is),
        "memory_mib": memory,
    }


def row(record: dict[str, Any]) -> str:
    """One line of the table."""
    spec, found = record["spec"], record["summary"]
    starts = [record[name]["first_step_s"] for name in ("private", "plain")]
    cells = [spec["model"], spec["batch"], spec["jit"], spec["optimizer"]]
    cells += [f"{seconds:.1f}" for seconds in starts]
    cells += [f"{value:.2f}" for value in found.values()]
    return _line(cells)


def _line(cells: list) -> str:
    return " ".join(str(cell).rjust(12) for cell in cells)


def _specs(args: argparse.Namespace) -> Iterator[Spec]:
    cases = CASES if args.all else [(args.model, args.batch)]
    modes = ("auto", True) if args.all else (True if args.xla else "auto",)
    for model, batch in cases:
        for jit in modes:
            yield Spec(
                model, batch, args.optimizer, jit, args.steps, args.epochs, args.microbatch_size
            )


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", choices=sorted(MODELS), default="mlp")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--optimizer", choices=sorted(OPTIMIZERS), default="dpsgd")
    parser.add_argument("--xla", action="store_true", help="jit_compile=True")
    parser.add_argument("--steps", type=int, default=20, help="of an epoch")
    parser.add_argument("--epochs", type=int, default=5, help="timed, after the first")
    parser.add_argument("--microbatch-size", type=int)
    parser.add_argument("--all", action="store_true", help="all cases, by default and by XLA")
    parser.add_argument("--json", help="file to which the records are added")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    """Prints the table and adds the records to a file."""
    args = parse_args(argv)
    print(_line(COLUMNS.split()))
    for spec in _specs(args):
        record = {**measure(spec), **ORIGIN}
        print(row(record), flush=True)
        if args.json:
            with open(args.json, "a") as file:
                file.write(json.dumps(record) + "\n")


if __name__ == "__main__":
    main()

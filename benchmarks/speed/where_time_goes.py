"""Where the time of a private epoch goes: epochs of `fit` with one part after another.

python -m benchmarks.speed.where_time_goes --models mlp cnn lstm --json where_time_goes.jsonl

| variant | what it has more than the one before |
| --- | --- |
| plain | ordinary `fit` on arrays, `untuned` |
| private | draws of random size by the library's sampler, padded; neither clip nor noise |
| clip | norms of examples, and their clip |
| noise | Gaussian noise on each weight: what users run |
| shuffled | the same with batches of `tf.data` instead of the library's draws |

All variants of a model are alive in one process and take epochs in turn; each is compared with the
plain epoch of the same round.
"""

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from benchmarks.models import MODELS
from benchmarks.results.report import origin
from benchmarks.speed.measure import run_isolated
from benchmarks.speed.untuned import untuned, untuned_arrays

ORIGIN = origin(__file__)

VARIANTS = ("plain", "private", "clip", "noise", "shuffled")
CASES = {"mlp": (128, 200), "cnn": (128, 30), "lstm": (128, 30), "transformer": (64, 5)}
"""Batch and steps of an epoch."""


def _prepared(variant: str, model: str, jit: bool | str) -> Callable[[], Any]:
    """An epoch of a variant, ready to be taken."""
    import tf_lowrank_dp as tfdp

    batch, steps = CASES[model]
    keras.utils.set_random_seed(0)
    workload = MODELS[model](num_examples=batch * steps)
    network, data = workload.model, (workload.x, workload.y)
    optimizer = keras.optimizers.Adam(1e-3)
    given: dict[str, Any] = {"batch_size": batch}
    if variant == "shuffled":
        data = (untuned(tf.data.Dataset.from_tensor_slices(data).shuffle(1024).batch(batch)),)
        given["sampling"] = "shuffle"
    if variant != "plain":
        tfdp.make_private(network)
        optimizer = tfdp.DPSGDOptimizer(
            optimizer,
            l2_norm_clip=math.inf if variant == "private" else 1.0,
            noise_multiplier=1.0 if variant in ("noise", "shuffled") else 0.0,
        )
    network.compile(optimizer, workload.loss, jit_compile=jit)
    return lambda: network.fit(*data, epochs=1, verbose=0, **given)


def epochs(model: str, jit: bool | str, rounds: int) -> dict[str, list[float]]:
    """Milliseconds a step of each variant in each round."""
    ready = {variant: _prepared(variant, model, jit) for variant in VARIANTS}
    for epoch in ready.values():
        epoch()
    found: dict[str, list[float]] = {variant: [] for variant in VARIANTS}
    for index in range(rounds):
        for variant in VARIANTS[:: 1 if index % 2 else -1]:
            start = time.perf_counter()
            with untuned_arrays():
                ready[variant]()
            found[variant].append(1e3 * (time.perf_counter() - start) / CASES[model][1])
    return found


def ratios(record: dict[str, Any]) -> dict[str, float]:
    """Each variant over the plain epoch of its round, medians."""
    plain = record["step_ms"]["plain"]
    return {
        variant: statistics.median(b / a for a, b in zip(plain, found, strict=True))
        for variant, found in record["step_ms"].items()
    }


def main(argv: list[str] | None = None) -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", choices=CASES, default=["mlp"])
    parser.add_argument("--xla", action="store_true", help="jit_compile=True")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path, help="file to which the records are added")
    args = parser.parse_args(argv)
    for model in args.models:
        jit = True if args.xla else "auto"
        found = run_isolated(epochs, model, jit, args.rounds)
        record = {"model": model, "batch": CASES[model][0], "jit": jit, "step_ms": found, **ORIGIN}
        print(model, {name: round(ratio, 2) for name, ratio in ratios(record).items()}, flush=True)
        if args.json:
            with args.json.open("a") as file:
                file.write(json.dumps(record) + "\n")


if __name__ == "__main__":
    main()

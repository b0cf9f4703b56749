"""What the methods of the papers reach on CIFAR-10 where noise costs nothing, and what they miss.

python -m benchmarks.reproductions.without_noise --public-images FILE --data-dir DIR \
    --json without_noise.json

Every method on the network and data of `accuracy`'s task cifar10-short, with noise of a thousandth
of the clip, which is next to none: what is left are the clip and what a method does not release.
The rate is chosen on held-out images.  Then B-GEP and GEP at epsilon 3, at the rates that
`accuracy` chose.  Of these two it is measured on test images, before the first step and after each
third of the steps, which part of their summed gradient is outside of the public images' subspace.
`--quick` takes 6 steps at one rate.
"""

import argparse
import dataclasses
import functools
import os
from pathlib import Path
from typing import Any

import keras
import numpy as np

from benchmarks.optimizers import OPTIMIZERS
from benchmarks.reproductions import accuracy
from benchmarks.reproductions.gep_cifar10 import SIDE, gep
from benchmarks.reproductions.mnist import Split, load_images
from benchmarks.results.records import Records
from benchmarks.results.report import origin

ORIGIN = origin(__file__)
TASK = accuracy.TASKS["cifar10-short"]
METHODS = ("b-gep", "gep", "dpsgd", "rgp", "lsg")
RESIDUAL = {"b-gep": False, "gep": True}
NO_NOISE, PRIVATE = {"noise_multiplier": 1e-3}, {"epsilon": 3.0, "delta": accuracy.DELTA}
CHOSEN = {"b-gep": 1.6, "gep": 0.8}
PARTS, WATCHED = 3, 100


class Subspace(keras.callbacks.Callback):
    """Notes what a GEP subspace misses, before the first epoch and after each.

    Args:
        images: and their labels, no training images.
    """

    def __init__(self, images: Split):
        super().__init__()
        self._images = images
        self.found: list[dict[str, Any]] = []

    def _look(self) -> None:
        import tf_lowrank_dp as tfdp

        found = tfdp.diagnostics.anchor_residuals(self.model, *self._images)["all"]
        self.found.append(dataclasses.asdict(found))
        print("   ", found, flush=True)

    def on_train_begin(self, logs: dict[str, float] | None = None) -> None:
        self._look()

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        self._look()


def train(
    public_images: np.ndarray,
    data: tuple[Split, Split],
    method: str,
    privacy: dict[str, float],
    rate: float,
    steps: int,
) -> dict[str, Any]:
    """Trains one network; returns its accuracy, its noise and what its subspace missed."""
    import tf_lowrank_dp as tfdp

    (x, y), test = data
    keras.backend.clear_session()
    keras.utils.set_random_seed(0)
    model = tfdp.make_private(TASK.network("relu"))
    schedule = keras.optimizers.schedules.PolynomialDecay(rate, steps, 0.0)
    residual = RESIDUAL.get(method)
    factory = OPTIMIZERS[method] if residual is None else gep(public_images, residual)
    optimizer = factory(
        keras.optimizers.SGD(schedule, momentum=0.9),
        l2_norm_clip=TASK.l2_norm_clip,
        centering=False,
        **privacy,
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss=loss, metrics=["accuracy"])
    watch = Subspace((test[0][:WATCHED], test[1][:WATCHED]))
    held = accuracy.HELD_OUT
    model.fit(
        x[held:],
        y[held:],
        batch_size=TASK.batch_size,
        epochs=PARTS,
        steps_per_epoch=steps // PARTS,
        verbose=0,
        callbacks=[] if residual is None else [watch],
    )
    held_out, tested = (
        model.evaluate(*split, batch_size=1000, verbose=0)[1]
        for split in ((x[:held], y[:held]), test)
    )
    return {
        "held_out": held_out,
        "test": tested,
        "noise_multiplier": optimizer.noise_multiplier,
        "subspace": watch.found,
    }


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--public-images", type=Path, required=True)
    parser.add_argument("--data-dir", default=os.environ.get("TFDS_DATA_DIR"))
    parser.add_argument("--json", type=Path, help="the record, to which runs are added")
    parser.add_argument("--quick", action="store_true", help="6 steps, one rate")
    args = parser.parse_args()
    steps, rates = (6, TASK.rates[:1]) if args.quick else (TASK.steps, TASK.rates)
    images = np.load(args.public_images)["images"]
    top, left = ((size - SIDE) // 2 for size in images.shape[1:3])
    images = (images[:, top : top + SIDE, left : left + SIDE] / 255.0).astype("float32")
    data = load_images(TASK.data, args.data_dir)
    records = Records(args.json, ORIGIN)
    print("| noise | method | rate | test accuracy | outside, at the start | outside, at the end |")
    cases = [("next to none", NO_NOISE, method, rates) for method in METHODS]
    cases += [("of epsilon 3", PRIVATE, method, (rate,)) for method, rate in CHOSEN.items()]
    for noise, privacy, method, choices in cases:
        tried = []
        for rate in choices:
            settings = {"noise": noise, "method": method, "rate": rate, "steps": steps}
            run = functools.partial(train, images, data, method, privacy, rate, steps)
            tried.append(records.get(settings, run))
        best = max(tried, key=lambda record: record["held_out"])
        seen = [look["projection_error"] for look in best["subspace"]] or [0.0]
        print(
            f"| {noise} | {method} | {best['settings']['rate']:g} | {100 * best['test']:.1f} | "
            f"{seen[0]:.2f} | {seen[-1]:.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()

"""Stable ranks and projection residuals while images are learnt: RGP's Figures 2 and 3 on CIFAR-10.

python -m benchmarks.reproductions.image_subspaces --data-dir DIR --json image_subspaces.json

The network and the training images of `accuracy`'s task cifar10-short, trained by SGD with momentum
without privacy, and by RGP of rank 8 at epsilon 3.  Before the first step and at the end of each
pass the gradient of 500 test images is looked at: its stable rank, and what carriers of rank 8 miss
of it that are its own, those of the gradient before, as in the paper, or those of the update so
far, as in the algorithm.  `--quick` takes 6 steps.
"""

import argparse
import functools
import os
from pathlib import Path
from typing import Any

import keras
from keras.optimizers.schedules import PolynomialDecay

import tf_lowrank_dp as tfdp
from benchmarks.optimizers import OPTIMIZERS
from benchmarks.reproductions import accuracy
from benchmarks.reproductions.mnist import Split, load_images
from benchmarks.results.records import Records
from benchmarks.results.report import origin

ORIGIN = origin(__file__)
TASK = accuracy.TASKS["cifar10-short"]
RATES = {"plain": 0.05, "rgp": 0.8}
STEPS, PARTS, WATCHED = 540, 3, 500


def train(data: tuple[Split, Split], method: str, steps: int) -> dict[str, Any]:
    """Trains one network; returns its accuracy and by kernel what was seen on the way."""
    (x, y), test = data
    keras.backend.clear_session()
    keras.utils.set_random_seed(0)
    model = TASK.network("relu")
    inner = keras.optimizers.SGD(PolynomialDecay(RATES[method], steps, 0.0), momentum=0.9)
    private = {"l2_norm_clip": TASK.l2_norm_clip, "epsilon": 3.0, "delta": accuracy.DELTA}
    if method != "plain":
        tfdp.make_private(model)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(OPTIMIZERS[method](inner, **private), loss=loss, metrics=["accuracy"])
    batch = tuple(part[:WATCHED] for part in test)
    monitors = {
        history: tfdp.diagnostics.SubspaceMonitor(*batch, rank=8, history=history)
        for history in ("gradients", "updates")
    }
    shown = slice(accuracy.HELD_OUT, accuracy.HELD_OUT + steps // PARTS * TASK.batch_size)
    model.fit(
        x[shown],
        y[shown],
        batch_size=TASK.batch_size,
        epochs=PARTS,
        verbose=0,
        callbacks=[*monitors.values()],
    )
    seen = monitors["gradients"].history
    return {
        "test": model.evaluate(*test, batch_size=1000, verbose=0)[1],
        "steps": seen.steps,
        "stable_rank": seen.stable_rank,
        "residual": {"own": seen.self_residual}
        | {name: each.history.historical_residual for name, each in monitors.items()},
    }


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data-dir", default=os.environ.get("TFDS_DATA_DIR"))
    parser.add_argument("--json", type=Path, help="the record, to which runs are added")
    parser.add_argument("--quick", action="store_true", help="6 steps")
    args = parser.parse_args()
    steps = 6 if args.quick else STEPS
    data = load_images(TASK.data, args.data_dir)
    records = Records(args.json, ORIGIN)
    for method in RATES:
        settings = {"method": method, "rate": RATES[method], "steps": steps}
        found = records.get(settings, functools.partial(train, data, method, steps))
        print(f"{method}, test accuracy {100 * found['test']:.1f}, at steps {found['steps']}")
        for path, ranks in found["stable_rank"].items():
            shown = [[f"{value:.2f}" for value in of[path]] for of in found["residual"].values()]
            print(path, "stable rank", [f"{rank:.1f}" for rank in ranks], "missed", *shown)


if __name__ == "__main__":
    main()

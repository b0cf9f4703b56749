"""Keras on TensorFlow: plain, and with this library's optimizers, by `fit` and its defaults."""

import argparse
import pathlib
import sys
from collections.abc import Callable

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3]))

import keras
from serve import serve

from benchmarks.models import MODELS
from benchmarks.optimizers import OPTIMIZERS, PLAIN
from benchmarks.speed.untuned import untuned_arrays


def prepare(given: argparse.Namespace) -> Callable[[], object]:
    keras.utils.set_random_seed(0)
    work = MODELS[given.model](num_examples=given.batch * given.steps)
    if given.mode != PLAIN:
        import tf_lowrank_dp as tfdp

        tfdp.make_private(work.model)
    inner = keras.optimizers.Adam(1e-3)
    optimizer = OPTIMIZERS[given.mode](inner, l2_norm_clip=1.0, noise_multiplier=1.0)
    work.model.compile(optimizer, work.loss)
    return lambda: work.model.fit(work.x, work.y, batch_size=given.batch, verbose=0)


if __name__ == "__main__":
    with untuned_arrays():
        serve(prepare)

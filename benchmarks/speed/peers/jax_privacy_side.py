"""Keras on JAX: plain, and with jax-privacy's Keras API, on the same model definitions."""

import argparse
import os
import pathlib
import sys
from collections.abc import Callable

os.environ["KERAS_BACKEND"] = "jax"
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3]))

import jax
import keras
from serve import serve

from benchmarks.models import MODELS


def prepare(given: argparse.Namespace) -> Callable[[], object]:
    keras.utils.set_random_seed(0)
    highest = "highest" if given.precision == "float32" else "default"
    jax.config.update("jax_default_matmul_precision", highest)
    if given.precision == "bfloat16":
        keras.config.set_dtype_policy("mixed_bfloat16")
    rows = given.batch * given.steps
    work = MODELS[given.model](num_examples=rows)
    if given.mode != "plain":
        from jax_privacy import keras_api

        keras_api.make_private(
            work.model,
            keras_api.DPKerasConfig(
                epsilon=1e6,  # nothing is learnt from random numbers
                delta=1e-5,
                clipping_norm=1.0,
                batch_size=given.batch,
                train_steps=2_000,
                train_size=rows,
                noise_multiplier=1.0,
                gradient_accumulation_steps=1,
            ),
        )
    work.model.compile(keras.optimizers.Adam(1e-3), work.loss)
    return lambda: work.model.fit(work.x, work.y, batch_size=given.batch, verbose=0)


def device_bytes() -> int | None:
    return (jax.local_devices()[0].memory_stats() or {}).get("peak_bytes_in_use")


if __name__ == "__main__":
    serve(prepare, device_bytes)

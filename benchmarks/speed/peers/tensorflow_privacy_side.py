"""Keras 2 on TensorFlow 2.15: plain, and TensorFlow Privacy's DPModel, fast and vectorised."""

import argparse
import os
import pathlib
import sys
import types
from collections.abc import Callable

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3]))

import keras
import tensorflow as tf
from serve import serve

# What the model definitions use of Keras 3.
keras.ops = types.SimpleNamespace(
    zeros_like=tf.zeros_like, arange=lambda stop, dtype: tf.range(stop, dtype=dtype)
)

from benchmarks.models import MODELS  # noqa: E402
from benchmarks.speed.untuned import untuned  # noqa: E402


def prepare(given: argparse.Namespace) -> Callable[[], object]:
    keras.utils.set_random_seed(0)
    work = MODELS[given.model](num_examples=given.batch * given.steps)
    model, loss = work.model, work.loss
    if given.mode != "plain":
        from tensorflow_privacy.privacy.fast_gradient_clipping import layer_registry
        from tensorflow_privacy.privacy.keras_models.dp_keras_model import DPModel

        registry = layer_registry.make_default_layer_registry() if given.mode == "fast" else None
        model = DPModel(
            l2_norm_clip=1.0,
            noise_multiplier=1.0,
            layer_registry=registry,
            inputs=model.inputs,
            outputs=model.outputs,
        )
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")
    model.compile(keras.optimizers.Adam(1e-3), loss)
    rows = tf.data.Dataset.from_tensor_slices((work.x, work.y)).shuffle(len(work.y))
    batches = untuned(rows.batch(given.batch).prefetch(tf.data.AUTOTUNE))
    return lambda: model.fit(batches, verbose=0)


if __name__ == "__main__":
    serve(prepare)

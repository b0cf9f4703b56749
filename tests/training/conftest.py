"""Tiny models and data for the tests of private training."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_lowrank_dp as tfdp

ROWS, FEATURES, CLASSES = 24, 5, 3


def _small_model(seed=0, inputs=FEATURES, outputs=CLASSES, **dense):
    keras.utils.set_random_seed(seed)
    return keras.Sequential(
        [
            keras.Input((inputs,)),
            keras.layers.Dense(4, activation="tanh", name="hidden", **dense),
            keras.layers.Dense(outputs, name="head", **dense),
        ]
    )


def _data(rows=ROWS, features=FEATURES, classes=CLASSES, seed=0):
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(rows, features)).astype("float32")
    return x, generator.integers(0, classes, rows).astype("int32")


def _private(model, optimizer="sgd", loss=None, microbatch_size=None, metrics=None, **arguments):
    """Converts and compiles; without arguments there is neither clipping nor noise."""
    if not {"epsilon", "noise_multiplier"} & set(arguments):
        arguments = {"l2_norm_clip": float("inf"), "noise_multiplier": 0.0, **arguments}
    arguments.setdefault("l2_norm_clip", 1.0)
    of_compile = {
        name: arguments.pop(name)
        for name in ("loss_weights", "weighted_metrics", "jit_compile", "steps_per_execution")
        if name in arguments
    }
    of_compile.setdefault("jit_compile", False)
    tfdp.make_private(model, microbatch_size=microbatch_size)
    model.compile(
        tfdp.DPSGDOptimizer(optimizer, **arguments),
        loss=loss or keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=metrics,
        **of_compile,
    )
    return model


def _same_batches(*arrays, batch_size=8):
    """A data set of fixed batches of equal size, the same on every pass."""
    arrays = tuple(array for array in arrays if array is not None)
    return tf.data.Dataset.from_tensor_slices(arrays).batch(batch_size, drop_remainder=True)


def _weights(model):
    return [np.array(v) for v in model.trainable_variables]


def _assert_same_weights(model, other, tolerance=1e-5):
    for v, w in zip(model.trainable_variables, other.trainable_variables, strict=True):
        np.testing.assert_allclose(v, w, rtol=tolerance, atol=tolerance, err_msg=v.path)


@pytest.fixture
def small_model():
    return _small_model


@pytest.fixture
def data():
    return _data


@pytest.fixture
def private():
    return _private


@pytest.fixture
def same_batches():
    return _same_batches


@pytest.fixture
def weights_of():
    return _weights


@pytest.fixture
def assert_same_weights():
    return _assert_same_weights


@pytest.fixture
def twins(same_batches, private, assert_same_weights):
    """Trains a private model and its standard twin on the same batches and compares them."""

    def train(build, arrays, optimizer, *, loss=None, epochs=3, batch_size=8, tolerance=1e-5, **kw):
        ordinary, own = build(), build()
        loss = loss or keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        ordinary.compile(
            optimizer(), loss=loss, loss_weights=kw.get("loss_weights"), jit_compile=False
        )
        private(own, optimizer(), loss, **kw)
        assert_same_weights(ordinary, own, 0.0)
        before = _weights(own)
        dataset = same_batches(*arrays, batch_size=batch_size)
        ordinary.fit(dataset, epochs=epochs, verbose=0, shuffle=False)
        own.fit(dataset, epochs=epochs, verbose=0, sampling="shuffle")
        assert_same_weights(ordinary, own, tolerance)
        changed = [np.any(a != b) for a, b in zip(before, _weights(own), strict=True)]
        assert any(changed)
        return ordinary, own

    return train


@pytest.fixture
def step_in_a_graph():
    """Makes the step of a classifier's loop, a graph that is traced once."""

    def make(model, sampler):
        trainer = tfdp.PrivateTrainer(model, sampler)

        def forward(batch):
            outputs = model(batch["x"], training=True)
            return keras.losses.sparse_categorical_crossentropy(batch["y"], outputs, True), ()

        @tf.function(input_signature=[sampler.as_dataset().element_spec])
        def step(batch):
            trainer.apply(trainer.gradients(forward, batch))

        return step

    return make

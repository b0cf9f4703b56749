"""Random numbers that rows share are those of a whole step, or the model is refused."""

from unittest import mock

import keras
import numpy as np
import pytest

import tf_lowrank_dp as tfdp
from tf_lowrank_dp.training import fit, start_run
from tf_lowrank_dp.training.judged_graphs import SharedDrawError

L, ROWS = keras.layers, 64


class Coin(L.Layer):
    """Stochastic depth with one coin for the batch."""

    def __init__(self):
        super().__init__()
        self.dense, self.seed = L.Dense(1, use_bias=False), keras.random.SeedGenerator(0)

    def build(self, shape):
        self.dense.build(shape)
        super().build(shape)

    def call(self, x, training=False):
        keep = keras.ops.cast(keras.random.uniform((), seed=self.seed) < 0.5, "float32")
        return self.dense(x) * keep if training else self.dense(x)


def dropout(noise_shape):
    return keras.Sequential(
        [
            keras.Input((1,)),
            L.Dropout(0.5, noise_shape=noise_shape),
            L.Dense(1, use_bias=False, kernel_initializer="zeros"),
        ]
    )


SHARED = {
    "mask": lambda: dropout((1, 1)),
    "coin": lambda: keras.Sequential([keras.Input((1,)), Coin()]),
    "crop": lambda: keras.Sequential(
        [keras.Input((6, 6, 1)), L.RandomCrop(4, 4), L.Flatten(), L.Dense(1)]
    ),
}


def private(model, microbatch_size=None, jit_compile=False):
    tfdp.make_private(model, microbatch_size=microbatch_size)
    optimizer = tfdp.DPSGDOptimizer(
        keras.optimizers.SGD(1.0), l2_norm_clip=1.0, noise_multiplier=1e-4
    )
    model.compile(optimizer, "mse", jit_compile=jit_compile)
    return model


def data(model):
    x = np.ones((ROWS, *model.input_shape[1:]), "float32")
    return x, np.full((ROWS, 1), 1e4, "float32")


@pytest.mark.parametrize("name", SHARED)
def test_random_numbers_that_rows_share_are_refused_in_microbatches(name):
    model = private(SHARED[name](), microbatch_size=16)
    before = [np.array(v) for v in model.trainable_variables]
    with pytest.raises(SharedDrawError, match="(?s)Expected.*Received.*noise_shape="):
        model.fit(*data(model), batch_size=ROWS, verbose=0)
    assert tfdp.privacy_spent(model, 1e-5) == 0.0
    for old, new in zip(before, model.trainable_variables, strict=True):
        np.testing.assert_array_equal(old, new)


def test_they_are_refused_in_custom_loops_and_after_a_change_as_well():
    model = private(dropout((1, 1)))
    x, y = data(model)
    model.fit(x, y, batch_size=ROWS, verbose=0)
    tfdp.make_private(model, microbatch_size=16)
    with pytest.raises(SharedDrawError):
        model.fit(x, y, batch_size=ROWS, verbose=0)
    sampler = tfdp.PoissonSampler(x, y, batch_size=ROWS, steps=1)
    trainer = tfdp.PrivateTrainer(model, sampler)
    [batch] = sampler
    with pytest.raises(SharedDrawError):
        trainer.gradients(
            lambda b: (keras.ops.square(model(b["x"], training=True))[:, 0], ()), batch
        )


@pytest.mark.parametrize("noise_shape", [None, (None, 1)])
@pytest.mark.parametrize("microbatch_size", [None, 16])
def test_numbers_of_each_examples_own_train_in_parts(noise_shape, microbatch_size):
    model = private(dropout(noise_shape), microbatch_size)
    model.fit(*data(model), batch_size=ROWS, verbose=0)
    assert 0.1 < float(model.trainable_variables[0][0, 0]) < 0.9


@pytest.mark.parametrize("name", ["mask", "coin"])
@pytest.mark.parametrize("jit_compile", [False, True])
def test_all_rows_of_a_step_get_the_same_shared_numbers(name, jit_compile):
    """Of 64 examples either all or none move the weight, though XLA's parts would be of 16."""
    model, seen = private(SHARED[name](), jit_compile=jit_compile), []
    [kernel] = model.trainable_variables
    note = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: seen.append(float(kernel[0, 0]))
    )
    seen.append(float(kernel[0, 0]))
    with (
        mock.patch.object(fit, "part_rows", return_value=16),
        mock.patch.object(start_run, "part_rows", return_value=16),
    ):
        model.fit(*data(model), batch_size=ROWS, epochs=12, verbose=0, callbacks=[note])
    moved = np.diff(seen)
    np.testing.assert_allclose(np.minimum(abs(moved), abs(moved - 1.0)), 0.0, atol=1e-3)


def test_a_random_crop_trains_as_compile_does_by_default():
    model = private(SHARED["crop"](), jit_compile="auto")
    model.fit(*data(model), batch_size=16, epochs=2, verbose=0)
    assert tfdp.privacy_spent(model, 1e-5) > 0.0

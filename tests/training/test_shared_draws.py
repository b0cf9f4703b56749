"""Random numbers that rows would share are each example's own: it is taken by itself."""

import keras
import numpy as np
import pytest

import tf_lowrank_dp as tfdp

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


def private(model, microbatch_size=None, jit_compile=False, gradient_method="auto"):
    tfdp.make_private(model, microbatch_size=microbatch_size)
    optimizer = tfdp.DPSGDOptimizer(
        keras.optimizers.SGD(1.0),
        l2_norm_clip=1.0,
        noise_multiplier=1e-4,
        gradient_method=gradient_method,
    )
    model.compile(optimizer, "mse", jit_compile=jit_compile)
    return model


def data(model):
    x = np.ones((ROWS, *model.input_shape[1:]), "float32")
    return x, np.full((ROWS, 1), 1e4, "float32")


@pytest.mark.parametrize("name", SHARED)
@pytest.mark.parametrize("method", ["bookkeeping", "reweight"])
def test_random_numbers_that_rows_share_are_refused_where_all_are_taken_at_once(name, method):
    model = private(SHARED[name](), gradient_method=method)
    before = [np.array(v) for v in model.trainable_variables]
    with pytest.raises(tfdp.UnsupportedModelError, match="(?s)Expected.*Received.*'auto'"):
        model.fit(*data(model), batch_size=ROWS, verbose=0)
    assert tfdp.privacy_spent(model, 1e-5) == 0.0
    for old, new in zip(before, model.trainable_variables, strict=True):
        np.testing.assert_array_equal(old, new)


def kept(model):
    """Which share of the examples a fair coin has kept, as the weight of a step tells."""
    return float(model.trainable_variables[0][0, 0])


@pytest.mark.parametrize("name", ["mask", "coin"])
@pytest.mark.parametrize("settings", [{}, {"microbatch_size": 16}, {"jit_compile": True}], ids=str)
def test_each_example_has_numbers_of_its_own_where_rows_would_share_them(name, settings):
    """Of 64 examples some are kept and some not, whatever the parts of a step are."""
    model = private(SHARED[name](), **settings)
    before = kept(model)
    with pytest.warns(UserWarning, match="one example at a time"):
        model.fit(*data(model), batch_size=ROWS, verbose=0)
    assert 0.1 < kept(model) - before < 0.9


def test_a_custom_loop_gives_each_example_its_own_as_well():
    model = private(dropout((1, 1)))
    sampler = tfdp.PoissonSampler(*data(model), batch_size=ROWS, steps=1)
    trainer = tfdp.PrivateTrainer(model, sampler)
    [batch] = sampler

    def forward(part):
        return keras.ops.square(model(part["x"], training=True)[:, 0] - 1e4), ()

    with pytest.warns(UserWarning, match="one example at a time"):
        trainer.apply(trainer.gradients(forward, batch))
    assert 0.1 < kept(model) < 0.9


@pytest.mark.parametrize("noise_shape", [None, (None, 1)])
@pytest.mark.parametrize("microbatch_size", [None, 16])
def test_numbers_of_each_examples_own_train_in_parts(noise_shape, microbatch_size):
    model = private(dropout(noise_shape), microbatch_size)
    model.fit(*data(model), batch_size=ROWS, verbose=0)
    assert 0.1 < float(model.trainable_variables[0][0, 0]) < 0.9


def test_a_random_crop_trains_as_compile_does_by_default():
    model = private(SHARED["crop"](), jit_compile="auto")
    model.fit(*data(model), batch_size=16, epochs=2, verbose=0)
    assert tfdp.privacy_spent(model, 1e-5) > 0.0

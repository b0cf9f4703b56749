"""Regularisers of a model with its own `compute_loss` count where it asks for them, as in Keras."""

import keras
import numpy as np
import pytest

import tf_lowrank_dp as tfdp

REGULARIZERS = {
    "kernel": {"kernel_regularizer": keras.regularizers.L2(0.5)},
    "activity": {"activity_regularizer": keras.regularizers.L2(0.5)},
    "both": {
        "kernel_regularizer": keras.regularizers.L1(0.5),
        "activity_regularizer": keras.regularizers.L2(0.5),
    },
    "none": {},
}


class Model(keras.Model):
    def __init__(self, **regularizers):
        super().__init__()
        self.dense = keras.layers.Dense(1, kernel_initializer="ones", **regularizers)

    def call(self, x):
        return self.dense(x)


class Ignoring(Model):
    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        return keras.ops.mean((y - y_pred) ** 2)


class OfKeras(Model):
    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        return super().compute_loss(x, y, y_pred, sample_weight, training)


class OfKerasAndMore(Model):
    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        more = 0.1 * keras.ops.mean(keras.ops.abs(y_pred))
        return super().compute_loss(x, y, y_pred, sample_weight, training) + more


class AddedUp(Model):
    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        return keras.ops.mean((y - y_pred) ** 2) + sum(self.losses)


class OneByOne(Model):
    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        loss = keras.ops.mean((y - y_pred) ** 2)
        for penalty in self.losses:
            loss += penalty
        return loss


class Scaled(Model):
    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        return keras.ops.mean((y - y_pred) ** 2) + 0.1 * sum(self.losses)


def data():
    x = np.random.default_rng(0).normal(size=(8, 2)).astype("float32")
    return x, np.zeros((8, 1), "float32")


def trained(kind, regularizers, private):
    model, optimizer = kind(**REGULARIZERS[regularizers]), keras.optimizers.SGD(0.1)
    model(data()[0])
    if private:
        tfdp.make_private(model)
        optimizer = tfdp.DPSGDOptimizer(optimizer, l2_norm_clip=np.inf, noise_multiplier=0.0)
    model.compile(optimizer, "mse", jit_compile=False)
    model.fit(*data(), batch_size=8, epochs=2, verbose=0)
    return [np.array(value) for value in model.get_weights()]


@pytest.mark.parametrize("kind", [Ignoring, OfKeras, OfKerasAndMore, AddedUp, OneByOne])
@pytest.mark.parametrize("regularizers", REGULARIZERS)
def test_steps_equal_those_of_keras(kind, regularizers):
    ordinary, private = (trained(kind, regularizers, private) for private in (False, True))
    for a, b in zip(ordinary, private, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.fixture(params=["float64", "float16", "bfloat16"])
def floatx(request):
    before = keras.config.floatx(), keras.config.dtype_policy()
    keras.config.set_floatx(request.param)
    keras.config.set_dtype_policy(request.param)
    yield request.param
    keras.config.set_floatx(before[0])
    keras.config.set_dtype_policy(before[1])


@pytest.mark.parametrize("by_hand", [False, True])
def test_regularizers_of_weights_of_another_precision_train(floatx, by_hand):
    """They ended in TensorFlow's words, in a custom loop after each release was spent."""
    layer = keras.layers.Dense(1, kernel_regularizer="l2", kernel_initializer="ones")
    model = tfdp.make_private(keras.Sequential([keras.Input((4,)), layer]))
    optimizer = tfdp.DPSGDOptimizer(
        keras.optimizers.SGD(0.5), l2_norm_clip=1e-6, noise_multiplier=1.0, delta=1e-3
    )
    model.compile(optimizer, "mse", jit_compile=False)
    x, y = np.ones((8, 4)), np.zeros((8, 1))
    if by_hand:
        sampler = tfdp.PoissonSampler(x, y, batch_size=4, steps=2)
        trainer = tfdp.PrivateTrainer(model, sampler)
        for batch in sampler:
            losses = lambda b: (keras.losses.mean_squared_error(b["y"], model(b["x"])), ())  # noqa: E731
            trainer.apply(trainer.gradients(losses, batch))
    else:
        model.fit(x, y, batch_size=4, verbose=0)
    np.testing.assert_allclose(layer.kernel, 0.99**2, rtol=1e-2)  # two steps of 0.5 * 0.02
    assert tfdp.privacy_spent(model) > 0


@pytest.mark.parametrize("regularizers", ["kernel", "activity"])
def test_penalties_that_are_scaled_are_refused_with_a_remedy(regularizers):
    with pytest.raises(tfdp.UnsupportedModelError, match="Give the regularisers their factors"):
        trained(Scaled, regularizers, private=True)

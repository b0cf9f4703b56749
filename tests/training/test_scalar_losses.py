"""Loss functions that return a mean or sum over the batch train as fast and as right as others."""

import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_lowrank_dp as tfdp

ops = keras.ops


def focal(y, p):
    p = ops.clip(p, 1e-7, 1 - 1e-7)
    hit, miss = y * (1 - p) ** 2 * ops.log(p), (1 - y) * p**2 * ops.log(1 - p)
    return ops.mean(-hit - miss)


def weighted(y, p):
    return ops.mean(ops.where(y > 0.5, 3.0, 1.0) * ops.square(y - p))


def sum_over_size(y, p):
    return ops.sum(ops.square(y - p)) / ops.cast(ops.shape(y)[0], "float32")


class Reduced(keras.losses.Loss):
    def __init__(self):
        super().__init__(reduction=None)

    def call(self, y, p):
        return ops.mean(ops.square(y - p))


MEANS = {
    "focal": focal,
    "one minus": lambda y, p: 1 - ops.mean(y * p),
    "two means": lambda y, p: ops.mean(ops.square(y - p)) + 0.3 * ops.mean(ops.abs(p)),
    "weighted": weighted,
    "by TensorFlow": lambda y, p: tf.reduce_mean(tf.square(y - p)),
    "a sum over the size": lambda y, p: (
        ops.sum(ops.square(y - p)) / ops.cast(ops.shape(y)[0], "float32")
    ),
    "a class": Reduced(),
}
OTHERS = {
    "a ratio": lambda y, p: 1 - (2 * ops.sum(y * p) + 1) / (ops.sum(y) + ops.sum(p) + 1),
    "a root": lambda y, p: ops.sqrt(ops.mean(ops.square(y - p))),
}


def _private(model, optimizer, loss):
    tfdp.make_private(model)
    optimizer = tfdp.DPSGDOptimizer(optimizer, l2_norm_clip=1e6, noise_multiplier=0.0)
    model.compile(optimizer, loss, jit_compile=False)
    return model


def trained(loss, private):
    generator = np.random.default_rng(0)
    x = generator.normal(size=(24, 4)).astype("float32")
    y = generator.integers(0, 2, (24, 1)).astype("float32")
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [keras.Input((4,)), keras.layers.Dense(3, "tanh"), keras.layers.Dense(1, "sigmoid")]
    )
    optimizer = keras.optimizers.SGD(1.0)
    if private:
        tfdp.make_private(model)
        optimizer = tfdp.DPSGDOptimizer(optimizer, l2_norm_clip=np.inf, noise_multiplier=0.0)
    model.compile(optimizer, loss, jit_compile=False)
    [value] = model.fit(x, y, batch_size=24, verbose=0).history["loss"]
    return [value, *model.get_weights()]


@pytest.mark.parametrize("name", MEANS)
def test_means_are_taken_apart(name):
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*one example at a time")
        private = trained(MEANS[name], private=True)
    for a, b in zip(trained(MEANS[name], private=False), private, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_no_mean_takes_each_example_alone_and_says_so(name):
    with pytest.warns(UserWarning, match="the mean of its values for single examples"):
        trained(OTHERS[name], private=True)


def test_a_mean_over_selected_values_is_that_of_each_example():
    """Of all that are selected, and of none where an example has none."""
    entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=None)

    def masked(y, p):
        values = entropy(tf.where(y >= 0, y, 0), p)
        return tf.reduce_mean(tf.boolean_mask(values, y >= 0))

    generator = np.random.default_rng(0)
    x = generator.normal(size=(12, 5)).astype("float32")
    y = generator.integers(0, 3, (12, 6)).astype("float32")
    gradients = []
    mean = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    for loss in (masked, mean):  # the same, where all are selected
        keras.utils.set_random_seed(0)
        model = keras.Sequential(
            [keras.Input((5,)), keras.layers.Dense(18), keras.layers.Reshape((6, 3))]
        )
        before = _private(model, keras.optimizers.SGD(1.0), loss).get_weights()
        model.fit(x, y, batch_size=12, verbose=0)
        pairs = zip(before, model.get_weights(), strict=True)
        gradients.append(np.concatenate([(b - a).ravel() for b, a in pairs]))
    np.testing.assert_allclose(*gradients, rtol=1e-4, atol=1e-6)
    y[3] = -1
    model.fit(x, y, batch_size=12, verbose=0)


@pytest.mark.parametrize("axis", [0, 1])
def test_a_mean_over_a_stack_of_values_of_each_example(axis):
    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(3)

        def call(self, x):
            return self.dense(x)

        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
            a = ops.sum(ops.square(y - y_pred), axis=-1)
            b = ops.sum(ops.abs(y_pred), axis=-1)
            return ops.mean(ops.stack([a, b], axis=axis))

    x, y, steps = np.ones((24, 5), "float32"), np.ones((24, 3), "float32"), []
    for is_private in (False, True):
        keras.utils.set_random_seed(0)
        model, optimizer = Model(), keras.optimizers.SGD(1.0)
        model(x)
        if is_private:
            tfdp.make_private(model)
            optimizer = tfdp.DPSGDOptimizer(optimizer, l2_norm_clip=np.inf, noise_multiplier=0.0)
        model.compile(optimizer, jit_compile=False)
        before = model.get_weights()[0]
        model.fit(x, y, batch_size=24, verbose=0)
        steps.append(before - model.get_weights()[0])
    np.testing.assert_allclose(*steps, rtol=1e-4)

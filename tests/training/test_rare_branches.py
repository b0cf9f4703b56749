"""What joins examples by chance, for values that random data do not have, or a little, is seen.

By how many clips a record moved the sum where it was accepted stands beside each.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_lowrank_dp as tfdp
from tf_lowrank_dp.training.state import ledger_of

L, N = keras.layers, 16


class Of(L.Layer):
    """A function as a layer."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def call(self, x):
        return self.function(x)

    def compute_output_shape(self, shape):
        return shape


def fitted(private, layer, shape=(6, 4), before=()):
    model = keras.Sequential([keras.Input(shape), *before, layer, L.Flatten(), L.Dense(2)])
    private(model, noise_multiplier=1.0)
    model.compile(model.optimizer, model.loss, jit_compile=False)
    x = np.random.default_rng(0).random((N, *shape)).astype("float32")
    model.fit(x, np.zeros(N, int), batch_size=8, verbose=0)
    return ledger_of(model).num_steps


def of_mask(x):
    return tf.reduce_sum(tf.boolean_mask(x, x[:, 0, 0] > -9), 0)


def own_rows(x):
    return tf.vectorized_map(lambda row: tf.reduce_sum(row, keepdims=True) * row, x)


def seldom(term, share=0.1):
    return lambda x: tf.cond(tf.random.uniform([]) < share, lambda: x + term(x), lambda: x)


def mixed(gather):
    """MixUp by hand, in one of ten steps."""

    def function(x):
        other = gather(x, tf.random.shuffle(tf.range(tf.shape(x)[0])))
        return tf.cond(tf.random.uniform([]) < 0.1, lambda: 0.5 * x + 0.5 * other, lambda: x)

    return function


def contrast(x):
    """Of grey images without an axis of channels, of which examples become the rows."""
    return tf.image.adjust_contrast(x, 1.5)


def correlated(x):
    """The first example as the filters."""
    filters = tf.transpose(tf.repeat(x[:1, None], 4, 0), (1, 2, 3, 0))
    return tf.nn.conv2d(x[:, None], filters, 1, "SAME")[:, 0]


def ones_of(x):
    return tf.ones([tf.shape(x)[0], 6, 1], tf.int32)


MIXING = {
    "seldom, an unknown operation": seldom(of_mask),
    "once in a hundred steps": seldom(of_mask, 0.01),
    "seldom, in random order": mixed(lambda x, order: tf.gather_nd(x, order[:, None])),  # 4
    "contrast of large values": lambda x: tf.where(x > 20.0, contrast(x), x),  # 30
    "filters for large values": lambda x: tf.where(x > 20.0, correlated(x), x),  # 23
    "a little": lambda x: x + 3e-3 * tf.math.cumulative_logsumexp(x),  # 7
    "a little, unknown": lambda x: x + 3e-5 * of_mask(x),
    "a millionth, unknown": lambda x: x + 1e-6 * of_mask(x),
}


@pytest.mark.parametrize("function", MIXING.values(), ids=MIXING)
def test_what_joins_examples_seldom_or_a_little_is_refused(private, function):
    with pytest.raises(tfdp.UnsupportedModelError, match="treat each example by itself"):
        fitted(private, Of(function))


def test_a_random_order_behind_an_unknown_operation_is_refused(private):
    """6 clips."""
    spectrum = L.Lambda(lambda x: tf.abs(tf.signal.rfft(x)), output_shape=lambda s: (s[0], 6, 3))
    with pytest.raises(tfdp.UnsupportedModelError, match="treat each example by itself"):
        fitted(private, Of(mixed(tf.gather)), before=[spectrum])


HONEST = {
    "seldom": seldom(own_rows),
    "contrast of colour images": lambda x: contrast(x[..., None])[..., 0],
    "its own elements": lambda x: x + tf.gather_nd(x, ones_of(x), batch_dims=1),
    "along its own axis": lambda x: x + tf.math.cumulative_logsumexp(x, axis=1),
    "a random order of its own": lambda x: tf.gather(x, tf.random.shuffle(tf.range(6)), axis=1),
}


@pytest.mark.parametrize("function", HONEST.values(), ids=HONEST)
def test_what_stays_within_each_example_trains(private, function):
    assert fitted(private, Of(function)) == 2


def test_a_recurrent_layer_trains_one_example_at_a_time(private):
    model = keras.Sequential([keras.Input((4, 3)), L.LSTM(2), L.Dense(2)])
    private(model, noise_multiplier=1.0, gradient_method="vectorized")
    model.fit(np.ones((N, 4, 3)), np.zeros(N, int), batch_size=8, verbose=0)
    assert ledger_of(model).num_steps == 2

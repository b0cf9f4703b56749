"""Hostile random models: what is drawn mixes rows, depends on them, or ties rows to each other."""

import keras
import tensorflow as tf

from tests.hostile.model_attacks import parts
from tests.hostile.model_attacks.case import hostile

L, ops = keras.layers, keras.ops


class Random(L.Layer):
    """`function(x, seed generator)` in training, and `x` otherwise."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.generator = keras.random.SeedGenerator(11)

    def call(self, x, training=None):
        return self.function(x, self.generator) if training else x

    def compute_output_shape(self, shape):
        return shape


def permuted(x, seed):
    order = keras.random.shuffle(ops.arange(ops.shape(x)[0]), seed=seed)
    return ops.take(x, order, axis=0)


def mixed_with_a_permutation(x, seed):
    return 0.5 * x + 0.5 * permuted(x, seed)


def rarely_mixed(x, seed):
    """One step in ten mixes."""
    rare = keras.random.uniform((), seed=seed) < 0.1
    return tf.where(rare, 0.5 * x + 0.5 * permuted(x, seed), x)


def mask_of_the_sum(x, seed):
    del seed
    total = tf.cast(tf.reduce_sum(tf.abs(x)) * 1e4, tf.int32)
    mask = tf.random.stateless_uniform(tf.shape(x), tf.stack([total, 3]))
    return x * tf.cast(mask > 0.5, x.dtype)


def rate_of_the_mean(x, seed):
    rate = ops.sigmoid(4.0 * ops.mean(x, axis=0))
    mask = keras.random.uniform(ops.shape(x), seed=seed) > rate
    return x * ops.cast(mask, x.dtype)


def noise_of_the_deviation(x, seed):
    return x + ops.std(x, axis=0) * keras.random.normal(ops.shape(x), seed=seed)


def antithetic(x, seed):
    """Each second row has the opposite noise of the row before."""
    rows = ops.shape(x)[0]
    half = keras.random.normal(((rows + 1) // 2, x.shape[-1]), seed=seed)
    pairs = ops.reshape(ops.stack([half, -half], axis=1), (-1, x.shape[-1]))
    return x + 3.0 * pairs[:rows]


def shared_by_neighbours(x, seed):
    """A second draw of row k is the first of row k + 1."""
    noise = keras.random.normal((ops.shape(x)[0] + 1, x.shape[-1]), seed=seed)
    return x + 3.0 * noise[1:] + 3.0 * noise[:-1]


def every_second_row(x):
    """A mask by position, not drawn at all."""
    odd = tf.cast(tf.range(tf.shape(x)[0]) % 2, x.dtype)
    return x * (0.5 + odd[:, None])


def decayed_by_position(x):
    position = tf.cast(tf.range(tf.shape(x)[0]), x.dtype)
    return x * tf.exp(-0.1 * position)[:, None]


def noise(name, function, why, law="others"):
    def build():
        return parts.dense(Random(function))

    return hostile(name, build, parts.numbers, "mse", why, sensitive_to=law, random=True)


def by_position(name, function, why):
    def build():
        return parts.dense(parts.Apply(function))

    return hostile(name, build, parts.numbers, "mse", why, sensitive_to="position")


def stock(name, make, why):
    def build():
        return parts.convolution(make())

    law = "others in some draw"
    return hostile(name, build, parts.images, "mse", why, sensitive_to=law, random=True)


CASES = [
    stock("stock MixUp", lambda: L.MixUp(0.5, seed=1), "images of two records are blended"),
    stock("stock MixUp, mild", lambda: L.MixUp(0.05, seed=2), "most blends are nearly one image"),
    stock("stock CutMix", lambda: L.CutMix(1.0, seed=1), "a patch comes from another record"),
    noise("mixed with a permutation", mixed_with_a_permutation, "mixup of hidden values"),
    noise("rows in another order", permuted, "a record's loss has another record's features"),
    noise("rarely mixed", rarely_mixed, "a few draws show nothing", law="others in some draw"),
    noise("mask seeded by the batch", mask_of_the_sum, "other records choose the mask"),
    noise(
        "rate of dropout from the batch",
        rate_of_the_mean,
        "other records choose the rate",
        law="others in some draw",
    ),
    noise(
        "noise of the batch's deviation",
        noise_of_the_deviation,
        "other records choose the deviation",
    ),
    noise(
        "antithetic noise",
        antithetic,
        "one more record pairs all rows behind it anew, and a row knows its pair's noise",
        law="neighbours",
    ),
    noise(
        "noise shared by neighbours",
        shared_by_neighbours,
        "rows share draws with whoever stands beside them",
        law="neighbours",
    ),
    by_position("every second row", every_second_row, "one more record shifts all behind it"),
    by_position("decay by position", decayed_by_position, "one more record shifts all behind it"),
]

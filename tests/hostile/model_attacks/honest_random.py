"""Honest random models: rows draw independently, or share what is public and fixed for the step.

A mask that all rows share is public randomness: given the mask, each example's loss depends on
that example alone, and one more record changes nobody's mask.
"""

import keras
import numpy as np
import tensorflow as tf

from tests.hostile.model_attacks import parts
from tests.hostile.model_attacks.case import honest
from tests.hostile.model_attacks.hostile_random import Random

L, ops = keras.layers, keras.ops


def noise_of_own_deviation(x, seed):
    deviation = ops.std(x, axis=-1, keepdims=True)
    return x + deviation * keras.random.normal(ops.shape(x), seed=seed)


def rate_of_own_mean(x, seed):
    rate = ops.sigmoid(ops.mean(x, axis=-1, keepdims=True))
    return x * ops.cast(keras.random.uniform(ops.shape(x), seed=seed) > rate, x.dtype)


def depth(x, seed):
    """Stochastic depth: each row keeps the branch or not."""
    keep = keras.random.uniform((ops.shape(x)[0], 1), seed=seed) > 0.3
    return x + ops.cast(keep, x.dtype) * ops.tanh(x)


def shared_scale(x, seed):
    return x * keras.random.uniform((), 0.5, 1.5, seed=seed)


def shared_permutation_of_features(x, seed):
    order = keras.random.shuffle(ops.arange(x.shape[-1]), seed=seed)
    return ops.take(x, order, axis=-1)


def mixed_features(x, seed):
    """Blends each row with its own features in another order: mixup within an example."""
    return 0.5 * x + 0.5 * shared_permutation_of_features(x, seed)


def twice(x, seed):
    """Two draws of each row, of its own."""
    first = keras.random.normal(ops.shape(x), seed=seed)
    return x + 0.5 * first + 0.5 * keras.random.normal(ops.shape(x), seed=seed)


def antithetic_features(x, seed):
    """The second half of a row's noise is the opposite of the first."""
    half = keras.random.normal((ops.shape(x)[0], x.shape[-1] // 2), seed=seed)
    return x + ops.concatenate([half, -half], axis=-1)


def blended_with_reference(x, seed):
    """Mixup with a row of public data, which each example chooses by itself."""
    public = tf.constant(np.random.default_rng(4).normal(size=(5, parts.WIDTH)), tf.float32)
    chosen = keras.random.randint((ops.shape(x)[0],), 0, 5, seed=seed)
    return 0.5 * x + 0.5 * ops.take(public, chosen, axis=0)


def noise(name, function, why):
    def build():
        return parts.dense(Random(function))

    return honest(name, build, parts.numbers, "mse", why, random=True)


def stock(name, make, why, build=parts.dense, data=parts.numbers):
    return honest(name, lambda: build(make()), data, "mse", why, random=True)


def picture(name, make, why):
    return stock(name, make, why, parts.convolution, parts.images)


def by_word(name, make, why):
    return stock(name, make, why, parts.words, parts.tokens)


CASES = [
    stock("dropout", lambda: L.Dropout(0.5, seed=1), "rows draw by themselves"),
    stock(
        "dropout with a shared mask",
        lambda: L.Dropout(0.5, noise_shape=(1, parts.WIDTH), seed=1),
        "public randomness, the same for all rows",
    ),
    stock("gaussian noise", lambda: L.GaussianNoise(0.5, seed=1), "rows draw by themselves"),
    by_word("spatial dropout", lambda: L.SpatialDropout1D(0.4, seed=1), "rows draw by themselves"),
    picture("random flips", lambda: L.RandomFlip("horizontal", seed=1), "a coin for each image"),
    picture("random brightness", lambda: L.RandomBrightness(0.3, (0, 1), seed=1), "a draw each"),
    picture("random contrast", lambda: L.RandomContrast(0.3, (0, 1), seed=1), "a draw each"),
    noise("noise of own deviation", noise_of_own_deviation, "the deviation is the row's"),
    noise("rate of dropout from the row", rate_of_own_mean, "the rate is the row's"),
    noise("stochastic depth", depth, "a coin for each row"),
    noise("one random scale for all", shared_scale, "public randomness"),
    noise("features in a random order", shared_permutation_of_features, "no rows are exchanged"),
    noise("features mixed in a random order", mixed_features, "mixed within a row"),
    noise("two draws of a layer", twice, "both are the row's"),
    noise("antithetic within a row", antithetic_features, "rows are independent"),
    noise("mixed with public rows", blended_with_reference, "public data, chosen by each row"),
]

"""Hostile custom gradients: losses are those of each example alone, gradients are not."""

import keras
import tensorflow as tf

from tests.hostile.model_attacks import parts
from tests.hostile.model_attacks.case import hostile

L = keras.layers


def backward(function):
    """The identity with a gradient of its own, as a layer."""

    @tf.custom_gradient
    def identity(x):
        return tf.identity(x), function

    return lambda: parts.dense(parts.Apply(identity), L.Dense(parts.WIDTH, activation="tanh"))


def clipped(d):
    return tf.clip_by_norm(d, 0.1)


def normalised(d):
    return d / (tf.norm(d) + 1e-3)


def centred(d):
    return d - tf.reduce_mean(d, 0, keepdims=True)


def previous_row(d):
    return tf.roll(d, 1, 0)


def strongest_half(d):
    norms = tf.norm(d, axis=1)
    least = tf.sort(norms)[tf.shape(d)[0] // 2]
    return tf.where(norms[:, None] >= least, d, 0.0)


def times_rows(d):
    return d * tf.cast(tf.shape(d)[0], d.dtype)


def clipped_if_huge(d):
    """As clipping by the joint norm does: nothing, up to a norm that random data do not reach."""
    return tf.clip_by_norm(d, 50.0)


def far_targets(generator, rows):
    x, y = parts.numbers(generator, rows)
    return x, 1000.0 * y


def gradient(name, function, why, law="others", data=parts.numbers):
    return hostile(name, backward(function), data, "mse", why, sensitive_to=law)


CASES = [
    gradient("gradient clipped by the batch's norm", clipped, "one record shrinks all others"),
    gradient("gradient over the batch's norm", normalised, "one record shrinks all others"),
    gradient("gradient centred over the batch", centred, "each record is in all gradients"),
    gradient(
        "gradient of the row before",
        previous_row,
        "a record's gradient goes through another record's weights' inputs",
    ),
    gradient("gradients of the strongest half", strongest_half, "a record displaces another"),
    gradient("gradient times the rows", times_rows, "one more record moves all", law="size"),
    gradient(
        "gradient clipped by a norm that is rarely reached",
        clipped_if_huge,
        "random data never reach it, records do",
        data=far_targets,
    ),
]

"""Hostile models that normalise an example by the others of its batch."""

import keras
import tensorflow as tf

from tests.hostile.model_attacks import parts
from tests.hostile.model_attacks.case import hostile

L, ops = keras.layers, keras.ops


def centred(x):
    return x - ops.mean(x, axis=0, keepdims=True)


def standardised(x):
    return centred(x) / (ops.std(x, axis=0, keepdims=True) + 0.1)


def whitened(x):
    covariance = ops.matmul(ops.transpose(centred(x)), centred(x)) + ops.eye(x.shape[-1])
    factor = tf.linalg.cholesky(covariance)
    return ops.transpose(tf.linalg.triangular_solve(factor, ops.transpose(centred(x))))


def ranked(x):
    """Each number's rank among those of the batch."""
    ranks = ops.argsort(ops.argsort(x, axis=0), axis=0)
    return x + 0.3 * ops.cast(ranks, x.dtype)


def centred_if_many(x):
    return tf.cond(tf.shape(x)[0] > 8, lambda: centred(x), lambda: tf.identity(x))


def attention_over_rows(x):
    scores = ops.softmax(ops.matmul(x, ops.transpose(x)), axis=-1)
    return ops.matmul(scores, x)


def behind_counts():
    return keras.Sequential(
        [
            keras.Input((parts.FEATURES,), dtype="int32"),
            L.Lambda(lambda x: centred(ops.log(ops.cast(x, "float32") - 1.0))),
            L.Dense(parts.WIDTH, activation="tanh"),
            L.Dense(parts.OUTPUTS),
        ]
    )


def with_layer(function, **kwargs):
    return lambda: parts.dense(parts.Apply(function), **kwargs)


def gated(function, **kwargs):
    return lambda: parts.dense(parts.Gated(function, **kwargs))


def beside(name, build, why, data=parts.numbers, **kwargs):
    return hostile(name, build, data, "mse", why, sensitive_to="others", **kwargs)


ZEROS, TINY = {"head": "zeros"}, {"initial": 1e-6}
SHUT = {"demonstrate": parts.open_gates}

CASES = [
    beside(
        "batch norm behind a zero head",
        with_layer(standardised, **ZEROS),
        "at first the head hides the statistics of the batch",
        demonstrate=parts.train_head,
    ),
    beside("centring behind ReZero", gated(centred), "the gate opens in training", **SHUT),
    beside(
        "centring behind LayerScale",
        gated(lambda x: 5.0 * centred(x), **TINY),
        "a scale of 1e-6 is below any tolerance, and grows",
        **SHUT,
    ),
    beside(
        "centring without gradient behind ReZero",
        gated(lambda x: x - ops.stop_gradient(ops.mean(x, axis=0))),
        "the mean mixes whether or not it is differentiated",
        **SHUT,
    ),
    beside(
        "gate raised by a callback",
        gated(centred, trainable_gate=False),
        "the gate is no trained weight, and a callback assigns it between epochs",
        **SHUT,
    ),
    beside(
        "attention over the rows behind ReZero",
        gated(attention_over_rows),
        "each example attends to the others of its batch",
        **SHUT,
    ),
    beside(
        "division by the batch's maximum",
        with_layer(lambda x: x / (1.0 + ops.max(ops.abs(x)))),
        "one large record shrinks all others",
    ),
    beside(
        "division by the batch's largest record, far above its floor",
        with_layer(lambda x: x / ops.maximum(5.0, ops.max(ops.abs(x))), first=None),
        "nothing is seen of it until a feature is larger than those of random data",
        data=parts.large,
    ),
    beside(
        "log of counts, centred by the batch",
        behind_counts,
        "integers 0 and 1 give NaN, which compares with nothing",
        data=parts.counts,
    ),
    beside(
        "whitening by the batch",
        with_layer(whitened),
        "the covariance is that of the batch",
    ),
    beside(
        "clipped at the batch's mean plus four",
        with_layer(lambda x: ops.minimum(x, 4.0 + ops.mean(x, axis=0)), first=None),
        "random numbers in [0, 1) never reach the bound, records do",
        data=parts.large,
    ),
    hostile(
        "centring of batches above eight",
        with_layer(centred_if_many),
        parts.numbers,
        "mse",
        "a branch that a few random rows never take",
        sensitive_to="size",
    ),
    beside("rank in the batch", with_layer(ranked), "a rank counts the other examples"),
    beside(
        "softmax over the rows",
        with_layer(lambda x: ops.softmax(x, axis=0)),
        "the wrong axis shares one unit of mass among the examples",
    ),
    beside(
        "distance to the first row",
        with_layer(lambda x: x - 0.5 * x[:1]),
        "all depend on whoever comes first",
    ),
]

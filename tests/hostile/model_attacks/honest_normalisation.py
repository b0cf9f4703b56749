"""Honest models that normalise an example by itself, or by constants."""

import keras
import numpy as np
import tensorflow as tf

from tests.hostile.model_attacks import parts
from tests.hostile.model_attacks.case import honest

L, ops = keras.layers, keras.ops


def centred(x):
    return x - ops.mean(x, axis=-1, keepdims=True)


def standardised(x):
    return centred(x) / (ops.std(x, axis=-1, keepdims=True) + 0.1)


def instance_norm(x):
    """Over the positions `(b, 6, 4)` of each example."""
    return (x - ops.mean(x, axis=1, keepdims=True)) / (ops.std(x, axis=1, keepdims=True) + 0.1)


def over_own_maximum(x):
    return x / (1.0 + ops.max(ops.abs(x), axis=-1, keepdims=True))


def ranked(x):
    return x + 0.3 * ops.cast(ops.argsort(ops.argsort(x, axis=-1), axis=-1), x.dtype)


def attention_over_positions(x):
    scores = ops.softmax(ops.matmul(x, ops.transpose(x, (0, 2, 1))), axis=-1)
    return ops.matmul(scores, x)


def whitened(x):
    """By the moments of each example's own positions."""
    moments = ops.matmul(ops.transpose(x, (0, 2, 1)), x) + ops.eye(x.shape[-1])
    factor = tf.linalg.cholesky(moments)
    solved = tf.linalg.triangular_solve(factor, ops.transpose(x, (0, 2, 1)))
    return ops.transpose(solved, (0, 2, 1))


def of_counts():
    def proportions(x):
        logs = ops.log(ops.cast(x, "float32") - 1.0)
        return logs - ops.mean(logs, axis=-1, keepdims=True)

    return keras.Sequential(
        [
            keras.Input((parts.FEATURES,), dtype="int32"),
            L.Lambda(proportions),
            L.Dense(parts.WIDTH, activation="tanh"),
            L.Dense(parts.OUTPUTS),
        ]
    )


def on_positions(*layers):
    def build():
        head = [L.Flatten(), L.Dense(parts.OUTPUTS)]
        return keras.Sequential(
            [keras.Input((parts.LENGTH, parts.WIDTH)), *(make() for make in layers), *head]
        )

    return build


def with_layer(make, **kwargs):
    return lambda: parts.dense(make(), **kwargs)


def function(f, **kwargs):
    return with_layer(lambda: parts.Apply(f), **kwargs)


def itself(name, build, why, data=parts.numbers, **kwargs):
    return honest(name, build, data, "mse", why, **kwargs)


def frozen_batch_normalization():
    layer = L.BatchNormalization(trainable=False)
    layer.build((None, parts.WIDTH))
    layer.moving_mean.assign(np.linspace(-0.5, 0.5, parts.WIDTH))
    layer.moving_variance.assign(np.linspace(0.5, 2.0, parts.WIDTH))
    return layer


def reference_whitening():
    generator = np.random.default_rng(2)
    matrix = tf.constant(generator.normal(size=(parts.WIDTH, parts.WIDTH)), tf.float32)
    return parts.Apply(lambda x: ops.matmul(x, matrix))


OPEN = {"demonstrate": parts.open_gates}

CASES = [
    itself(
        "layer norm by hand behind a zero head",
        function(standardised, head="zeros"),
        "statistics are those of one example's features",
        demonstrate=parts.train_head,
    ),
    itself("stock layer norm", with_layer(L.LayerNormalization), "over features"),
    itself("stock group norm", with_layer(lambda: L.GroupNormalization(2)), "over features"),
    itself("stock unit norm", with_layer(L.UnitNormalization), "over features"),
    itself(
        "own centring behind ReZero",
        with_layer(lambda: parts.Gated(centred)),
        "the mean is over one example's features",
        **OPEN,
    ),
    itself(
        "own centring behind LayerScale",
        with_layer(lambda: parts.Gated(centred, initial=1e-6)),
        "the mean is over one example's features",
        **OPEN,
    ),
    itself(
        "attention over positions behind ReZero",
        on_positions(lambda: parts.Gated(attention_over_positions)),
        "each position attends to those of its own example",
        data=parts.sequences,
        **OPEN,
    ),
    itself(
        "instance norm by hand",
        on_positions(lambda: L.Dense(parts.WIDTH), lambda: parts.Apply(instance_norm)),
        "statistics are over one example's positions",
        data=parts.sequences,
    ),
    itself(
        "whitening by own positions",
        on_positions(lambda: L.Dense(parts.WIDTH), lambda: parts.Apply(whitened)),
        "moments are those of one example",
        data=parts.sequences,
    ),
    itself("division by own maximum", function(over_own_maximum), "the maximum is the example's"),
    itself("log of own counts", of_counts, "NaN on 0 and 1, but not on the data", parts.counts),
    itself(
        "clipped at own mean plus four",
        function(lambda x: ops.minimum(x, 4.0 + ops.mean(x, axis=-1, keepdims=True)), first=None),
        "the bound is the example's",
        data=parts.large,
    ),
    itself("rank among own features", function(ranked), "ranks count the example's features"),
    itself("softmax over features", function(lambda x: ops.softmax(x, axis=-1)), "the right axis"),
    itself("distance to the first feature", function(lambda x: x - 0.5 * x[:, :1]), "own feature"),
    itself(
        "frozen batch normalisation",
        with_layer(frozen_batch_normalization),
        "stored averages are constants while it is frozen",
    ),
    itself("whitening by constants", with_layer(reference_whitening), "a public matrix"),
]

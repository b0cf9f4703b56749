"""Honest models with constants, tables and seeds where hostile ones keep state; and gradients.

Custom gradients are here as well: reversal, straight-through and clipping of each row.
"""

import keras
import numpy as np
import tensorflow as tf

from tests.hostile.model_attacks import parts
from tests.hostile.model_attacks.case import honest

L, ops = keras.layers, keras.ops


class Holder:
    """A plain object, which Keras does not look into."""

    def __init__(self, value):
        self.value = value


class MinusConstant(L.Layer):
    """`x` minus what a helper object holds, which nothing changes."""

    def __init__(self, value):
        super().__init__()
        self.holder = Holder(value)

    def call(self, x):
        return x - 0.5 * ops.convert_to_tensor(self.holder.value)


class MinusWeight(L.Layer):
    """Subtracts a weight that is not trained, in place of a moving average."""

    def build(self, shape):
        self.average = self.add_weight((shape[-1],), "ones", trainable=False)

    def call(self, x):
        return x - 0.5 * self.average


class ListOfOwn(L.Layer):
    """Python lists that live for one call."""

    def call(self, x):
        found = []
        for step in range(3):
            found.append(ops.tanh(x * (step + 1.0)))
        return sum(found) / len(found)


class ScaledLoss(keras.losses.Loss):
    """A loss with a constant in a variable."""

    def __init__(self):
        super().__init__()
        self.scale = tf.Variable(2.0)

    def call(self, y_true, y_pred):
        return self.scale * ops.mean(ops.square(y_true - y_pred), axis=-1)


def ones():
    return np.linspace(0.0, 1.0, parts.WIDTH).astype("float32")


def closure():
    average = tf.Variable(ones())
    return parts.dense(L.Lambda(lambda x: x - 0.5 * average))


def branch_on_size():
    """Both branches of a condition on the batch's size give the same function of each row."""

    def scaled(x):
        many = tf.shape(x)[0] > 8
        return tf.cond(many, lambda: x * (1.0 + tf.tanh(x)), lambda: x + x * tf.tanh(x))

    return parts.dense(parts.Apply(scaled))


def read_only_bank():
    bank = tf.Variable(np.random.default_rng(5).normal(size=(4, parts.WIDTH)), dtype=tf.float32)

    def look_up(x):
        return x + tf.matmul(tf.nn.softmax(tf.matmul(x, bank, transpose_b=True)), bank)

    return parts.dense(parts.Apply(look_up))


def table_of_frequencies():
    """Word frequencies of a public corpus, in a table."""
    keys = tf.range(parts.VOCABULARY, dtype=tf.int64)
    values = tf.linspace(0.1, 1.0, parts.VOCABULARY)
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, values), 0.0)
    ids = keras.Input((parts.LENGTH,), dtype="int32")
    x = L.Embedding(parts.VOCABULARY, parts.WIDTH)(ids)
    weights = L.Lambda(lambda i: table.lookup(tf.cast(i, tf.int64)), output_shape=(parts.LENGTH,))(
        ids
    )
    return keras.Model(ids, L.Dense(parts.OUTPUTS)(L.Dot(axes=1)([weights, x])))


def backward(function):
    """The identity with a gradient of its own, as a layer."""

    @tf.custom_gradient
    def identity(x):
        return tf.identity(x), function

    return lambda: parts.dense(parts.Apply(identity), L.Dense(parts.WIDTH, activation="tanh"))


@tf.custom_gradient
def swish(x):
    gate = tf.sigmoid(x)
    return x * gate, lambda d: d * gate * (1.0 + x * (1.0 - gate))


@tf.custom_gradient
def rounded(x):
    """Straight-through."""
    return tf.round(4.0 * x) / 4.0, lambda d: d


def rounded_by_stopping(x):
    return x + ops.stop_gradient(ops.sign(x) - x)


def with_layer(make):
    return lambda: parts.dense(make())


def function(f):
    return lambda: parts.dense(parts.Apply(f), L.Dense(parts.WIDTH, activation="tanh"))


def kept(name, build, why, data=parts.numbers, loss="mse", **kwargs):
    return honest(name, build, data, loss, why, **kwargs)


CASES = [
    kept("constant in a helper", with_layer(lambda: MinusConstant(ones())), "nothing is written"),
    kept(
        "keras.Variable in a helper, read only",
        with_layer(lambda: MinusConstant(keras.Variable(ones()))),
        "nothing is written",
    ),
    kept(
        "tf.Variable in a helper, read only",
        with_layer(lambda: MinusConstant(tf.Variable(ones()))),
        "nothing is written",
    ),
    kept("tf.Variable in a Lambda, read only", closure, "nothing is written"),
    kept("weight that is not trained", with_layer(MinusWeight), "nothing is written"),
    kept("branch on the batch's size", branch_on_size, "both branches are the same function"),
    kept("memory bank, read only", read_only_bank, "public rows"),
    kept("table of frequencies", table_of_frequencies, "a table that is fixed", parts.tokens),
    kept("lists of one call", with_layer(ListOfOwn), "lists are gone after the call"),
    kept(
        "run eagerly",
        with_layer(ListOfOwn),
        "eager or not, nothing is kept",
        compile_arguments={"run_eagerly": True},
    ),
    kept("loss with a constant", parts.dense, "the scale is never assigned", loss=ScaledLoss),
    kept("gradient reversal", backward(lambda d: -0.5 * d), "each row's own gradient"),
    kept(
        "gradient clipped by row",
        backward(lambda d: tf.clip_by_norm(d, 0.1, axes=[1])),
        "the norm is the row's",
    ),
    kept(
        "gradient over the row's norm",
        backward(lambda d: d / (tf.norm(d, axis=1, keepdims=True) + 1e-3)),
        "the norm is the row's",
    ),
    kept(
        "gradient centred over features",
        backward(lambda d: d - tf.reduce_mean(d, 1, keepdims=True)),
        "the mean is the row's",
    ),
    kept("swish with a gradient by hand", function(swish), "elementwise"),
    kept("straight-through rounding", function(rounded), "elementwise"),
    kept("straight-through signs", function(rounded_by_stopping), "elementwise"),
]

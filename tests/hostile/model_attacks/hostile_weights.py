"""Hostile models that use a weight outside of its layer, or by the others of the batch.

Those of the first kind mix nothing.  What layers record is not all of the gradient, so that they
would train wrongly: they take one example at a time, or are refused with a registered layer as the
remedy.
"""

import keras
import tensorflow as tf

from tests.hostile.model_attacks import parts
from tests.hostile.model_attacks.case import hostile

L, ops = keras.layers, keras.ops


class Parent(L.Layer):
    """Has a Dense layer of its own; `function(x, dense)` uses it."""

    def __init__(self, function):
        super().__init__()
        self.function, self.dense = function, L.Dense(parts.WIDTH)

    def build(self, shape):
        self.dense.build(shape)

    def call(self, x):
        return self.function(x, self.dense)


class RowsOfATable(L.Layer):
    """An embedding, and rows of its table that it gathers by itself."""

    def __init__(self):
        super().__init__()
        self.table = L.Embedding(parts.VOCABULARY, parts.WIDTH)

    def build(self, shape):
        self.table.build()

    def call(self, ids):
        return self.table(ids) + tf.gather(self.table.embeddings, (ids + 1) % parts.VOCABULARY)


class PenaltyOfAnother(L.Layer):
    """A loss of each example that uses the kernel of a layer around it."""

    def __init__(self, dense):
        super().__init__()
        self.of = lambda: dense.kernel

    def call(self, x):
        self.add_loss(ops.sum(ops.square(ops.matmul(x, ops.transpose(self.of()))), axis=-1))
        return x


class Experts(L.Layer):
    """Two experts with room for a third of the batch each; who comes too late passes through."""

    def build(self, shape):
        self.router = self.add_weight((shape[-1], 2), name="router")
        self.experts = self.add_weight((2, shape[-1], shape[-1]), name="experts")

    def call(self, x):
        gates = ops.softmax(ops.matmul(x, self.router))
        chosen = tf.one_hot(tf.argmax(gates, 1), 2)
        room = tf.cast(tf.shape(x)[0] // 3, x.dtype)
        gates = gates * chosen * tf.cast(tf.cumsum(chosen) <= room, x.dtype)
        return x + tf.einsum("bi,eio,be->bo", x, self.experts, gates)


class KernelOfTheBatch(L.Layer):
    """A kernel to which a shut gate adds second moments of the batch."""

    def build(self, shape):
        self.kernel = self.add_weight((shape[-1], parts.WIDTH), name="kernel")
        self.gate = self.add_weight((), initializer="zeros", name="gate")

    def call(self, x):
        moments = ops.matmul(ops.transpose(x), x)
        return ops.matmul(x, self.kernel + self.gate * moments)


def borrowed(x, dense):
    return dense(x) + ops.matmul(ops.tanh(x), dense.kernel)


def transposed(x, dense):
    return ops.matmul(ops.tanh(dense(x)), ops.transpose(dense.kernel))


def scaled_by_norm(x, dense):
    """Weight normalisation from outside."""
    return dense(x) / ops.norm(dense.kernel)


def row_of_kernel(x, dense):
    """Adds a row of the kernel that each example chooses."""
    return dense(x) + ops.take(dense.kernel, ops.argmax(x, axis=-1), axis=0)


def autoencoder():
    """A functional model whose Lambda reads the encoder's kernel."""
    inputs = keras.Input((parts.FEATURES,))
    encoder = L.Dense(parts.WIDTH, activation="tanh")
    decoded = L.Lambda(
        lambda x: ops.matmul(x, ops.transpose(encoder.kernel)), output_shape=(parts.FEATURES,)
    )(encoder(inputs))
    return keras.Model(inputs, L.Dense(parts.OUTPUTS)(decoded))


def table_with_gather():
    ids = keras.Input((parts.LENGTH,), dtype="int32")
    x = L.GlobalAveragePooling1D()(RowsOfATable()(ids))
    return keras.Model(ids, L.Dense(parts.OUTPUTS)(x))


def with_penalty():
    dense = L.Dense(parts.WIDTH)
    return parts.dense(dense, PenaltyOfAnother(dense))


def open_kernel_gate(model):
    for layer in model.layers:
        if isinstance(layer, KernelOfTheBatch):
            layer.gate.assign(1.0)


def outside(name, build, why, data=parts.numbers, **kwargs):
    return hostile(name, build, data, "mse", why, sensitive_to="weights outside", **kwargs)


def mixing(name, make, why, **kwargs):
    def build():
        return parts.dense(make())

    return hostile(name, build, parts.numbers, "mse", why, sensitive_to="others", **kwargs)


def parent(function, **kwargs):
    return lambda: parts.dense(Parent(function), **kwargs)


CASES = [
    outside(
        "borrowed kernel behind a zero head",
        parent(borrowed, head="zeros"),
        "all gradients of the kernel are zero until the head has moved",
        demonstrate=parts.train_head,
    ),
    outside("kernel tied by transposition", parent(transposed), "a parent uses its child's"),
    outside("decoder in a Lambda", autoencoder, "a Lambda uses another layer's kernel"),
    outside("divided by the norm of a kernel", parent(scaled_by_norm), "a part has no site"),
    outside("a row of a kernel", parent(row_of_kernel), "a lookup that no layer records"),
    outside(
        "rows of a child's table",
        table_with_gather,
        "a lookup that no layer records",
        data=parts.tokens,
    ),
    outside("penalty with another's kernel", with_penalty, "an added loss reads a kernel"),
    mixing("experts with room for a third", Experts, "a record takes the place of another"),
    mixing(
        "kernel of the batch behind a gate",
        KernelOfTheBatch,
        "the gate opens in training",
        demonstrate=open_kernel_gate,
    ),
]

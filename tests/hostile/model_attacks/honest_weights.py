"""Honest models that use weights in unusual ways, within their layers and example by example."""

import keras
import tensorflow as tf

from tests.hostile.model_attacks import parts
from tests.hostile.model_attacks.case import honest

L, ops = keras.layers, keras.ops


class Own(L.Layer):
    """`function(x, kernel)` with a square kernel of its own."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def build(self, shape):
        self.kernel = self.add_weight((shape[-1], shape[-1]), name="kernel")

    def call(self, x):
        return self.function(x, self.kernel)


class OwnTable(L.Layer):
    """Gathers rows of its own table, twice."""

    def build(self, shape):
        self.table = self.add_weight((parts.VOCABULARY, parts.WIDTH), "uniform", name="table")

    def call(self, ids):
        return ops.take(self.table, ids, axis=0) + tf.gather(
            self.table, (ids + 1) % parts.VOCABULARY
        )


class SoftExperts(L.Layer):
    """Two experts, both used by each example, in the shares that it chooses."""

    def build(self, shape):
        self.router = self.add_weight((shape[-1], 2), name="router")
        self.experts = self.add_weight((2, shape[-1], shape[-1]), name="experts")

    def call(self, x):
        gates = ops.softmax(ops.matmul(x, self.router))
        return x + ops.einsum("bi,eio,be->bo", x, self.experts, gates)


class HardExperts(SoftExperts):
    """Each example takes its best expert, whoever else does."""

    def call(self, x):
        gates = ops.softmax(ops.matmul(x, self.router))
        gates = gates * ops.one_hot(ops.argmax(gates, axis=1), 2)
        return x + ops.einsum("bi,eio,be->bo", x, self.experts, gates)


class KernelOfEach(L.Layer):
    """A kernel to which a gate adds each example's own second moments."""

    def build(self, shape):
        self.kernel = self.add_weight((shape[-1], shape[-1]), name="kernel")
        self.gate = self.add_weight((), initializer="zeros", name="gate")

    def call(self, x):
        moments = x[:, :, None] * x[:, None, :]
        return ops.einsum("bi,bio->bo", x, self.kernel + self.gate * moments)


class FrozenKernel(L.Layer):
    """Uses the kernel of a frozen child outside of it."""

    def __init__(self):
        super().__init__()
        self.dense = L.Dense(parts.WIDTH, trainable=False)

    def build(self, shape):
        self.dense.build(shape)

    def call(self, x):
        return self.dense(x) + ops.matmul(ops.tanh(x), self.dense.kernel)


def tied(x, kernel):
    """An autoencoder in one layer."""
    return ops.matmul(ops.tanh(ops.matmul(x, kernel)), ops.transpose(kernel))


def twice(x, kernel):
    return ops.matmul(ops.tanh(ops.matmul(x, kernel)), kernel)


def normalised(x, kernel):
    return ops.matmul(x, kernel / (ops.norm(kernel, axis=0) + 1e-3))


def symmetric(x, kernel):
    return ops.matmul(x, kernel + ops.transpose(kernel))


def row_of_kernel(x, kernel):
    return ops.matmul(x, kernel) + ops.take(kernel, ops.argmax(x, axis=-1), axis=0)


def called_twice():
    shared = L.Dense(parts.WIDTH, activation="tanh")
    return parts.dense(shared, shared)


def siamese():
    """One encoder for both halves of a record."""
    inputs = keras.Input((parts.FEATURES,))
    encoder = L.Dense(parts.WIDTH, activation="tanh")
    left = encoder(L.Lambda(lambda x: x[:, :3])(inputs))
    right = encoder(L.Lambda(lambda x: x[:, 3:])(inputs))
    return keras.Model(inputs, L.Dense(parts.OUTPUTS)(L.Subtract()([left, right])))


def shared_table():
    """One table for two inputs of a record, of which the second is shifted."""
    ids = keras.Input((parts.LENGTH,), dtype="int32")
    table = L.Embedding(parts.VOCABULARY, parts.WIDTH)
    x = L.Add()([table(ids), table(L.Lambda(lambda i: (i + 1) % parts.VOCABULARY)(ids))])
    return keras.Model(ids, L.Dense(parts.OUTPUTS)(L.GlobalAveragePooling1D()(x)))


def own_table():
    ids = keras.Input((parts.LENGTH,), dtype="int32")
    x = L.GlobalAveragePooling1D()(OwnTable()(ids))
    return keras.Model(ids, L.Dense(parts.OUTPUTS)(x))


def constrained():
    constraint = keras.constraints.UnitNorm(axis=0)
    return parts.dense(L.Dense(parts.WIDTH, kernel_constraint=constraint))


def shared_between_models():
    """A nested model called twice."""
    inner = keras.Sequential([keras.Input((parts.WIDTH,)), L.Dense(parts.WIDTH, "tanh")])
    return parts.dense(inner, inner)


def with_layer(make, **kwargs):
    return lambda: parts.dense(make(), **kwargs)


def own(name, build, why, data=parts.numbers, **kwargs):
    return honest(name, build, data, "mse", why, **kwargs)


def in_layer(name, function, why):
    return own(name, with_layer(lambda: Own(function)), why)


CASES = [
    own("zero head", lambda: parts.dense(head="zeros"), "ordinary", demonstrate=parts.train_head),
    own("layer called twice", called_twice, "both calls are recorded"),
    own("model called twice", shared_between_models, "both calls are recorded"),
    own("one encoder for two halves", siamese, "both halves are one record's"),
    own("one table for two inputs", shared_table, "both inputs are one record's", parts.tokens),
    own("table of a layer's own, gathered twice", own_table, "in its layer", parts.tokens),
    in_layer("tied by transposition in one layer", tied, "in its layer"),
    in_layer("kernel used twice in one layer", twice, "in its layer"),
    in_layer("weight normalisation in one layer", normalised, "in its layer"),
    in_layer("symmetric kernel", symmetric, "in its layer"),
    in_layer("row of the layer's own kernel", row_of_kernel, "in its layer"),
    own("experts in shares", with_layer(SoftExperts), "no capacity, so nobody displaces another"),
    own("best expert without capacity", with_layer(HardExperts), "nobody displaces another"),
    own("kernel of each example", with_layer(KernelOfEach), "moments are the example's"),
    own("frozen kernel outside of its layer", with_layer(FrozenKernel), "it has no gradient"),
    own("constrained kernel", constrained, "a function of public weights"),
]

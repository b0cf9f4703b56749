"""Rows of the contract list for users' own layers, whose weights no capture knows."""

import keras
import tensorflow as tf

from tests.contracts.case import LayerCase as _case

L, ops = keras.layers, keras.ops

SEQUENCE = (6, 5)


class Own(L.Layer):
    """A layer with weights of these shapes, and a function from input and weights to its output."""

    def __init__(self, function, *shapes):
        super().__init__()
        self.function, self.shapes = function, shapes

    def build(self, shape):
        self.own = [self.add_weight(shape=s, initializer="glorot_normal") for s in self.shapes]

    def call(self, x):
        return self.function(x, *self.own)


class Child(L.Layer):
    """A layer with a child and a weight."""

    def __init__(self, child, function, shape):
        super().__init__()
        self.child, self.function, self.shape = child, function, shape

    def build(self, shape):
        self.own = self.add_weight(shape=self.shape, initializer="glorot_normal")

    def call(self, x):
        return self.function(x, self.child, self.own)


class Positions(L.Layer):
    """Adds rows of a table that all examples share, without an axis of them."""

    def __init__(self, change=lambda rows: rows, child=None):
        super().__init__()
        self.table, self.change, self.child = L.Embedding(6, 5), change, child

    def call(self, x):
        rows = self.change(self.table(ops.arange(0, ops.shape(x)[1])))
        return x + (rows if self.child is None else self.child(rows))


def _heads(x, w, o):
    return ops.einsum("bhtk,hkd->btd", ops.tanh(ops.einsum("btd,dhk->bhtk", x, w)), o)


def _token(repeat):
    def with_token(x, child, token):
        return ops.concatenate([repeat(token, ops.shape(x)[0]), child(x)], 1)

    return lambda: Child(L.Dense(5), with_token, (1, 1, 5))


def _queries(x, child, q):
    return child(ops.tile(q, (ops.shape(x)[0], 1, 1)), x)


def _projected_queries(x, child, q):
    return x + ops.mean(child(q), 1, keepdims=True)


def _scaled(x, g, t):
    x = (x * ops.tanh(g) - g) / (1.0 + ops.square(t))
    return ops.where(x > 0.0, x, g * t) + t / (2.0 + ops.square(x))


def _masked(x, w):
    """With a maximum, for which there is no rule, and a square matrix that is no input."""
    mask = ops.convert_to_tensor([[float(i >= j) for j in range(6)] for i in range(6)])
    return ops.matmul(mask, ops.maximum(x, w))


def _own(function, *shapes):
    return lambda: Own(function, *shapes)


# Name, layer, input shape, and whether the operations are known.
_ROWS = [
    ("matmul", _own(lambda x, w, b: ops.tanh(ops.matmul(x, w) + b), (5, 4), (4,)), SEQUENCE),
    ("matmul_large", _own(lambda x, w: ops.matmul(x, w), (30, 40)), (4, 30)),
    ("matmul_rows", _own(lambda x, w, b: tf.nn.bias_add(x @ w, b), (5, 4), (4,)), (5,)),
    ("matmul_transposed", _own(lambda x, w: tf.matmul(x, w, transpose_b=True), (4, 5)), SEQUENCE),
    ("matmul_transpose", _own(lambda x, w: ops.matmul(x, ops.transpose(w)), (4, 5)), SEQUENCE),
    ("matmul_left", _own(lambda x, w: ops.matmul(w, x), (4, 6)), SEQUENCE),
    ("matmul_twice", _own(lambda x, w: ops.tanh(x @ w) @ w, (5, 5)), SEQUENCE),
    ("tensordot", _own(lambda x, w: ops.tensordot(x, w, 1), (5, 2, 3)), SEQUENCE),
    ("einsum", _own(_heads, (5, 2, 3), (2, 3, 5)), SEQUENCE),
    ("scale", _own(_scaled, (5,), ()), SEQUENCE),
    ("sliced", _own(lambda x, w: ops.tanh(x @ w[:, :3]) * w[0, 3], (5, 4)), SEQUENCE),
    ("normed", _own(lambda x, w: x @ (w / ops.norm(w, axis=0)), (5, 4)), SEQUENCE),
    ("product", _own(lambda x, u, v: x @ (ops.tanh(u @ v) + v[:1]), (5, 2), (2, 4)), SEQUENCE),
    ("convolution", _own(lambda x, w: ops.conv(x, w, 1, "same"), (2, 5, 4)), SEQUENCE),
    ("convolution_2d", _own(lambda x, w: ops.conv(x, w, 2), (2, 2, 3, 4)), (7, 6, 3)),
    ("token_tile", _token(lambda c, b: ops.tile(c, (b, 1, 1))), SEQUENCE),
    ("token_repeat", _token(lambda c, b: ops.repeat(c, b, axis=0)), SEQUENCE),
    ("token_broadcast", _token(lambda c, b: tf.broadcast_to(c, [b, 1, 5])), SEQUENCE),
    ("queries", lambda: Child(L.MultiHeadAttention(2, 3), _queries, (1, 3, 5)), SEQUENCE),
    ("projected_queries", lambda: Child(L.Dense(5), _projected_queries, (1, 3, 5)), SEQUENCE),
    ("positions", Positions, SEQUENCE),
    ("positions_expanded", lambda: Positions(lambda r: ops.expand_dims(r, 0)), SEQUENCE),
    ("positions_softmax", lambda: Positions(ops.softmax), SEQUENCE),
    ("positions_projected", lambda: Positions(child=L.Dense(5)), SEQUENCE),
]
OPERATION_CASES = [
    _case(f"own_{name}", make, shape, fallback=not name.startswith("positions"))
    for name, make, shape in _ROWS
]
NO_RULE_CASES = [_case("fallback_no_rule", _own(_masked, (5,)), SEQUENCE, fallback=True)]

"""Random models of honest blocks, each with a twin in which one operation mixes examples.

A seed gives the kind of input, the blocks, the place of the planted operation, the operation and
what hides it.  Both twins have the same blocks and weights: only the axis of the operation differs.
"""

import keras
import numpy as np
import tensorflow as tf

from tests.hostile.model_attacks.case import ModelCase
from tests.hostile.model_attacks.generated_mixing import HIDES, MIXES, Planted
from tests.hostile.model_attacks.stock_pieces import CLASSES, VOCABULARY, Function, assign

L = keras.layers
# Of seed 40 what is planted is not seen by the oracle.
SEEDS = [seed for seed in range(54) if seed != 40]
TIME, WIDTH = 4, 4
KINDS = ("flat", "sequence", "tokens", "image")
SHAPES = {"flat": (6,), "sequence": (TIME, 5), "tokens": (TIME,), "image": (8, 8, 1)}


class ResidualGate(L.Layer):
    """`x + gate * dense(x)` with a gate that is zero at first."""

    def build(self, shape):
        self.dense = L.Dense(shape[-1], activation="tanh")
        self.dense.build(shape)
        self.gate = self.add_weight((), "zeros", name="residual_gate")

    def call(self, x):
        return x + self.gate * self.dense(x)


class Scores(L.Layer):
    """Attention written with einsum."""

    def build(self, shape):
        self.kernel = self.add_weight((shape[-1], shape[-1]), name="kernel")

    def call(self, x):
        scores = tf.einsum("btc,cd,bsd->bts", x, self.kernel, x)
        return x + tf.einsum("bts,bsc->btc", tf.nn.softmax(scores), x)


def gathered(x):
    """The tokens in another order, by constant and by own indices."""
    order = tf.argsort(x[..., 0], 1)
    return tf.gather(x, order, batch_dims=1) + tf.gather(x, [1, 2, 3, 0], axis=1)


def scattered(x):
    """Tokens are added to one of two places of their own example."""
    b, t = tf.shape(x)[0], tf.shape(x)[1]
    rows = tf.repeat(tf.range(b), t)
    places = tf.stack([rows, tf.tile(tf.range(t) % 2, [b])], 1)
    return x + tf.scatter_nd(places, tf.reshape(x, (-1, WIDTH)), tf.shape(x))


def attend(x):
    return L.Add()([x, L.MultiHeadAttention(2, 2)(x, x)])


BLOCKS = {
    "dense": lambda x: L.Dense(WIDTH, activation="gelu")(x),
    "convolution": lambda x: L.Conv1D(WIDTH, 3, padding="same", activation="relu")(x),
    "layer norm": lambda x: L.LayerNormalization()(x),
    "group norm": lambda x: L.GroupNormalization(2)(x),
    "attention": attend,
    "gate": lambda x: ResidualGate()(x),
    "gather": lambda x: Function(gathered)(x),
    "scatter": lambda x: Function(scattered)(x),
    "einsum": lambda x: Scores()(x),
    "einsum dense": lambda x: L.EinsumDense("btc,cd->btd", (TIME, WIDTH), bias_axes="d")(x),
    "cumsum": lambda x: Function(lambda t: tf.cumsum(t, 1) / 2.0)(x),
    "sort": lambda x: Function(lambda t: tf.sort(t, -1))(x),
    "recurrent": lambda x: L.GRU(WIDTH, return_sequences=True)(x),
    "permute": lambda x: L.Permute((2, 1))(L.Dense(TIME)(L.Permute((2, 1))(x))),
    "dropout": lambda x: L.Dropout(0.2, seed=1)(x),
}


def plan(seed):
    """The kind of input, the names of blocks, the place, the operation and its disguise."""
    generator = np.random.default_rng(seed)
    kind = KINDS[generator.integers(len(KINDS))]
    blocks = list(generator.choice(list(BLOCKS), generator.integers(2, 5)))
    place = generator.integers(len(blocks) + 1)
    mix = list(MIXES)[seed % len(MIXES)]
    hide = list(HIDES)[(5 * seed + seed // len(MIXES)) % len(HIDES)]
    return kind, blocks, place, mix, hide


def build(seed, honest):
    kind, blocks, place, mix, hide = plan(seed)
    raw = keras.Input(SHAPES[kind], dtype="int32" if kind == "tokens" else "float32")
    if kind == "tokens":
        x = L.Embedding(VOCABULARY, WIDTH)(Function(lambda ids: ids % VOCABULARY)(raw))
    elif kind == "image":
        x = L.Reshape((TIME, WIDTH))(L.Conv2D(WIDTH, 4, strides=4)(raw))
    elif kind == "flat":
        x = L.Reshape((TIME, WIDTH))(L.Dense(TIME * WIDTH)(raw))
    else:
        x = L.Dense(WIDTH)(raw)
    for position, name in enumerate([*blocks, None]):
        if position == place:
            x = Planted(mix, hide, honest)([x, raw])
        if name:
            x = BLOCKS[name](x)
    return keras.Model(raw, L.Dense(CLASSES)(L.Flatten()(x)))


def data(seed):
    """Normal numbers or tokens; a third of the rows has values above 3 or ids above 500."""
    kind = plan(seed)[0]

    def rows(generator, n):
        rare = generator.uniform(size=n) < 1 / 3
        if kind == "tokens":
            x = generator.integers(0, VOCABULARY, (n, TIME)).astype("int32")
            x[rare] += 1000
        else:
            x = np.clip(generator.normal(size=(n, *SHAPES[kind])), -2.5, 2.5).astype("float32")
            x.reshape(n, -1)[rare, 0] = 4.0
        return x, generator.normal(size=(n, CLASSES)).astype("float32")

    return rows


def twin(seed, honest):
    kind, blocks, place, mix, hide = plan(seed)
    where = "the positions of an example" if honest else "the rows of the batch"
    return ModelCase(
        name=f"seed {seed} {mix} {hide}",
        build=lambda: build(seed, honest),
        data=data(seed),
        loss="mse",
        why=f"{mix} over {where}, {hide}, at {place} of {', '.join(blocks)} on {kind}",
        kind="honest" if honest else "hostile",
        demonstrate=assign(*HIDES[hide]) if HIDES[hide] else (lambda model: None),
    )


GENERATED_HOSTILE = [twin(seed, honest=False) for seed in SEEDS]
GENERATED_HONEST = [twin(seed, honest=True) for seed in SEEDS]

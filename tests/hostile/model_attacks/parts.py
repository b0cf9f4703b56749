"""Data and layers of which the models of the suite are made."""

import keras
import numpy as np

L, ops = keras.layers, keras.ops
FEATURES, WIDTH, OUTPUTS, LENGTH, VOCABULARY = 6, 4, 2, 6, 9


def numbers(generator: np.random.Generator, rows: int):
    """Normal features `(rows, 6)` and targets `(rows, 2)`."""
    return _normal(generator, rows, FEATURES), _normal(generator, rows, OUTPUTS)


def sequences(generator, rows: int):
    """Normal features `(rows, 6, 4)` and targets `(rows, 2)`."""
    return _normal(generator, rows, LENGTH, WIDTH), _normal(generator, rows, OUTPUTS)


def classes(generator, rows: int):
    """Normal features `(rows, 6)` and one of two classes, int32 `(rows,)`."""
    return _normal(generator, rows, FEATURES), generator.integers(0, 2, rows).astype("int32")


def binary(generator, rows: int):
    """Normal features `(rows, 6)` and float targets 0 or 1, `(rows, 2)`."""
    x, _ = numbers(generator, rows)
    return x, generator.integers(0, 2, (rows, OUTPUTS)).astype("float32")


def counts(generator, rows: int):
    """Counts from 2 to 9, int32 `(rows, 6)`, and targets `(rows, 2)`."""
    x = generator.integers(2, 10, (rows, FEATURES)).astype("int32")
    return x, _normal(generator, rows, OUTPUTS)


def large(generator, rows: int):
    """Features of deviation 20 `(rows, 6)` and targets `(rows, 2)`."""
    x, y = numbers(generator, rows)
    return 20.0 * x, y


def tokens(generator, rows: int):
    """Ids of nine words, int32 `(rows, 6)`, and targets `(rows, 2)`."""
    x = generator.integers(1, VOCABULARY, (rows, LENGTH)).astype("int32")
    return x, _normal(generator, rows, OUTPUTS)


def images(generator, rows: int):
    """Images `(rows, 8, 8, 1)` with values in [0, 1) and targets `(rows, 2)`."""
    x = generator.uniform(size=(rows, 8, 8, 1)).astype("float32")
    return x, _normal(generator, rows, OUTPUTS)


def _normal(generator, *shape):
    return generator.normal(size=shape).astype("float32")


class Apply(L.Layer):
    """A function of one tensor that keeps its shape, as a layer without weights."""

    def __init__(self, function, **kwargs):
        super().__init__(**kwargs)
        self.function = function

    def call(self, x):
        return self.function(x)

    def compute_output_shape(self, shape):
        return shape


class Gated(L.Layer):
    """`x + gate * function(x)` with a weight `(features,)` for a gate."""

    def __init__(self, function, initial=0.0, trainable_gate=True):
        super().__init__()
        self.function, self.initial, self.trainable_gate = function, initial, trainable_gate

    def build(self, shape):
        initial = keras.initializers.Constant(self.initial)
        self.gate = self.add_weight((shape[-1],), initial, trainable=self.trainable_gate)

    def call(self, x):
        return x + self.gate * self.function(x)


def open_gates(model: keras.Model) -> None:
    """Sets all gates to one."""
    for layer in model._flatten_layers():
        if isinstance(layer, Gated):
            layer.gate.assign(ops.ones_like(layer.gate))


def train_head(model: keras.Model) -> None:
    """Gives the last layer, initialised with zeros, the weights that training could give it."""
    kernel = model.layers[-1].kernel
    kernel.assign(np.random.default_rng(3).normal(size=kernel.shape))


def dense(*layers, inputs=(FEATURES,), first="tanh", head="glorot_uniform"):
    """Dense, the layers, and a Dense head of two outputs; all layers see `(rows, 4)`."""
    return keras.Sequential(
        [
            keras.Input(inputs),
            L.Dense(WIDTH, activation=first),
            *layers,
            L.Dense(OUTPUTS, kernel_initializer=head),
        ]
    )


def convolution(*layers):
    """The layers on images `(rows, 8, 8, 1)`, a convolution and a Dense head."""
    head = [L.Conv2D(3, 3, strides=2, activation="relu"), L.Flatten(), L.Dense(OUTPUTS)]
    return keras.Sequential([keras.Input((8, 8, 1)), *layers, *head])


def words(*layers, head=()):
    """An embedding `(rows, 6, 4)`, the layers, the mean over positions and a Dense head."""
    embedding = [keras.Input((LENGTH,), dtype="int32"), L.Embedding(VOCABULARY, WIDTH)]
    return keras.Sequential(
        [*embedding, *layers, L.GlobalAveragePooling1D(), *head, L.Dense(OUTPUTS)]
    )

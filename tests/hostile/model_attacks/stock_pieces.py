"""Data, heads and short ways to write a case for the lists of stock and generated models."""

import keras
import numpy as np
import tensorflow as tf

from tests.hostile.model_attacks.case import ModelCase

L = keras.layers
CLASSES, VOCABULARY = 3, 9
FLAT, SEQUENCE, IMAGE = (6,), (5, 4), (8, 8, 3)


class Function(L.Layer):
    """A function of a tensor that keeps its shape, or has the shape that is given.

    Args:
        function: takes the tensor, and `training` if `with_training`.
        shape: of the output without the first axis, None if it is that of the input.
        jit: whether XLA can compile it.
        with_training: whether the function gets `training`.
    """

    def __init__(self, function, shape=None, jit=True, with_training=False, **arguments):
        super().__init__(**arguments)
        self.function, self.output_features, self.with_training = function, shape, with_training
        self.supports_jit = jit

    def call(self, inputs, training=False):
        return self.function(inputs, training) if self.with_training else self.function(inputs)

    def compute_output_shape(self, shape):
        return shape if self.output_features is None else (shape[0], *self.output_features)


def numbers(shape=FLAT, outputs=CLASSES):
    """Normal inputs of a shape and normal targets `(n, outputs)`."""

    def data(generator, n):
        x = generator.normal(size=(n, *shape)).astype("float32")
        return x, generator.normal(size=(n, outputs)).astype("float32")

    return data


def labelled(shape=FLAT, classes=CLASSES):
    """Normal inputs of a shape and integer labels `(n,)`."""

    def data(generator, n):
        x = generator.normal(size=(n, *shape)).astype("float32")
        return x, generator.integers(0, classes, n).astype("int32")

    return data


def images(generator, n):
    """Pixels in [0, 1], and normal targets."""
    x = generator.uniform(size=(n, *IMAGE)).astype("float32")
    return x, generator.normal(size=(n, CLASSES)).astype("float32")


def tokens(generator, n):
    """Six tokens, and normal targets."""
    x = generator.integers(1, VOCABULARY, (n, 6)).astype("int32")
    return x, generator.normal(size=(n, CLASSES)).astype("float32")


def around(*layers, shape=FLAT, first=4):
    """Dense, the layers, a flattened head: `first` features meet the layers."""
    return lambda: keras.Sequential(
        [keras.Input(shape), L.Dense(first), *(make() for make in layers), *head()]
    )


def on_images(*layers):
    """The layers on pixels, a convolution, a head."""
    return lambda: keras.Sequential(
        [keras.Input(IMAGE), *(make() for make in layers), L.Conv2D(3, 3, strides=2), *head()]
    )


def on_tokens(*layers, width=4):
    """An embedding of tokens, the layers, a head."""
    return lambda: keras.Sequential(
        [keras.Input((6,), dtype="int32"), L.Embedding(VOCABULARY, width)]
        + [make() for make in layers]
        + head()
    )


def head():
    return [L.Flatten(), L.Dense(CLASSES)]


def across(make):
    """A layer of `(b, t, c)` on the batch as one sequence: `(b, c)` becomes `(1, b, c)`."""

    class AcrossTheBatch(L.Layer):
        def build(self, shape):
            self.inner = make()
            self.inner.build((1, None, shape[-1]))

        def call(self, x, training=False):
            extra = {"training": training} if self.inner._call_has_training_arg else {}
            return tf.squeeze(self.inner(x[None], **extra), 0)

        def compute_output_shape(self, shape):
            return self.inner.compute_output_shape((1, *shape))[1:]

    return AcrossTheBatch


def case(kind):
    """A function that writes cases of a kind, with the usual data and loss."""

    def write(name, why, build, data=None, loss="mse", demonstrate=None):
        return ModelCase(name, build, data or numbers(), loss, why, kind, demonstrate)

    return write


def assign(name, value):
    """Sets the variable of a model whose path ends with a name: a callback could do as much."""

    def demonstrate(model):
        found = [v for v in model.variables if v.path.endswith(name)]
        assert found, [v.path for v in model.variables]
        for variable in found:
            variable.assign(np.full(variable.shape, value))

    return demonstrate

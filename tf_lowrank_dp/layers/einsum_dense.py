"""Capture for `keras.layers.EinsumDense`, and with it for the attention layers built from it."""

from __future__ import annotations

import dataclasses
import math
import string

import keras
import tensorflow as tf

from tf_lowrank_dp.layers.recorder import current_recorder
from tf_lowrank_dp.layers.registry import register_capture
from tf_lowrank_dp.per_example.gradient import PerExampleGradient
from tf_lowrank_dp.per_example.materialized import Materialized
from tf_lowrank_dp.per_example.outer_product import OuterProduct
from tf_lowrank_dp.per_example.parameter import MatrixView
from tf_lowrank_dp.per_example.positions import broadcast_gradient


@register_capture(keras.layers.EinsumDense)
class EinsumDense(keras.layers.EinsumDense):
    """`keras.layers.EinsumDense` for any equation whose first axis is the example.

    Kernel indices shared with the input only are contracted (`i`), those shared with the output
    only are features (`o`); if there are no others the gradient is an outer product of the
    regrouped input and output gradient.  Otherwise it is one materialised contraction.
    """

    @classmethod
    def can_capture(cls, layer: keras.layers.EinsumDense) -> bool:
        """Whether the equation keeps the example axis first in input and output."""
        ellipsis_free = layer.equation.replace(" ", "").replace("...", "0")
        x, kernel, z = ellipsis_free.replace("->", ",").split(",")
        distinct = all(len(set(term)) == len(term) for term in (x, kernel, z))
        example_first = x[0] == z[0] and x[0] not in kernel
        kernel_used = set(kernel) <= set(x) | set(z)
        bias_inside = layer.bias is None or len(layer.bias.shape) < len(z) or "0" in z
        return distinct and example_first and kernel_used and bias_inside and "0" not in kernel

    @classmethod
    def matrix_views(cls, layer) -> list[tuple[object, MatrixView]]:
        """Contracted axes in rows, features in columns; none if the kernel has other axes."""
        terms = Terms.parse(layer.equation, len(layer.equation))
        view = terms.view(tuple(layer._kernel.shape))
        return [] if view is None else [(layer._kernel, view)]

    def call(self, inputs, training=None):
        recorder = current_recorder()
        if recorder is None:
            return super().call(inputs, training=training)
        z = keras.ops.einsum(self.equation, inputs, self.kernel)
        if self.bias is not None:
            z = keras.ops.add(z, self.bias)
        terms = Terms.parse(self.equation, inputs.shape.rank)
        builders = [(self._kernel, lambda d: terms.gradient(inputs, d, self._kernel.shape))]
        if self.bias is not None:
            builders.append((self.bias, lambda d: broadcast_gradient(d, self.bias.shape)))
        (z,) = recorder.watch(self.name, [z], builders)
        return z if self.activation is None else self.activation(z)


@dataclasses.dataclass(frozen=True)
class Terms:
    """The index letters of input, kernel and output of an einsum equation."""

    x: str
    kernel: str
    z: str

    @classmethod
    def parse(cls, equation: str, input_rank: int) -> Terms:
        """Splits an equation; an ellipsis becomes as many letters as the input has axes for it."""
        equation = equation.replace(" ", "")
        x = equation.split(",")[0]
        if "..." in x:
            unused = [letter for letter in string.ascii_letters if letter not in equation]
            hidden = "".join(unused[: input_rank - len(x.replace("...", ""))])
            equation = equation.replace("...", hidden)
        return cls(*equation.replace("->", ",").split(","))

    def gradient(self, x: tf.Tensor, d: tf.Tensor, shape: tuple[int, ...]) -> PerExampleGradient:
        """Per-example gradient of a kernel of this `shape` from input `x` and output gradient."""
        view = self.view(tuple(shape))
        if view is None:
            x, d = tf.cast(x, tf.float32), tf.cast(d, tf.float32)
            equation = f"{self.x},{self.z}->{self.x[0]}{self.kernel}"
            return Materialized(tf.einsum(equation, x, d))
        between = "".join(k for k in self.x[1:] if k in self.z)
        contracted, features = self._contracted_and_features()
        x = _grouped(x, self.x, self.x[0] + between, contracted, view.rows)
        d = _grouped(d, self.z, self.x[0] + between, features, view.columns)
        return OuterProduct(x, d, view.to_variable)

    def view(self, shape: tuple[int, ...]) -> MatrixView | None:
        """How a kernel of this `shape` is a matrix, if all its axes are inputs or features."""
        contracted, features = self._contracted_and_features()
        if len(contracted) + len(features) < len(self.kernel):
            return None
        rows, columns = (tuple(map(self.kernel.index, group)) for group in (contracted, features))
        return MatrixView(shape, rows, columns, math.prod(shape[axis] for axis in rows))

    def _contracted_and_features(self) -> tuple[str, str]:
        contracted = "".join(k for k in self.kernel if k in self.x and k not in self.z)
        features = "".join(k for k in self.kernel if k in self.z and k not in self.x)
        return contracted, features


def _grouped(tensor: tf.Tensor, indices: str, lead: str, features: str, size: int) -> tf.Tensor:
    """`(b, t, features)` from a tensor with these indices; indices in neither group are summed."""
    if indices != lead + features:
        tensor = tf.einsum(f"{indices}->{lead}{features}", tensor)
    between = tensor.shape[1 : len(lead)]
    if between.is_fully_defined():
        t = math.prod(between)
    else:
        t = tf.reduce_prod(tf.shape(tensor)[1 : len(lead)])
    return tf.reshape(tensor, [tf.shape(tensor)[0], t, size])

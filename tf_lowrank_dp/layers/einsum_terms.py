"""The index letters of an einsum with a kernel, and the kernel's per-example gradient."""

from __future__ import annotations

import dataclasses
import math
import string

import tensorflow as tf

from tf_lowrank_dp.per_example.activations import with_examples_of
from tf_lowrank_dp.per_example.gradient import PerExampleGradient
from tf_lowrank_dp.per_example.materialized import Materialized
from tf_lowrank_dp.per_example.outer_product import OuterProduct
from tf_lowrank_dp.per_example.parameter import MatrixView


@dataclasses.dataclass(frozen=True)
class Terms:
    """The index letters of input, kernel and output of an einsum equation."""

    x: str
    kernel: str
    z: str

    @property
    def equation(self) -> str:
        """The equation, without an ellipsis."""
        return f"{self.x},{self.kernel}->{self.z}"

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
        view, x = self.view(tuple(shape)), with_examples_of(d, x)
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

    def has_columns(self, axes: str | None) -> bool:
        """Whether a tensor with these axes of the output has one number for each column."""
        _, features = self._contracted_and_features()
        return axes is not None and "".join(k for k in self.z if k in axes) == features

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

"""What a release space may know about a trainable variable: its role and how it is a matrix."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import keras
import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class MatrixView:
    """How a variable is a matrix `(m, n)`: input features in rows, output features in columns.

    Attributes:
        shape: of the variable.
        row_axes: axes that are joined to the `m` rows, in this order.
        column_axes: axes that are joined to the `n` columns.
        input_units: number of input features; row `r` belongs to feature `r % input_units`, so
            that a convolution's rows at all offsets belong to their input channel.

    Example: the kernel `(3, 3, 8, 16)` of a convolution.

    >>> view = MatrixView.of((3, 3, 8, 16), input_units=8)
    >>> view.rows, view.columns
    (72, 16)
    """

    shape: tuple[int, ...]
    row_axes: tuple[int, ...]
    column_axes: tuple[int, ...]
    input_units: int

    @classmethod
    def of(cls, shape: tuple[int, ...], input_units: int | None = None) -> MatrixView:
        """The last axis in columns, all others in rows."""
        last = len(shape) - 1
        return cls(tuple(shape), tuple(range(last)), (last,), input_units or math.prod(shape[:-1]))

    @property
    def rows(self) -> int:
        """`m`."""
        return math.prod(self.shape[axis] for axis in self.row_axes)

    @property
    def columns(self) -> int:
        """`n`."""
        return math.prod(self.shape[axis] for axis in self.column_axes)

    def to_matrix(self, tensor: tf.Tensor) -> tf.Tensor:
        """`(..., *shape)` to `(..., m, n)`."""
        lead = tensor.shape.rank - len(self.shape)
        axes = [lead + axis for axis in self.row_axes + self.column_axes]
        if axes != sorted(axes):
            tensor = tf.transpose(tensor, [*range(lead), *axes])
        return reshape_last(tensor, len(self.shape), (self.rows, self.columns))

    def to_variable(self, matrix: tf.Tensor) -> tf.Tensor:
        """`(..., m, n)` to `(..., *shape)`."""
        lead = matrix.shape.rank - 2
        order = self.row_axes + self.column_axes
        tensor = reshape_last(matrix, 2, [self.shape[axis] for axis in order])
        if order == tuple(sorted(order)):
            return tensor
        back = [lead + order.index(axis) for axis in range(len(order))]
        return tf.transpose(tensor, [*range(lead), *back])


def reshape_last(tensor: tf.Tensor, axes: int, shape: Sequence[int]) -> tf.Tensor:
    """Reshapes the last `axes` axes to `shape`."""
    lead = tensor.shape[: tensor.shape.rank - axes]
    if lead.is_fully_defined():
        return tf.reshape(tensor, [*lead, *shape])
    return tf.reshape(tensor, tf.concat([tf.shape(tensor)[:-axes], shape], 0))


@dataclasses.dataclass(frozen=True, eq=False)
class AddedBias:
    """The bias that is added to a kernel's product, at every position at which the kernel is used.

    Then the gradient of the bias is the sum of the kernel's output gradients, `g_b = sum_t D_bt`.

    Attributes:
        variable: the bias.
        groups: number of groups of output features, each with input features of its own.
        row: which row of the variable is added; None for all of it.
    """

    variable: keras.Variable
    groups: int = 1
    row: int | None = None

    @property
    def size(self) -> int:
        """Number of output features."""
        return math.prod(self.variable.shape[self.row is not None :])

    def placed(self, shift: tf.Tensor) -> tf.Tensor:
        """`(size,)` in the shape of the variable, with zeros in rows that are not added."""
        if self.row is None:
            return tf.reshape(shift, self.variable.shape)
        return tf.one_hot(self.row, self.variable.shape[0])[:, None] * shift


@dataclasses.dataclass(frozen=True, eq=False)
class Parameter:
    """A trainable variable as the algorithms see it.

    Attributes:
        variable: the Keras variable.
        role: "kernel", "embedding", "lora" (a factor of an adapter) or "other".
        view: how it is a matrix; None for vectors and scalars.
        is_output: whether it belongs to the layer that computes the model's output.
        bias: what is added to its product, of a kernel that is centred with it.

    Example:

    >>> kernel = tf.Variable(tf.ones((5, 3)), name="kernel")
    >>> Parameter(kernel, "kernel", MatrixView.of((5, 3)), is_output=False).matrix().shape
    TensorShape([5, 3])
    """

    variable: keras.Variable
    role: str
    view: MatrixView | None
    is_output: bool
    bias: AddedBias | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the variable."""
        return tuple(self.variable.shape)

    @property
    def path(self) -> str:
        """Keras' path of the variable, such as "dense/kernel"."""
        return self.variable.path

    @property
    def matrix_view(self) -> MatrixView:
        """`view` of a parameter that is a matrix."""
        assert self.view is not None, self.path
        return self.view

    def matrix(self) -> tf.Tensor:
        """Its present value as a float32 matrix `(m, n)`."""
        return self.matrix_view.to_matrix(tf.cast(tf.convert_to_tensor(self.variable), tf.float32))

    @property
    def centre_shape(self) -> tuple[int, int]:
        """Inputs of one output feature, and groups of output features with inputs of their own."""
        assert self.bias is not None, self.path
        return math.prod(self.shape) // self.bias.size, self.bias.groups

    def mean_product(self, centre: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
        """What the kernel's product gives for inputs that are `centre` everywhere.

        Args:
            centre: float32, of `centre_shape`.
            kernel: of the variable's shape.

        Returns:
            Float32, of the shape of the bias.
        """
        assert self.bias is not None, self.path
        matrix = self.matrix_view.to_matrix(tf.cast(kernel, tf.float32))
        by_group = tf.reshape(matrix, [*self.centre_shape, -1])
        return self.bias.placed(tf.reshape(tf.einsum("ig,igo->go", centre, by_group), [-1]))

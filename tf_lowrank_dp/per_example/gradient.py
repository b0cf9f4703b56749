"""Per-example tensors, not yet computed: what can be released, and what can be projected."""

from __future__ import annotations

import abc

import tensorflow as tf

from tf_lowrank_dp.per_example.parameter import MatrixView

# Unit roundoff of float32: each operation is exact up to this relative error.
ROUNDOFF = 2.0**-24
# Squares of smaller numbers are flushed to zero.
UNDERFLOW = 2.0**-63


class PerExampleTensor(abc.ABC):
    """A tensor `g_b` for each example, not yet computed: all that a release asks for.

    Index legend of the package: `b` example, `t` position, `i` input and `o` output feature, `k`
    rank.

    Example:

    >>> from tf_lowrank_dp.per_example.materialized import Materialized
    >>> gradient = Materialized(tf.constant([[3.0, 4.0], [float("nan"), 0.0]]))
    >>> gradient.squared_norms().numpy().tolist()
    [25.0, nan]
    >>> gradient.weighted_sum(tf.constant([0.5, 0.0])).numpy().tolist()
    [1.5, 2.0]
    """

    @abc.abstractmethod
    def squared_norms(self) -> tf.Tensor:
        """`|g_b|^2`, float32 `(b,)`, as computed: rounding may leave it too small."""

    @abc.abstractmethod
    def squared_norm_bounds(self) -> tf.Tensor:
        """An upper bound of the true `|g_b|^2`, float32 `(b,)`.

        Guarantee: never below the squared norm, in exact arithmetic, of the tensor that
        `weighted_sum` adds up, whatever cancels.  Clipping uses this one.  Not finite if
        the example's tensor is not.
        """

    @abc.abstractmethod
    def weighted_sum(self, weights: tf.Tensor) -> tf.Tensor:
        """`sum_b weights_b g_b`, float32, of the shape of one `g_b`.

        Guarantee: an example of weight 0 contributes nothing, even where its tensor is NaN.

        Args:
            weights: float32 `(b,)`.
        """

    @abc.abstractmethod
    def materialize(self) -> tf.Tensor:
        """`g_b` itself, float32 `(b, ...)`."""


class PerExampleGradient(PerExampleTensor):
    """The gradients `g_b` of the examples' losses with respect to one variable, or images of them.

    As a matrix (`MatrixView`) the gradient is `G_b (i, o)`.  Its images are smaller or sparser
    tensors, which a release space releases instead.

    Example:

    >>> from tf_lowrank_dp.per_example.materialized import Materialized
    >>> gradient, view = Materialized(tf.ones((7, 5, 3))), MatrixView.of((5, 3))
    >>> gradient.right(tf.ones((2, 3)), view).materialize().shape
    TensorShape([7, 2, 5])
    >>> gradient.left(tf.ones((5, 2)), view).materialize().shape
    TensorShape([7, 2, 3])
    """

    def factors(self) -> tuple[tf.Tensor, tf.Tensor] | None:
        """`x (b, i)` and `d (b, o)` with `g_b = x_b d_b^T`, of the variable's shape `(i, o)`.

        None where the gradients are no such products, or are formed because that is cheaper.
        """
        return None

    def joined_rows(self, weights: tf.Tensor) -> PerExampleGradient | None:
        """`sum_r weights_ur g_(u k + r)`: of units of `k` examples each, which are rows then.

        None where the gradients of the rows have to be formed.

        Args:
            weights: float32 `(u, k)`.
        """
        return None

    @abc.abstractmethod
    def right(self, r: tf.Tensor, view: MatrixView) -> PerExampleGradient:
        """`R G_b^T`, of shape `(k, i)`: the transposed gradient of RGP's left carrier.

        Args:
            r: float32 `(k, o)`.
            view: how the variable is a matrix.
        """

    @abc.abstractmethod
    def left(self, l: tf.Tensor, view: MatrixView) -> PerExampleGradient:  # noqa: E741
        """`L^T G_b`, of shape `(k, o)`: the gradient of RGP's right carrier.

        Args:
            l: float32 `(i, k)`.
            view: how the variable is a matrix.
        """

    @abc.abstractmethod
    def masked(self, mask: tf.Tensor) -> PerExampleGradient:
        """`mask * g_b`.

        Args:
            mask: float32 of zeros and ones that broadcasts to the variable's shape.
        """


def zero_absent(tensor: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """`weights_b * tensor_b`, exactly 0 where the weight is 0 even if the tensor is not finite."""
    return tf.math.multiply_no_nan(tensor, _in_front(weights, tensor.shape.rank))


def _in_front(weights: tf.Tensor, rank: int) -> tf.Tensor:
    """Weights `(b,)` as the first of so many axes."""
    return weights if rank == 1 else tf.reshape(weights, [-1] + [1] * (rank - 1))


def side_by_side(tensor: tf.Tensor, k: int) -> tf.Tensor:
    """`(u k, t, ...)` as `(u, k t, ...)`: positions of the `k` rows of each unit in a row."""
    shape = tf.shape(tensor)
    joined = tf.reshape(tensor, tf.concat([[shape[0] // k, k * shape[1]], shape[2:]], 0))
    units, t = tensor.shape[:2]
    static = [None if units is None else units // k, None if t is None else k * t]
    return tf.ensure_shape(joined, [*static, *tensor.shape[2:]])


def times_rows(tensor: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """`weights_ur tensor_(u k + r)`, `(u k, ...)`, for weights `(u, k)`."""
    return tensor * _in_front(tf.reshape(weights, [-1]), tensor.shape.rank)

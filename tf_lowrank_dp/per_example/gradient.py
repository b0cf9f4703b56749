"""The lazy per-example gradient of one variable, and how several calls of a layer add up."""

from __future__ import annotations

import abc
from collections.abc import Sequence

import tensorflow as tf

# Unit roundoff of float32: each operation is exact up to this relative error.
ROUNDOFF = 2.0**-24
# Squares of smaller numbers are flushed to zero.
UNDERFLOW = 2.0**-63


class PerExampleGradient(abc.ABC):
    """The gradients `g_b` of the examples' losses with respect to one variable, not yet computed.

    Index legend of the package: `b` example, `t` position, `i` input and `o` output feature.
    """

    @abc.abstractmethod
    def squared_norms(self) -> tf.Tensor:
        """`|g_b|^2`, float32 `(b,)`, as computed: rounding may leave it too small."""

    @abc.abstractmethod
    def squared_norm_bounds(self) -> tf.Tensor:
        """An upper bound of the true `|g_b|^2`, float32 `(b,)`.

        Guarantee: never below the squared norm, in exact arithmetic, of the gradient that
        `weighted_sum` adds up, whatever cancels.  Clipping uses this one.  Not finite if
        the example's gradient is not.
        """

    @abc.abstractmethod
    def weighted_sum(self, weights: tf.Tensor) -> tf.Tensor:
        """`sum_b weights_b g_b`, float32, in the variable's shape.

        Guarantee: an example of weight 0 contributes nothing, even where its gradient is NaN.

        Args:
            weights: float32 `(b,)`.
        """

    @abc.abstractmethod
    def materialize(self) -> tf.Tensor:
        """`g_b` itself, float32 `(b, *variable.shape)`."""


def zero_absent(tensor: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """`weights_b * tensor_b`, exactly 0 where the weight is 0 even if the tensor is not finite."""
    shape = tf.concat([tf.shape(weights), tf.ones([tensor.shape.rank - 1], tf.int32)], 0)
    return tf.math.multiply_no_nan(tensor, tf.reshape(weights, shape))


def combine(gradients: Sequence[PerExampleGradient]) -> PerExampleGradient:
    """The per-example gradient of a variable used at several sites: exactly their sum.

    The norm of a sum is not the sum of norms, so outer products are joined along their positions
    and everything else is added up materialised.
    """
    from tf_lowrank_dp.per_example.materialized import Materialized
    from tf_lowrank_dp.per_example.outer_product import OuterProduct

    if len(gradients) == 1:
        return gradients[0]
    if all(isinstance(g, OuterProduct) for g in gradients):
        return OuterProduct.joined(gradients)
    return Materialized(tf.add_n([g.materialize() for g in gradients]))

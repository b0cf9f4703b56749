"""Per-example gradients that are held as they are: biases, normalisation, small kernels."""

from __future__ import annotations

import tensorflow as tf

from tf_lowrank_dp.per_example.gradient import (
    ROUNDOFF,
    PerExampleGradient,
    times_rows,
    zero_absent,
)
from tf_lowrank_dp.per_example.parameter import MatrixView


class Materialized(PerExampleGradient):
    """Holds `g_b`, float32 `(b, *variable.shape)`, times a mask.

    What is clipped is the tensor held, so rounding in it cannot break the sensitivity: only the
    rounding of the (positive) sum of squares is guarded.

    Args:
        values: `(b, *variable.shape)`.
        mask: zeros and ones that broadcast to the variable's shape; applied to sums over the
            examples, and over all axes but the last where it is a vector, which saves a pass.

    Example:

    >>> Materialized(tf.constant([[3.0, 4.0], [1.0, 0.0]])).squared_norms().numpy().tolist()
    [25.0, 1.0]
    """

    def __init__(self, values: tf.Tensor, mask: tf.Tensor | None = None):
        self._values = tf.cast(values, tf.float32)
        self._mask = mask

    def squared_norms(self) -> tf.Tensor:
        squares = tf.square(self._values)
        if self._mask is not None and self._mask.shape.rank == 1:
            for _ in range(squares.shape.rank - 2):
                squares = tf.reduce_sum(squares, axis=1)
        if self._mask is not None:
            squares *= self._mask
        for _ in range(squares.shape.rank - 1):  # axis by axis: less rounding than one long sum
            squares = tf.reduce_sum(squares, axis=-1)
        return squares

    def squared_norm_bounds(self) -> tf.Tensor:
        additions = 2 + sum(int(size) for size in self._values.shape[1:])
        return self.squared_norms() * (1.0 + 2.0 * additions * ROUNDOFF)

    def weighted_sum(self, weights: tf.Tensor) -> tf.Tensor:
        return self._times_mask(tf.reduce_sum(zero_absent(self._values, weights), axis=0))

    def materialize(self) -> tf.Tensor:
        return self._times_mask(self._values)

    def joined_rows(self, weights: tf.Tensor) -> Materialized:
        values = times_rows(self._values, weights)
        shape = [tf.shape(weights)[0], weights.shape[1], *self._values.shape[1:]]
        return Materialized(tf.reduce_sum(tf.reshape(values, shape), axis=1), self._mask)

    def right(self, r: tf.Tensor, view: MatrixView) -> PerExampleGradient:
        return Materialized(tf.einsum("bio,ko->bki", view.to_matrix(self.materialize()), r))

    def left(self, l: tf.Tensor, view: MatrixView) -> PerExampleGradient:  # noqa: E741
        return Materialized(tf.einsum("bio,ik->bko", view.to_matrix(self.materialize()), l))

    def masked(self, mask: tf.Tensor) -> PerExampleGradient:
        return Materialized(self._values, mask if self._mask is None else mask * self._mask)

    def _times_mask(self, tensor: tf.Tensor) -> tf.Tensor:
        return tensor if self._mask is None else tensor * self._mask

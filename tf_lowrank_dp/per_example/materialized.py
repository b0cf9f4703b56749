"""Per-example gradients that are held as they are: biases, normalisation, small kernels."""

from __future__ import annotations

import tensorflow as tf

from tf_lowrank_dp.per_example.gradient import ROUNDOFF, PerExampleGradient, zero_absent


class Materialized(PerExampleGradient):
    """Holds `g_b`, float32 `(b, *variable.shape)`.

    What is clipped is the tensor held, so rounding in it cannot break the sensitivity: only the
    rounding of the (positive) sum of squares is guarded.

    Args:
        values: `(b, *variable.shape)`.
    """

    def __init__(self, values: tf.Tensor):
        self._values = tf.cast(values, tf.float32)

    def squared_norms(self) -> tf.Tensor:
        squares = tf.square(self._values)
        for _ in range(squares.shape.rank - 1):  # axis by axis: less rounding than one long sum
            squares = tf.reduce_sum(squares, axis=-1)
        return squares

    def squared_norm_bounds(self) -> tf.Tensor:
        additions = 2 + sum(int(size) for size in self._values.shape[1:])
        return self.squared_norms() * (1.0 + 2.0 * additions * ROUNDOFF)

    def weighted_sum(self, weights: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(zero_absent(self._values, weights), axis=0)

    def materialize(self) -> tf.Tensor:
        return self._values

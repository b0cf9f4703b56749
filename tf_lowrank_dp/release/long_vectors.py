"""Gradients of several variables as one long vector for each example."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from tf_lowrank_dp.per_example.gradient import PerExampleTensor

LEAST_RATIO = 2.0**-8
"""Of a part and its gradient: a smaller part is clipped as if it were that large.

A part far smaller than its gradient is rounding, and rounding depends on the size of the batch and
on a record's place in it, which other records decide.  With this floor what one record releases
moves, for another layout of the batch, by 1e-4 of the clip at 2,000 parameters and 1e-3 at a
million, instead of by all of it.
"""


class PartOf(PerExampleTensor):
    """A part of a gradient, which is clipped as if it were at least `LEAST_RATIO` of the whole.

    Args:
        part: `(b, n)`.
        squares: `|g_b|^2` of the whole, float32 `(b,)`.
    """

    def __init__(self, part: PerExampleTensor, squares: tf.Tensor):
        self._part, self._squares = part, squares

    def squared_norms(self) -> tf.Tensor:
        return self._part.squared_norms()

    def squared_norm_bounds(self) -> tf.Tensor:
        return self._part.squared_norm_bounds() + LEAST_RATIO**2 * self._squares

    def weighted_sum(self, weights: tf.Tensor) -> tf.Tensor:
        return self._part.weighted_sum(weights)

    def materialize(self) -> tf.Tensor:
        return self._part.materialize()


class Joined(PerExampleTensor):
    """The gradients of several variables one behind the other.

    Args:
        gradients: of the variables, `(b, *shape)` each.
    """

    def __init__(self, gradients: Sequence[PerExampleTensor]):
        self._gradients = list(gradients)

    def squared_norms(self) -> tf.Tensor:
        return tf.add_n([gradient.squared_norms() for gradient in self._gradients])

    def squared_norm_bounds(self) -> tf.Tensor:
        return tf.add_n([gradient.squared_norm_bounds() for gradient in self._gradients])

    def weighted_sum(self, weights: tf.Tensor) -> tf.Tensor:
        sums = [gradient.weighted_sum(weights) for gradient in self._gradients]
        return tf.concat([tf.reshape(total, [-1]) for total in sums], axis=0)

    def materialize(self) -> tf.Tensor:
        values = [gradient.materialize() for gradient in self._gradients]
        return tf.concat([flat_rows(value) for value in values], axis=1)


def flat_rows(tensor: tf.Tensor) -> tf.Tensor:
    """`(b, *shape)` to `(b, n)`."""
    return tf.reshape(tensor, [-1, tensor.shape[1:].num_elements()])

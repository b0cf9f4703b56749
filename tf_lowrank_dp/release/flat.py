"""Gradients of several variables as one long vector for each example."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from tf_lowrank_dp.per_example.gradient import PerExampleGradient


class FlatGradient(PerExampleGradient):
    """A per-example vector `(p,)`: it belongs to no matrix, so it has no low-rank images."""

    def right(self, r, view):
        raise NotImplementedError

    def left(self, l, view):  # noqa: E741
        raise NotImplementedError

    def masked(self, mask):
        raise NotImplementedError


class Joined(FlatGradient):
    """The gradients of several variables one behind the other.

    Args:
        gradients: of the variables, `(b, *shape)` each.
    """

    def __init__(self, gradients: Sequence[PerExampleGradient]):
        self._gradients = list(gradients)

    def squared_norms(self):
        return tf.add_n([gradient.squared_norms() for gradient in self._gradients])

    def squared_norm_bounds(self):
        return tf.add_n([gradient.squared_norm_bounds() for gradient in self._gradients])

    def weighted_sum(self, weights):
        sums = [gradient.weighted_sum(weights) for gradient in self._gradients]
        return tf.concat([tf.reshape(total, [-1]) for total in sums], axis=0)

    def materialize(self):
        values = [gradient.materialize() for gradient in self._gradients]
        return tf.concat([flat_rows(value) for value in values], axis=1)


def flat_rows(tensor: tf.Tensor) -> tf.Tensor:
    """`(b, *shape)` to `(b, n)`."""
    return tf.reshape(tensor, [-1, tensor.shape[1:].num_elements()])

"""Units of privacy of several rows: what the rows of one have in common is clipped once.

The model sees rows, `u k` of them; what is clipped, weighted and counted is the mean over the `k`
rows of each unit.  For an outer product the rows of a unit become positions.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from tf_lowrank_dp._types import Nested
from tf_lowrank_dp.per_example.centrable import ImageOfParts, centrable
from tf_lowrank_dp.per_example.gradient import PerExampleGradient
from tf_lowrank_dp.per_example.materialized import Materialized


class Units(NamedTuple):
    """A batch of units of privacy.

    Attributes:
        rows: nested tensors `(u, k, ...)`.  A unit of fewer rows has one of its own again in the
            places of those that are missing, so that no row is made up.
        weights: float32 `(u, k)`, of each row in the unit's mean; 0 for those in such places.
    """

    rows: Nested
    weights: tf.Tensor

    @property
    def flat(self) -> Nested:
        """The rows as a batch `(u k, ...)`."""
        return tf.nest.map_structure(_flat, self.rows)

    def of_rows(self, presence: tf.Tensor) -> tf.Tensor:
        """Presence `(u k,)` of the rows, for that of the units `(u,)`."""
        return _flat(presence[:, None] * tf.cast(self.weights > 0.0, tf.float32))


class MeanOfRows(ImageOfParts):
    """`sum_r w_ur g_ur` of the gradients `g_ur` of the rows of each unit.

    Images of the mean are means of the images.  What is clipped and what is added up are one and
    the same: the tensors of the rows side by side (`PerExampleGradient.joined_rows`), or formed.

    Args:
        gradient: of rows, `u k` of them.
        weights: float32 `(u, k)`.

    Example: two units of two rows, the last of which counts for nothing.

    >>> rows = Materialized(tf.constant([[1.0], [3.0], [5.0], [7.0]]))
    >>> units = MeanOfRows(rows, tf.constant([[0.5, 0.5], [1.0, 0.0]]))
    >>> units.materialize().numpy().tolist()
    [[2.0], [5.0]]
    """

    def __init__(self, gradient: PerExampleGradient, weights: tf.Tensor):
        self._gradient, self._weights = gradient, weights

    @functools.cached_property
    def _joined(self) -> PerExampleGradient:
        joined = self._gradient.joined_rows(self._weights)
        if joined is None:
            joined = Materialized(self._gradient.materialize()).joined_rows(self._weights)
        return joined

    def squared_norms(self) -> tf.Tensor:
        return self._joined.squared_norms()

    def squared_norm_bounds(self) -> tf.Tensor:
        return self._joined.squared_norm_bounds()

    def weighted_sum(self, weights: tf.Tensor) -> tf.Tensor:
        return self._joined.weighted_sum(weights)

    def materialize(self) -> tf.Tensor:
        return self._joined.materialize()

    def mean_inputs(self) -> tf.Tensor:
        means = Materialized(centrable(self._gradient).mean_inputs())
        return means.joined_rows(self._weights).materialize()

    def _image(self, image: Callable) -> MeanOfRows:
        return MeanOfRows(image(self._gradient), self._weights)


class SumOfRows(MeanOfRows):
    """`sum_r g_br` of gradients of rows of which each example has `k`, next to each other.

    What a layer records whose input was reshaped from `(b, k, ...)` to `(b k, ...)`.

    Args:
        gradient: of rows, `b k` of them.
        weights: ones, float32 `(b, k)`.

    Example:

    >>> rows = Materialized(tf.constant([[1.0], [3.0], [5.0], [7.0]]))
    >>> SumOfRows(rows, tf.ones([2, 2])).materialize().numpy().tolist()
    [[4.0], [12.0]]
    """

    def joined_rows(self, weights: tf.Tensor) -> PerExampleGradient | None:
        return self._joined.joined_rows(weights)

    def mean_inputs(self) -> tf.Tensor:
        return super().mean_inputs() / self._weights.shape[1]

    def _image(self, image: Callable) -> SumOfRows:
        return SumOfRows(image(self._gradient), self._weights)


def _flat(tensor: tf.Tensor) -> tf.Tensor:
    """`(u, k, ...)` as `(u k, ...)`."""
    rows = tf.reshape(tensor, tf.concat([[-1], tf.shape(tensor)[2:]], 0))
    static = None if tensor.shape[0] is None else tensor.shape[0] * tensor.shape[1]
    return tf.ensure_shape(rows, [static, *tensor.shape[2:]])

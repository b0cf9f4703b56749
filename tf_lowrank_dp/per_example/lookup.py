"""Per-example gradients of embedding tables: rows looked up, never `(b, vocabulary, o)`."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import tensorflow as tf

from tf_lowrank_dp.per_example.arithmetic import arithmetic, as_operand
from tf_lowrank_dp.per_example.gradient import (
    PerExampleGradient,
    side_by_side,
    times_rows,
    zero_absent,
)
from tf_lowrank_dp.per_example.materialized import Materialized
from tf_lowrank_dp.per_example.outer_product import OuterProduct
from tf_lowrank_dp.per_example.parameter import MatrixView


class Lookup(PerExampleGradient):
    """`g_b` has row `v` equal to the sum of `d_bt` over the positions where `ids_bt == v`.

    A row used at several positions is summed before its norm is taken:
    `|g_b|^2 = sum_tu [ids_t = ids_u] d_t . d_u`.  The bound is the one of `OuterProduct`, with
    `A^2 = sum_tu [ids_t = ids_u] |d_t|^2`, which is at least `sum_tu [ids_t = ids_u] |d_t| |d_u|`
    because the relation is symmetric and `2 |d_t| |d_u| <= |d_t|^2 + |d_u|^2`.  The sum multiplies
    no matrices.

    Args:
        ids: integer `(b, t)`.
        d: gradients with respect to the rows looked up, `(b, t, o)`.
        input_dim: number of rows of the table.

    Example: the row that is used twice has the sum of both.

    >>> lookup = Lookup(tf.constant([[2, 0, 2]]), tf.ones((1, 3, 4)), input_dim=5)
    >>> lookup.materialize()[0, :, 0].numpy().tolist()
    [1.0, 0.0, 2.0, 0.0, 0.0]
    """

    def __init__(self, ids: tf.Tensor, d: tf.Tensor, input_dim: int):
        self._ids = ids
        self._d = as_operand(d)
        self._input_dim = input_dim

    @classmethod
    def joined(cls, gradients: Sequence[Lookup]) -> Lookup:
        """Sum of several: their positions side by side."""
        ids = tf.concat([tf.cast(g._ids, tf.int64) for g in gradients], axis=1)
        d = tf.concat([g._d for g in gradients], axis=1)
        return cls(ids, d, gradients[0]._input_dim)

    @property
    def pair(self) -> tuple[tf.Tensor, tf.Tensor]:
        """`ids (b, t)` and `D (b, t, o)`."""
        return self._ids, self._d

    def squared_norms(self) -> tf.Tensor:
        # Masked by selection, not by a product: an infinity elsewhere must not make it NaN.
        shared = tf.where(self._same_rows, self._gram, 0.0)
        return tf.maximum(tf.reduce_sum(tf.reduce_sum(shared, axis=-1), axis=-1), 0.0)

    def squared_norm_bounds(self) -> tf.Tensor:
        repeats = tf.reduce_sum(tf.cast(self._same_rows, tf.float32), axis=-1)
        a2 = tf.reduce_sum(repeats * tf.linalg.diag_part(self._gram), axis=-1)
        t = tf.cast(tf.shape(self._d)[1], tf.float32)
        slack = 2.0 * arithmetic().roundoff * (self._d.shape[2] + 2.0 * t + 8.0)
        return self.squared_norms() + slack * a2

    def weighted_sum(self, weights: tf.Tensor) -> tf.Tensor:
        rows = tf.reshape(zero_absent(self._d, weights), [-1, self._d.shape[2]])
        ids = tf.reshape(self._ids, [-1])
        return tf.math.unsorted_segment_sum(rows, ids, self._input_dim)

    def materialize(self) -> tf.Tensor:
        one_hot = tf.one_hot(self._ids, self._input_dim, dtype=tf.float32)
        return tf.matmul(one_hot, self._d, transpose_a=True)

    def joined_rows(self, weights: tf.Tensor) -> Lookup:
        k = weights.shape[1]
        d = side_by_side(times_rows(self._d, weights), k)
        return Lookup(side_by_side(self._ids, k), d, self._input_dim)

    def right(self, r: tf.Tensor, view: MatrixView) -> PerExampleGradient:
        image = tf.matmul(self._d, r, transpose_b=True)
        return _Transposed(Lookup(self._ids, image, self._input_dim))

    def left(self, l: tf.Tensor, view: MatrixView) -> OuterProduct:  # noqa: E741
        return OuterProduct(tf.gather(l, self._ids), self._d)

    def masked(self, mask: tf.Tensor) -> PerExampleGradient:
        if mask.shape == self._d.shape[2:]:
            return Lookup(self._ids, self._d * mask, self._input_dim)
        return Materialized(self.materialize(), mask)

    def with_rows(self, mask: tf.Tensor) -> Lookup:
        """The gradient with other rows than those of `mask (input_dim,)` set to 0."""
        kept = tf.gather(mask, self._ids)[..., None]
        return Lookup(self._ids, self._d * kept, self._input_dim)

    @functools.cached_property
    def _gram(self) -> tf.Tensor:
        return tf.matmul(self._d, self._d, transpose_b=True)

    @functools.cached_property
    def _same_rows(self) -> tf.Tensor:
        return tf.equal(self._ids[:, :, None], self._ids[:, None, :])


class _Transposed(PerExampleGradient):
    """The transposed matrices `(k, input_dim)` of a lookup; masks are those of its rows."""

    def __init__(self, lookup: Lookup):
        self._lookup = lookup

    def squared_norms(self) -> tf.Tensor:
        return self._lookup.squared_norms()

    def squared_norm_bounds(self) -> tf.Tensor:
        return self._lookup.squared_norm_bounds()

    def weighted_sum(self, weights: tf.Tensor) -> tf.Tensor:
        return tf.transpose(self._lookup.weighted_sum(weights))

    def materialize(self) -> tf.Tensor:
        return tf.linalg.matrix_transpose(self._lookup.materialize())

    def joined_rows(self, weights: tf.Tensor) -> _Transposed:
        return _Transposed(self._lookup.joined_rows(weights))

    def right(self, r: tf.Tensor, view: MatrixView) -> PerExampleGradient:
        return Materialized(self.materialize()).right(r, view)

    def left(self, l: tf.Tensor, view: MatrixView) -> PerExampleGradient:  # noqa: E741
        return Materialized(self.materialize()).left(l, view)

    def masked(self, mask: tf.Tensor) -> PerExampleGradient:
        return _Transposed(self._lookup.with_rows(mask))

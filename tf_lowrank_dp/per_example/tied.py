"""Per-example gradients of a table that is looked up and projected with: tied embeddings."""

from __future__ import annotations

import functools
import math

import tensorflow as tf

from tf_lowrank_dp.per_example.arithmetic import arithmetic
from tf_lowrank_dp.per_example.gradient import UNDERFLOW, PerExampleGradient
from tf_lowrank_dp.per_example.lookup import Lookup
from tf_lowrank_dp.per_example.materialized import Materialized
from tf_lowrank_dp.per_example.outer_product import OuterProduct
from tf_lowrank_dp.per_example.parameter import MatrixView


class TiedGradient(PerExampleGradient):
    """`g_b = P_b^T Q_b + sum_t e(ids_bt) d_bt^T`: an outer product and rows looked up.

    A lookup is an outer product as well, with unit vectors `e(id)` that need not be written down.
    Both together are one outer product of `u + t` positions.  Its Gram matrix has the
    products `P_u[ids_t]` between the two kinds, so the norm costs `(u + t)^2 (i + o)` at most, and
    nothing of the size of the table is held for an example.  The bound is that of `OuterProduct`.

    Args:
        lookup: rows looked up.
        product: outer product of `P (b, u, i)`, such as the gradients of the logits, and
            `Q (b, u, o)`.
    """

    def __init__(self, lookup: Lookup, product: OuterProduct):
        self._lookup, self._product = lookup, product

    @functools.cached_property
    def _formed(self) -> Materialized | None:
        """The tables of the examples, where that is cheaper."""
        (p, q), (_, d) = self._product.pair, self._lookup.pair
        t, i, o = (p.shape[1], d.shape[1]), p.shape[2], q.shape[2]
        if None in t or i * o > sum(t) * (i + o):
            return None
        return Materialized(self._product.materialize() + self._lookup.materialize())

    def squared_norms(self) -> tf.Tensor:
        if self._formed is not None:
            return self._formed.squared_norms()
        (p, q), (ids, d) = self._product.pair, self._lookup.pair
        picked = tf.gather(p, ids, axis=2, batch_dims=1)  # (b, u, t)
        across = tf.reduce_sum(picked * tf.matmul(q, d, transpose_b=True), axis=[1, 2])
        alone = self._product.squared_norms() + self._lookup.squared_norms()
        return tf.maximum(alone + 2.0 * across, 0.0)

    def squared_norm_bounds(self) -> tf.Tensor:
        if self._formed is not None:
            return self._formed.squared_norm_bounds()
        (p, q), (_, d) = self._product.pair, self._lookup.pair
        i, o, t = p.shape[2], q.shape[2], tf.cast(tf.shape(p)[1] + tf.shape(d)[1], tf.float32)
        p, q, d = (tf.norm(tensor, axis=-1) for tensor in (p, q, d))
        of_product = tf.reduce_sum(p * q, axis=-1)
        a = of_product + tf.reduce_sum(d, axis=-1)
        # Two more additions than in `OuterProduct`, of its parts.
        roundoff, operand = arithmetic()
        slack = 2.0 * roundoff * (i + o + 2.0 * t + 10.0)
        rounded = tf.sqrt(self.squared_norms() + slack * tf.square(a)) + operand * of_product
        hidden_p, hidden_q = math.sqrt(i) * UNDERFLOW, math.sqrt(o) * UNDERFLOW
        hidden = tf.reduce_sum(hidden_p * (q + hidden_q) + hidden_q * p, axis=-1) + hidden_q * t
        return tf.square(rounded + 2.0 * hidden)

    def weighted_sum(self, weights: tf.Tensor) -> tf.Tensor:
        if self._formed is not None:
            return self._formed.weighted_sum(weights)
        return self._product.weighted_sum(weights) + self._lookup.weighted_sum(weights)

    def materialize(self) -> tf.Tensor:
        if self._formed is not None:
            return self._formed.materialize()
        return self._product.materialize() + self._lookup.materialize()

    def joined_rows(self, weights: tf.Tensor) -> TiedGradient:
        return TiedGradient(self._lookup.joined_rows(weights), self._product.joined_rows(weights))

    def right(self, r: tf.Tensor, view: MatrixView) -> PerExampleGradient:
        images = [g.right(r, view).materialize() for g in (self._product, self._lookup)]
        return Materialized(tf.add_n(images))

    def left(self, l: tf.Tensor, view: MatrixView) -> PerExampleGradient:  # noqa: E741
        return OuterProduct.joined([g.left(l, view) for g in (self._product, self._lookup)])

    def masked(self, mask: tf.Tensor) -> PerExampleGradient:
        return Materialized(self.materialize(), mask)

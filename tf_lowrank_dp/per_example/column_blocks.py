"""Per-example gradients of a kernel whose groups of columns have inputs of their own."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from tf_lowrank_dp.per_example.centrable import CentrableGradient
from tf_lowrank_dp.per_example.gradient import PerExampleGradient
from tf_lowrank_dp.per_example.materialized import Materialized
from tf_lowrank_dp.per_example.outer_product import OuterProduct
from tf_lowrank_dp.per_example.parameter import MatrixView


class ColumnBlocks(CentrableGradient):
    """`g_b = [X1_b^T D1_b | X2_b^T D2_b | ...]`: outer products side by side.

    The gates of a recurrent cell share one kernel, but may see different inputs: a GRU's candidate
    sees `r * h`, and dropout may have a mask for each gate.  The squared norm is the sum of
    those of the blocks.

    Args:
        blocks: outer products or column blocks of equally many rows, from left to right.
        widths: the number of columns of each.

    Example:

    >>> inputs = [tf.ones((3, 2, 4)), tf.zeros((3, 2, 4))]
    >>> ColumnBlocks.of(inputs, tf.ones((3, 2, 10))).squared_norms().numpy().tolist()
    [80.0, 80.0, 80.0]
    """

    def __init__(self, blocks: Sequence[OuterProduct | ColumnBlocks], widths: Sequence[int]):
        self._blocks, self._widths = list(blocks), list(widths)

    @classmethod
    def of(cls, inputs: Sequence[tf.Tensor], d: tf.Tensor) -> ColumnBlocks:
        """Blocks of equal width: `inputs` are `(b, t, i)` each, `d` is `(b, t, len(inputs) * o)`"""
        gradients = tf.split(d, len(inputs), axis=-1)
        blocks = [OuterProduct(x, part) for x, part in zip(inputs, gradients, strict=True)]
        return cls(blocks, [part.shape[-1] for part in gradients])

    def squared_norms(self) -> tf.Tensor:
        return tf.add_n([block.squared_norms() for block in self._blocks])

    def squared_norm_bounds(self) -> tf.Tensor:
        # All terms are positive: adding n of them is off by less than n roundoffs, which the slack
        # of each term, at least 16 roundoffs, was not made for.
        total = tf.add_n([block.squared_norm_bounds() for block in self._blocks])
        return total * (1.0 + 2.0**-23 * len(self._blocks))

    def weighted_sum(self, weights: tf.Tensor) -> tf.Tensor:
        return tf.concat([block.weighted_sum(weights) for block in self._blocks], axis=-1)

    def materialize(self) -> tf.Tensor:
        return tf.concat([block.materialize() for block in self._blocks], axis=-1)

    def joined_rows(self, weights: tf.Tensor) -> ColumnBlocks:
        return ColumnBlocks([block.joined_rows(weights) for block in self._blocks], self._widths)

    def right(self, r: tf.Tensor, view: MatrixView) -> OuterProduct:
        parts = tf.split(r, self._widths, axis=-1)
        images = [b.right(part, view) for b, part in zip(self._blocks, parts, strict=True)]
        return OuterProduct.joined(images)  # of `(k, i)`: columns have become positions

    def left(self, l: tf.Tensor, view: MatrixView) -> ColumnBlocks:  # noqa: E741
        return ColumnBlocks([block.left(l, view) for block in self._blocks], self._widths)

    def masked(self, mask: tf.Tensor) -> PerExampleGradient:
        return Materialized(self.materialize(), mask)

    def centred(self, centre: tf.Tensor) -> ColumnBlocks:
        return ColumnBlocks([block.centred(centre) for block in self._blocks], self._widths)

    def mean_inputs(self) -> tf.Tensor:
        """One mean for all blocks: any public centre will do."""
        means = [block.mean_inputs() for block in self._blocks]
        return tf.add_n(means) / len(means)

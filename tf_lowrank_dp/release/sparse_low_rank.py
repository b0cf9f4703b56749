"""LSG's release: carriers with the rows and columns of unimportant units frozen (Ito et al.)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import tensorflow as tf

from tf_lowrank_dp.release.low_rank import Carriers, LowRankSpace
from tf_lowrank_dp.release.masks import (
    important_columns,
    important_rows,
    largest,
    rows_of_units,
)

MASKS_FROM = ("weights", "carriers", "random")


@dataclasses.dataclass(frozen=True)
class MaskedCarriers(Carriers):
    """Carriers with `rows (m,)` and `columns (n,)`, ones for the units that are released."""

    rows: tf.Tensor
    columns: tf.Tensor


class SparseLowRankSpace(LowRankSpace):
    """`LowRankSpace` that releases only rows of `dL` and columns of `dR` of important units.

    The norm of an example is that of the released part; frozen entries have neither gradient nor
    noise in the lift's input.  The masks are chosen anew at each step.  They are applied to
    the small `dL` and `dR`: gathering the unfrozen activations before the products costs more
    than the products.

    Args:
        sparsity: fraction of the input units, and of the output units, that are frozen.
        is_sparse: scalar bool tensor, at each step whether anything is frozen; None for always.
        masks_from: "weights" (importance, the paper's choice), or for study "carriers" (importance
            of the rows of `L` and columns of `R` themselves) or "random".
        **kwargs: see `LowRankSpace`.
    """

    def __init__(
        self,
        *args,
        sparsity: float,
        is_sparse: Callable[[], tf.Tensor] | None = None,
        masks_from: str = "weights",
        **kwargs,
    ):
        self._sparsity, self._is_sparse, self._masks_from = sparsity, is_sparse, masks_from
        super().__init__(*args, **kwargs)

    carriers_class = MaskedCarriers

    def _parts(self, indexes: list[int]) -> list[tf.Tensor]:
        """`L`, `R`, rows `(j, m)` and columns `(j, n)`."""
        left, right = super()._parts(indexes)
        view = self.parameters[indexes[0]].view
        if self._masks_from == "random":
            j = len(indexes)
            scores = self._normal([(j, view.input_units), (j, view.columns)])
            units, columns = (largest(score, self._sparsity) for score in scores)
            rows = rows_of_units(units, view)
        else:
            of_rows, of_columns = left, right
            if self._masks_from == "weights":
                of_rows = of_columns = tf.stack([self.parameters[i].matrix() for i in indexes])
            rows = important_rows(of_rows, view, self._sparsity)
            columns = important_columns(of_columns, self._sparsity)
        if self._is_sparse is not None:
            dense = tf.cast(tf.logical_not(self._is_sparse()), tf.float32)
            rows, columns = tf.maximum(rows, dense), tf.maximum(columns, dense)
        return [left, right, rows, columns]

    def pieces(self, index, gradient, subspace):
        found = super().pieces(index, gradient, subspace)
        if index not in self.ranks:
            return found
        masks = self._piece_masks(subspace[index])
        return [piece.masked(mask) for piece, mask in zip(found, masks, strict=True)]

    def lift_piece(self, index, released, subspace):
        if index in self.ranks:
            masks = self._piece_masks(subspace[index])
            released = [tensor * mask for tensor, mask in zip(released, masks, strict=True)]
        return super().lift_piece(index, released, subspace)

    def _piece_masks(self, carriers: MaskedCarriers) -> list[tf.Tensor]:
        return [carriers.rows] * self._has_left + [carriers.columns] * self._has_right

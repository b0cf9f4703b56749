"""LSG freezes the rows and columns of unimportant units (Ito et al.)."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from tf_lowrank_dp.release.low_rank import Carriers, LowRankSpace, of_one_shape
from tf_lowrank_dp.release.masked import Masks
from tf_lowrank_dp.release.masks import (
    important_columns,
    important_rows,
    largest,
    rows_of_units,
)
from tf_lowrank_dp.release.space import Normal

MASKS_FROM = ("weights", "carriers", "random")


def unit_masks(
    space: LowRankSpace,
    sparsity: float,
    masks_from: str,
    normal: Normal,
    is_sparse: Callable[[], tf.Tensor] | None = None,
) -> Callable[[dict[int, Carriers]], Masks]:
    """Masks of `dL` and `dR`, with ones for the rows and columns of important units.

    They are applied to the small `dL` and `dR`: gathering the unfrozen activations before the
    products costs more than the products.

    Args:
        space: whose pieces are masked.
        sparsity: fraction of the input units, and of the output units, that are frozen.
        masks_from: "weights" (importance, the paper's choice), or for study "carriers" (importance
            of the rows of `L` and columns of `R` themselves) or "random".
        normal: public random numbers.
        is_sparse: gives a scalar bool tensor, at each step whether anything is frozen; None for
            always.

    Returns:
        What `MaskedSpace` takes: of each reparametrised matrix `(m,)` for `dL`, `(n,)` for `dR`.
    """

    def rows_and_columns(indexes: list[int], carriers: dict[int, Carriers]) -> list[tf.Tensor]:
        """`(j, m)` and `(j, n)` for `j` matrices of one shape."""
        view = space.parameters[indexes[0]].matrix_view
        if masks_from == "random":
            j = len(indexes)
            scores = normal([(j, view.input_units), (j, view.columns)])
            units, columns = (largest(score, sparsity) for score in scores)
            return [rows_of_units(units, view), columns]
        if masks_from == "weights":
            left = right = tf.stack([space.parameters[index].matrix() for index in indexes])
        else:
            left = tf.stack([carriers[index].left for index in indexes])
            right = tf.stack([carriers[index].right for index in indexes])
        return [important_rows(left, view, sparsity), important_columns(right, sparsity)]

    def masks(carriers: dict[int, Carriers]) -> Masks:
        found = {}
        for indexes in of_one_shape(space.parameters, space.ranks):
            both = rows_and_columns(indexes, carriers)
            if is_sparse is not None:
                dense = tf.cast(tf.logical_not(is_sparse()), tf.float32)
                both = [tf.maximum(mask, dense) for mask in both]
            for index, rows, columns in zip(indexes, *map(tf.unstack, both), strict=True):
                found[index] = [rows] * space.has_left + [columns] * space.has_right
        return found

    return masks

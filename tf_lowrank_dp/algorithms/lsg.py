"""Low-rank and sparse gradients (Ito et al.)."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from tf_lowrank_dp import _validate
from tf_lowrank_dp.algorithms.algorithm import Algorithm
from tf_lowrank_dp.algorithms.context import ReleaseContext
from tf_lowrank_dp.algorithms.rgp import RGP
from tf_lowrank_dp.release.masked import MaskedSpace
from tf_lowrank_dp.release.space import ReleaseSpace
from tf_lowrank_dp.release.unit_masks import MASKS_FROM, unit_masks


@dataclasses.dataclass(frozen=True)
class LSG(Algorithm):
    """RGP that freezes the rows and columns of unimportant units.

    Attributes:
        low_rank: what is released without masks; the paper's carriers are of the weights.
        sparsity: fraction of the input units, and of the output units, that are frozen; 0 is RGP.
        sparsity_start_step: number of updates of the weights from which on units are frozen.
        masks_from: where importance comes from, see `unit_masks`.
    """

    low_rank: RGP = RGP(carriers_from="weights")
    sparsity: float = 0.5
    sparsity_start_step: int = 0
    masks_from: str = "weights"

    name = "LSG"

    def __post_init__(self) -> None:
        _validate.fraction(sparsity=self.sparsity)
        _validate.integer_at_least(0, sparsity_start_step=self.sparsity_start_step)
        _validate.one_of(MASKS_FROM, masks_from=self.masks_from)

    def release_space(self, context: ReleaseContext) -> ReleaseSpace:
        space = self.low_rank.release_space(context)

        def is_sparse() -> tf.Tensor:
            return context.step() >= self.sparsity_start_step

        masks = unit_masks(
            space,
            self.sparsity,
            self.masks_from,
            context.normal,
            is_sparse if self.sparsity_start_step else None,
        )
        return MaskedSpace(space, masks)

"""Sparse DP-SGD, a baseline of Ito et al."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from tf_lowrank_dp import _validate
from tf_lowrank_dp.algorithms.algorithm import Algorithm
from tf_lowrank_dp.algorithms.context import ReleaseContext
from tf_lowrank_dp.algorithms.matrices import freeze_parts
from tf_lowrank_dp.release.identity import IdentitySpace
from tf_lowrank_dp.release.masked import MaskedSpace
from tf_lowrank_dp.release.selection import selected_matrices
from tf_lowrank_dp.release.space import ReleaseSpace
from tf_lowrank_dp.release.weight_masks import UNITS, weight_masks


@dataclasses.dataclass(frozen=True)
class SparseDPSGD(Algorithm):
    """Releases the gradients of the weights of each matrix that are largest at the step.

    Attributes:
        sparsity: fraction of each matrix that is frozen.
        unit: "weight" for single weights, "neuron" for all weights of an output unit.
        include: parts of variable paths, see `selected_matrices`.
        exclude: parts of variable paths, see `selected_matrices`.
    """

    sparsity: float = 0.5
    unit: str = "weight"
    include: Sequence[str] = ()
    exclude: Sequence[str] = ()

    name = "Sparse DP-SGD"

    def __post_init__(self) -> None:
        _validate.fraction(sparsity=self.sparsity)
        _validate.one_of(UNITS, unit=self.unit)
        freeze_parts(self, "include", "exclude")

    def release_space(self, context: ReleaseContext) -> ReleaseSpace:
        selected = selected_matrices(context.parameters, self.include, self.exclude)
        masks = weight_masks(context.parameters, selected, self.sparsity, self.unit)
        return MaskedSpace(IdentitySpace(context.parameters, context.groups), masks)

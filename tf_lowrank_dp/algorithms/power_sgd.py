"""DP-PowerSGD, a baseline of Yu et al. (ICML 2021)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from tf_lowrank_dp import _validate
from tf_lowrank_dp.algorithms.algorithm import Algorithm
from tf_lowrank_dp.algorithms.context import ReleaseContext
from tf_lowrank_dp.algorithms.matrices import freeze_parts, ranks_of
from tf_lowrank_dp.release.power_sgd import PowerSGDSpace
from tf_lowrank_dp.release.space import ReleaseSpace


@dataclasses.dataclass(frozen=True)
class DPPowerSGD(Algorithm):
    """Releases what DP-SGD does and projects it onto its own leading directions.

    Attributes:
        rank: number of directions of each matrix, at most its smaller side.
        power_iterations: how often the directions are refined.
        include: parts of variable paths, see `ranks_of`.
        exclude: parts of variable paths, see `ranks_of`.
    """

    rank: int = 8
    power_iterations: int = 1
    include: Sequence[str] = ()
    exclude: Sequence[str] = ()

    name = "DP-PowerSGD"

    def __post_init__(self) -> None:
        _validate.integer_at_least(1, rank=self.rank)
        _validate.integer_at_least(1, power_iterations=self.power_iterations)
        freeze_parts(self, "include", "exclude")

    def release_space(self, context: ReleaseContext) -> ReleaseSpace:
        return PowerSGDSpace(
            context.parameters,
            context.groups,
            ranks=ranks_of(context.parameters, self.rank, self.include, self.exclude),
            normal=context.normal,
            power_iterations=self.power_iterations,
        )

"""DP-SGD (Abadi et al. 2016)."""

from __future__ import annotations

import dataclasses

from tf_lowrank_dp.algorithms.algorithm import Algorithm
from tf_lowrank_dp.algorithms.context import ReleaseContext
from tf_lowrank_dp.release.identity import IdentitySpace
from tf_lowrank_dp.release.space import ReleaseSpace


@dataclasses.dataclass(frozen=True)
class DPSGD(Algorithm):
    """Releases the gradients as they are."""

    name = "DP-SGD"

    def release_space(self, context: ReleaseContext) -> ReleaseSpace:
        return IdentitySpace(context.parameters, context.groups)

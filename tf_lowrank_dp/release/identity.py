"""DP-SGD releases the gradients as they are (Abadi et al. 2016)."""

from __future__ import annotations

import typing

from tf_lowrank_dp.release.noise_energy import NoiseEnergy
from tf_lowrank_dp.release.space import PerVariableSpace


@typing.final
class IdentitySpace(PerVariableSpace):
    """The gradients themselves, in one block or one block for each group of variables."""

    def noise_energy(self, variances, normal, subspace=None):
        """All of the noise is in the gradients."""
        return NoiseEnergy.of(variances, [piece.sum() for [piece] in self.by_variable(variances)])

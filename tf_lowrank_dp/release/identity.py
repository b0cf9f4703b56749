"""DP-SGD releases the gradients as they are (Abadi et al. 2016)."""

from __future__ import annotations

import typing

from tf_lowrank_dp.release.noise_energy import NoiseEnergy, Variances
from tf_lowrank_dp.release.space import Normal, PerVariableSpace, Subspace


@typing.final
class IdentitySpace(PerVariableSpace):
    """The gradients themselves, in one block or one block for each group of variables."""

    def noise_energy(
        self, variances: Variances, normal: Normal, subspace: Subspace = None
    ) -> NoiseEnergy:
        """All of the noise is in the gradients."""
        return NoiseEnergy.of(variances, [piece.sum() for [piece] in self.by_variable(variances)])

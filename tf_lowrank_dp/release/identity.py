"""DP-SGD releases the gradients as they are (Abadi et al. 2016)."""

from __future__ import annotations

import typing

from tf_lowrank_dp.release.noise_energy import NoiseEnergy, Variances
from tf_lowrank_dp.release.space import Normal, PerVariableSpace, Subspace


@typing.final
class IdentitySpace(PerVariableSpace):
    """The gradients themselves, in one block or one block for each group of variables.

    Args:
        parameters: the trainable variables.
        groups: positions of the parameters of each block; each parameter in exactly one.

    Example:

    >>> import tensorflow as tf
    >>> from tf_lowrank_dp.per_example.parameter import Parameter
    >>> bias = Parameter(tf.Variable([1.0, 2.0]), "other", None, False)
    >>> IdentitySpace([bias], groups=[[0]]).shapes
    [[(2,)]]
    """

    def noise_energy(
        self, variances: Variances, normal: Normal, subspace: Subspace = None
    ) -> NoiseEnergy:
        """All of the noise is in the gradients."""
        return NoiseEnergy.of(variances, [piece.sum() for [piece] in self.by_variable(variances)])

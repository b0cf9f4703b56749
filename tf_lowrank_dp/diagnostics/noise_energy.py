"""How many numbers a step releases, and how much of their noise reaches the gradient."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tf_lowrank_dp.optimizers.base import DPOptimizer
from tf_lowrank_dp.optimizers.clips import unit_of
from tf_lowrank_dp.per_example.parameter import Parameter
from tf_lowrank_dp.release.noise_energy import NoiseEnergy
from tf_lowrank_dp.release.space import Normal


def unit_noise_energy(
    optimizer: DPOptimizer, parameters: Sequence[Parameter], normal: Normal
) -> NoiseEnergy:
    """The energy of noise at the present step of an optimizer, from public weights.

    In units of `(noise_multiplier * l2_norm_clip)^2`: noise of deviation 1 on what is released, but
    for blocks with clips or shares of their own.  The noise on block `j` has the variance
    `C_j^2 / (w_j l2_norm_clip^2)`.  A clip norm that is no number counts as 1: of automatic
    clipping it is, and what follows a quantile is in the energies.

    Args:
        optimizer: of this library or derived from it; left as it was.
        parameters: of the model.
        normal: public random numbers, for carriers, masks and draws.
    """
    state = optimizer.algorithm_state.copy()
    space = optimizer.release_space(optimizer.release_context(parameters, normal, state=state))
    blocks = optimizer.release_blocks(len(space.shapes))
    pairs = list(zip(blocks.clips, blocks.shares, strict=True))
    if math.isinf(blocks.l2_norm_clip) or len(set(pairs)) == 1:
        densities = [1.0] * len(pairs)
    else:
        total = unit_of(optimizer.l2_norm_clip) ** 2
        densities = [clip**2 / total / share for clip, share in pairs]
    variances = [
        [np.full(shape, density) for shape in shapes]
        for shapes, density in zip(space.shapes, densities, strict=True)
    ]
    return space.noise_energy(variances, normal)

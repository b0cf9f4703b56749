"""How many numbers a step releases, and how much of their noise reaches the gradient."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tf_lowrank_dp.optimizers.base import DPOptimizer
from tf_lowrank_dp.per_example.parameter import Parameter
from tf_lowrank_dp.release.noise_energy import NoiseEnergy
from tf_lowrank_dp.release.space import Normal


def unit_noise_energy(
    optimizer: DPOptimizer, parameters: Sequence[Parameter], normal: Normal
) -> NoiseEnergy:
    """The energy of noise at the present step of an optimizer, from public weights.

    In units of `(noise_multiplier * l2_norm_clip)^2`: noise of deviation 1 on what is released, but
    for blocks with clips of their own.  The noise on block `j` of `J` has the variance
    `J C_j^2 / sum C^2`.

    Args:
        optimizer: of this library or derived from it; left as it was.
        parameters: of the model.
        normal: public random numbers, for carriers, masks and draws.
    """
    state = optimizer.algorithm_state.copy()
    space = optimizer.release_space(optimizer.release_context(parameters, normal, state=state))
    clips = optimizer.block_clips(len(space.shapes))
    total, equal = sum(clip**2 for clip in clips), len(set(clips)) == 1
    shares = [1.0 if equal or math.isinf(clip) else len(clips) * clip**2 / total for clip in clips]
    variances = [
        [np.full(shape, share) for shape in shapes]
        for shapes, share in zip(space.shapes, shares, strict=True)
    ]
    return space.noise_energy(variances, normal)

"""What a private optimizer releases: the composed space, and the clips and noise of its blocks."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

import numpy as np

from tf_lowrank_dp.algorithms.algorithm import Algorithm
from tf_lowrank_dp.algorithms.context import ReleaseContext
from tf_lowrank_dp.release.centred import MEANS_CLIP, MEANS_SHARE, CentredSpace
from tf_lowrank_dp.release.scaled import ScaledSpace, scales_of
from tf_lowrank_dp.release.space import ReleaseSpace

CENTRES = "centre_"
"""Name of the centres in the state, before the position of the kernel."""


def composed_space(
    algorithm: Algorithm,
    context: ReleaseContext,
    gradient_scale: Mapping[str, float],
    centering: bool,
) -> ReleaseSpace:
    """The space of the algorithm for gradients that are centred first and scaled then."""
    space = algorithm.release_space(context)
    if gradient_scale:
        space = ScaledSpace(space, scales_of(context.parameters, gradient_scale))
    return centred_space(space, context) if centering else space


def centred_space(space: ReleaseSpace, context: ReleaseContext) -> CentredSpace:
    """The space of centred gradients, whose centres are kept in the context's state.

    Raises:
        ValueError: no kernel can be centred.
    """
    kernels = {i: p for i, p in enumerate(context.parameters) if p.bias is not None}
    if not kernels:
        raise ValueError(
            "Expected a layer whose kernel and bias are both trained, with centering=True. "
            f"Received: none, among {[p.path for p in context.parameters]}. Leave centering out."
        )
    context.state.keep_first(CENTRES, kernels, lambda kernel: np.zeros(kernel.centre_shape))
    centres = {index: context.state[f"{CENTRES}{index}"] for index in kernels}
    return CentredSpace(space, context.parameters, centres, context.step)


@dataclasses.dataclass(frozen=True)
class ReleaseBlocks:
    """Clips and shares of the blocks of a release space.

    Attributes:
        l2_norm_clip: largest norm of all that is released of an example.
        clips: `C_j`, whose squares add up to that of `l2_norm_clip`.
        shares: `w_j = (z / z_j)^2`, which add up to 1.
    """

    l2_norm_clip: float
    clips: tuple[float, ...]
    shares: tuple[float, ...]

    @classmethod
    def of(
        cls, algorithm: Algorithm, l2_norm_clip: float, num_blocks: int, centering: bool
    ) -> ReleaseBlocks:
        """Those of the algorithm, with equal shares of what the means' block, the last, leaves.

        Args:
            algorithm: whose clips sum up to `l2_norm_clip`.
            l2_norm_clip: of the gradients alone.
            num_blocks: of the composed space.
            centering: whether there is a block of means.
        """
        of_gradients = num_blocks - centering
        clips = algorithm.block_clips(l2_norm_clip, of_gradients)
        if not centering:
            return cls(l2_norm_clip, clips, (1.0 / num_blocks,) * num_blocks)
        shares = ((1.0 - MEANS_SHARE) / of_gradients,) * of_gradients
        joint = math.hypot(l2_norm_clip, MEANS_CLIP)
        return cls(joint, (*clips, MEANS_CLIP), (*shares, MEANS_SHARE))

"""What a private optimizer releases: the composed space, and the clips and noise of its blocks."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

import numpy as np

from tf_lowrank_dp.algorithms.algorithm import Algorithm
from tf_lowrank_dp.algorithms.context import ReleaseContext
from tf_lowrank_dp.optimizers.clips import AutomaticClip, ClipNorm, QuantileClip, unit_of
from tf_lowrank_dp.release.centred import MEANS_CLIP, MEANS_SHARE, CentredSpace
from tf_lowrank_dp.release.quantile import COUNTS_CLIP, COUNTS_SHARE, QuantileSpace
from tf_lowrank_dp.release.scaled import ScaledSpace, scales_of
from tf_lowrank_dp.release.space import ReleaseSpace

CENTRES = "centre_"
"""Name of the centres in the state, before the position of the kernel."""


CLIP_NORMS = "clip_norms"
"""Name of the clip norms that follow a quantile, in the state."""


def composed_space(
    algorithm: Algorithm,
    context: ReleaseContext,
    l2_norm_clip: ClipNorm,
    gradient_scale: Mapping[str, float],
    centering: bool,
) -> ReleaseSpace:
    """The algorithm's space for gradients that are centred first, scaled then, clipped at last."""
    space = algorithm.release_space(context)
    if isinstance(l2_norm_clip, QuantileClip):
        space = quantile_space(space, algorithm, context, l2_norm_clip)
    if gradient_scale:
        space = ScaledSpace(space, scales_of(context.parameters, gradient_scale))
    return centred_space(space, context) if centering else space


def quantile_space(
    space: ReleaseSpace, algorithm: Algorithm, context: ReleaseContext, clip: QuantileClip
) -> QuantileSpace:
    """The space in units of clip norms, which are kept in the context's state."""
    num_blocks, state = len(space.shapes), context.state
    if CLIP_NORMS not in state or state[CLIP_NORMS].shape != (num_blocks,):
        state.keep(CLIP_NORMS, np.full(num_blocks, clip.initial, np.float32))
    clips = algorithm.block_clips(unit_of(clip), num_blocks)
    return QuantileSpace(space, state[CLIP_NORMS], clips, clip.quantile, clip.rate)


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


def mechanism_name(algorithm: Algorithm, l2_norm_clip: ClipNorm, centering: bool) -> str:
    """What ledgers and statements call the releases."""
    rules = {AutomaticClip: ", automatic clip", QuantileClip: ", quantile clip"}
    return "centred " * centering + algorithm.name + rules.get(type(l2_norm_clip), "")


@dataclasses.dataclass(frozen=True)
class ReleaseBlocks:
    """Clips and shares of the blocks of a release space.

    Attributes:
        l2_norm_clip: largest norm of all that is released of an example.
        clips: `C_j`, whose squares add up to that of `l2_norm_clip`.
        shares: `w_j = (z / z_j)^2`, which add up to 1.
        stabilities: of blocks that are clipped automatically, None of others.
    """

    l2_norm_clip: float
    clips: tuple[float, ...]
    shares: tuple[float, ...]
    stabilities: tuple[float | None, ...]

    @classmethod
    def of(
        cls, algorithm: Algorithm, l2_norm_clip: ClipNorm, num_blocks: int, centering: bool
    ) -> ReleaseBlocks:
        """Those of the algorithm, with equal shares of what counts and means, the last, leave.

        Args:
            algorithm: whose clips sum up to `l2_norm_clip`.
            l2_norm_clip: of the gradients alone.
            num_blocks: of the composed space.
            centering: whether there is a block of means.
        """
        last = [(COUNTS_CLIP, COUNTS_SHARE)] * isinstance(l2_norm_clip, QuantileClip)
        last += [(MEANS_CLIP, MEANS_SHARE)] * centering
        of_gradients = num_blocks - len(last)
        unit = unit_of(l2_norm_clip)
        stability = l2_norm_clip.stability if isinstance(l2_norm_clip, AutomaticClip) else None
        share = (1.0 - math.fsum(share for _, share in last)) / of_gradients
        return cls(
            math.hypot(unit, *(clip for clip, _ in last)),
            (*algorithm.block_clips(unit, of_gradients), *(clip for clip, _ in last)),
            (share,) * of_gradients + tuple(share for _, share in last),
            (stability,) * of_gradients + (None,) * len(last),
        )

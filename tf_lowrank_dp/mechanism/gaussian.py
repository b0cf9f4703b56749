"""The privacy wall: the one place where private sums become public.

Everything before this file touches private examples, everything after it is post-processing.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import dp_accounting
import numpy as np
import tensorflow as tf

from tf_lowrank_dp.mechanism.clipping import clip_factors
from tf_lowrank_dp.mechanism.noise import NoiseGenerator
from tf_lowrank_dp.release.space import Block


@dataclasses.dataclass(frozen=True)
class GaussianMechanism:
    """Clips each example, sums, and adds Gaussian noise, once for each logical batch.

    Formal guarantee: with `J` blocks, each clipped at `l2_norm_clip / sqrt(J)`, adding or removing
    one record moves the joint release by at most `l2_norm_clip` in L2 norm; every coordinate
    gets noise of standard deviation `noise_multiplier * l2_norm_clip`.  The release is one
    Gaussian mechanism with the multiplier that `event` reports.

    Attributes:
        l2_norm_clip: sensitivity of the whole release; `inf` only without noise.
        noise_multiplier: effective multiplier of the whole release; 0 skips the noise.
        num_blocks: `J`.
    """

    l2_norm_clip: float
    noise_multiplier: float
    num_blocks: int = 1

    @property
    def event(self) -> dp_accounting.GaussianDpEvent:
        """What one release costs, before amplification by sampling."""
        return dp_accounting.GaussianDpEvent(self.noise_multiplier)

    @property
    def block_clip(self) -> float:
        """The largest norm of one example in one block."""
        return self.l2_norm_clip / math.sqrt(self.num_blocks)

    def clipped_sums(self, blocks: Sequence[Block], presence: tf.Tensor) -> list[list[tf.Tensor]]:
        """Sums of clipped examples, still private.

        Args:
            blocks: `num_blocks` lists of per-example gradients, each clipped jointly.
            presence: float32 `(b,)`, 0 for padding.
        """
        sums = []
        for block in blocks:
            factors = clip_factors(block, presence, self.block_clip)
            sums.append([gradient.weighted_sum(factors) for gradient in block])
        return sums

    def release(
        self, sums: Sequence[Sequence[tf.Tensor]], noise: NoiseGenerator
    ) -> list[list[tf.Tensor]]:
        """The sums with noise: from here on public."""
        if self.noise_multiplier == 0.0:
            return [list(block) for block in sums]
        # Rounded up: never less noise than is accounted for.
        deviation = np.nextafter(np.float32(self.noise_multiplier * self.l2_norm_clip), np.inf)
        flat = [tensor for block in sums for tensor in block]
        normals = iter(noise.normal([tuple(tensor.shape) for tensor in flat]))
        return [[tensor + deviation * next(normals) for tensor in block] for block in sums]

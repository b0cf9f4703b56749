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
from tf_lowrank_dp.workers import ALONE, Needed, Workers


@dataclasses.dataclass(frozen=True)
class GaussianMechanism:
    """Clips each example, sums, and adds Gaussian noise, once for each logical batch.

    Formal guarantee: each of `J` blocks is clipped at its `C_j`, so adding or removing one record
    moves block `j` by at most `C_j` in L2 norm, and gets noise of standard deviation
    `z_j C_j` in every coordinate, with `z_j = noise_multiplier / sqrt(w_j)` and shares `w_j` that
    add up to 1.  In units of the noise the joint release moves by at most
    `sqrt(sum_j (C_j / (z_j C_j))^2) = sqrt(sum_j w_j) / noise_multiplier = 1 / noise_multiplier`:
    divided by its deviations it is one Gaussian mechanism with the multiplier that `event` reports.

    By default `C_j = l2_norm_clip / sqrt(J)` and `w_j = 1 / J`; then the deviation is
    `noise_multiplier * l2_norm_clip` everywhere.  With clips of 4 and 3 and a multiplier of 1, say,
    the deviations are `4 sqrt(2)` and `3 sqrt(2)`, and `(4 / 5.66)^2 + (3 / 4.24)^2 = 1`; with
    shares of 0.96 and 0.04 they are 4.08 and 15, and `(4 / 4.08)^2 + (3 / 15)^2 = 1`.

    Attributes:
        l2_norm_clip: sensitivity of the whole release, `sqrt(sum_j C_j^2)`; `inf` only without
            noise.
        noise_multiplier: effective multiplier of the whole release; 0 skips the noise.
        num_blocks: `J`.
        block_clips: `C_j` for each block; left out, they are equal.
        shares: `w_j` for each block; left out, they are equal.
        stabilities: for each block None, or that of automatic clipping, which divides each example
            by a norm that is larger by this; left out, None.
    """

    l2_norm_clip: float
    noise_multiplier: float
    num_blocks: int = 1
    block_clips: tuple[float, ...] = ()
    shares: tuple[float, ...] = ()
    stabilities: tuple[float | None, ...] = ()

    def __post_init__(self) -> None:
        equal = self.l2_norm_clip / math.sqrt(self.num_blocks)
        clips = tuple(self.block_clips) or (equal,) * self.num_blocks
        joint = math.hypot(*clips)
        if len(clips) != self.num_blocks or not (
            joint == self.l2_norm_clip or math.isclose(joint, self.l2_norm_clip)
        ):
            raise ValueError(
                f"Expected {self.num_blocks} block_clips whose squares add up to that of "
                f"l2_norm_clip={self.l2_norm_clip}. Received: {clips}. Correct one of them."
            )
        object.__setattr__(self, "block_clips", clips)
        shares = tuple(self.shares) or (1.0 / self.num_blocks,) * self.num_blocks
        # Rounded as `math.fsum` is; noise is rounded up by far more.
        adds_up = math.isclose(math.fsum(shares), 1.0, rel_tol=1e-12)
        if len(shares) != self.num_blocks or min(shares) <= 0.0 or not adds_up:
            raise ValueError(
                f"Expected {self.num_blocks} positive shares that add up to 1. Received: {shares}. "
                "Correct them."
            )
        object.__setattr__(self, "shares", shares)
        stabilities = tuple(self.stabilities) or (None,) * self.num_blocks
        object.__setattr__(self, "stabilities", stabilities)

    @property
    def event(self) -> dp_accounting.GaussianDpEvent:
        """What one release costs, before amplification by sampling."""
        return dp_accounting.GaussianDpEvent(self.noise_multiplier)

    @property
    def deviations(self) -> tuple[float, ...]:
        """Standard deviation of the noise of each block."""
        if len(set(self.block_clips)) == len(set(self.shares)) == 1:
            return (self.noise_multiplier * self.l2_norm_clip,) * self.num_blocks
        pairs = zip(self.block_clips, self.shares, strict=True)
        return tuple(self.noise_multiplier / math.sqrt(share) * clip for clip, share in pairs)

    def clipped_sums(self, blocks: Sequence[Block], presence: tf.Tensor) -> list[list[tf.Tensor]]:
        """Sums of clipped examples, still private.

        Args:
            blocks: `num_blocks` lists of per-example gradients, each clipped jointly.
            presence: float32 `(b,)`, 0 for padding.
        """
        sums = []
        settings = zip(self.block_clips, self.stabilities, strict=True)
        for block, (clip, stability) in zip(blocks, settings, strict=True):
            factors = clip_factors(block, presence, clip, stability)
            sums.append([gradient.weighted_sum(factors) for gradient in block])
        return sums

    def release(
        self,
        sums: Sequence[Sequence[tf.Tensor]],
        noise: NoiseGenerator,
        workers: Workers = ALONE,
        needed: Needed | None = None,
    ) -> list[list[tf.Tensor]]:
        """The sums over all workers with noise: from here on public.

        Guarantee: no tape sees further than this.  A derivative of a released sum would be one of
        private gradients, without clip or noise.

        The chief adds it to its own sums before these are added to those of the others.

        Args:
            sums: of the examples of this worker.
            noise: of the chief.
            workers: one or several.
            needed: which numbers are used; several workers leave zeros for the others.
        """
        if workers.is_chief:
            released = workers.added(self._with_noise(sums, noise), sources=1, needed=needed)
        else:
            released = workers.added(sums, sources=0, needed=needed)
        return tf.nest.map_structure(tf.stop_gradient, released)

    def _with_noise(
        self, sums: Sequence[Sequence[tf.Tensor]], noise: NoiseGenerator
    ) -> list[list[tf.Tensor]]:
        if self.noise_multiplier == 0.0:
            return [list(block) for block in sums]
        # Rounded up: never less noise than is accounted for.
        deviations = [np.nextafter(np.float32(d), np.float32(np.inf)) for d in self.deviations]
        flat = [tensor for block in sums for tensor in block]
        normals = iter(noise.normal([tuple(tensor.shape) for tensor in flat]))
        return [
            [tensor + tf.cast(deviation * next(normals), tensor.dtype) for tensor in block]
            for block, deviation in zip(sums, deviations, strict=True)
        ]

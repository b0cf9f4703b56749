"""What is released in units of clip norms that follow a quantile of the examples' norms."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import tensorflow as tf

from tf_lowrank_dp.per_example.gradient import PerExampleGradient
from tf_lowrank_dp.per_example.materialized import Materialized
from tf_lowrank_dp.release.noise_energy import NoiseEnergy, Variances
from tf_lowrank_dp.release.scaled import ScaledTensor
from tf_lowrank_dp.release.space import Block, Normal, ReleaseSpace, Subspace

COUNTS_CLIP = 1.0
"""Largest norm of an example's part in the counts, in the units in which they are released."""

COUNTS_SHARE = 0.01
"""Of `1 / z^2`, what the counts get: the gradients have 0.5 % more noise than without them."""

_LEAST, _MOST = 1e-6, 1e6


@dataclasses.dataclass(frozen=True)
class ClipNorms:
    """The subspace of a step: that of the gradients, and the clip norms.

    Attributes:
        inner: subspace of the other space.
        values: float32 `(blocks,)`.
    """

    inner: Subspace
    values: tf.Tensor


class QuantileSpace(ReleaseSpace):
    """Another space in units of clip norms; a last block has counts, which the clip norms follow.

    Block `j` of the other space is divided by `T_j`, so that a clip of the mechanism at `clips_j`
    is one at `T_j clips_j`, and multiplied by it in the lift.  The last block has for each of the
    others a number of which the sign says whether the example's norm was below this.

    Formal guarantee: the clip norms of a step come from releases of earlier steps alone; `lift`,
    which is past the noise, has the new ones take effect at the next `refresh`.

    Args:
        space: the space of the gradients, of `J` blocks.
        clip_norms: float32 variable `(J,)`, positive: what earlier releases have made of `T`.
        clips: of the mechanism, for each block of `space`.
        quantile: fraction of the examples whose norm shall be below the clip.
        rate: `T_j` is multiplied by `exp(-rate (fraction below - quantile))`.

    Example: one example above its clip norm and one below it.

    >>> from tf_lowrank_dp.per_example.parameter import Parameter
    >>> from tf_lowrank_dp.release.identity import IdentitySpace
    >>> bias = Parameter(tf.Variable([0.0, 0.0]), "other", None, False)
    >>> space = QuantileSpace(IdentitySpace([bias], [[0]]), tf.Variable([2.0]), clips=[1.0],
    ...                       quantile=0.5, rate=0.2)
    >>> gradients = Materialized(tf.constant([[3.0, 4.0], [1.0, 0.0]]))
    >>> [gradient], [counts] = space.project([gradients], space.refresh())
    >>> gradient.materialize().numpy().tolist(), counts.materialize().numpy().tolist()
    ([[1.5, 2.0], [0.5, 0.0]], [[-1.0], [1.0]])
    """

    def __init__(
        self,
        space: ReleaseSpace,
        clip_norms: tf.Variable,
        clips: Sequence[float],
        quantile: float,
        rate: float,
    ):
        self._space, self._next, self._clips = space, clip_norms, list(clips)
        self._quantile, self._rate = quantile, rate
        self._unit = COUNTS_CLIP / math.sqrt(len(self._clips))
        self.shapes = [*space.shapes, [(len(self._clips),)]]

    def refresh(self) -> ClipNorms:
        """The subspace of the other space, and clip norms as earlier releases have left them."""
        return ClipNorms(self._space.refresh(), tf.identity(self._next))

    def project(
        self, gradients: Sequence[PerExampleGradient], subspace: ClipNorms
    ) -> Sequence[Block]:
        found = self._space.project(gradients, subspace.inner)
        scales = tf.unstack(1.0 / subspace.values, num=len(self._clips))
        blocks = [
            [ScaledTensor(tensor, scale) for tensor in block]
            for block, scale in zip(found, scales, strict=True)
        ]
        signs = [_sign(block, clip) for block, clip in zip(blocks, self._clips, strict=True)]
        return [*blocks, [Materialized(self._unit * tf.stack(signs, axis=1))]]

    def lift(self, released: Sequence[Sequence[tf.Tensor]], subspace: ClipNorms) -> list[tf.Tensor]:
        *blocks, [counts] = released
        below = 0.5 + 0.5 / self._unit * counts
        moved = subspace.values * tf.exp(-self._rate * (below - self._quantile))
        self._next.assign(tf.clip_by_value(moved, _LEAST, _MOST))
        norms = tf.unstack(subspace.values, num=len(self._clips))
        scaled = [[norm * t for t in block] for block, norm in zip(blocks, norms, strict=True)]
        return self._space.lift(scaled, subspace.inner)

    def noise_energy(
        self, variances: Variances, normal: Normal, subspace: ClipNorms | None = None
    ) -> NoiseEnergy:
        """That of the other space at the present clip norms; the counts are not lifted."""
        norms = tf.convert_to_tensor(self._next if subspace is None else subspace.values).numpy()
        *blocks, counts = variances
        scaled = [[v * norm**2 for v in block] for block, norm in zip(blocks, norms, strict=True)]
        inner = None if subspace is None else subspace.inner
        found = self._space.noise_energy(scaled, normal, inner)
        own = NoiseEnergy.of([counts], [])
        return dataclasses.replace(
            found, released=found.released + own.released, raw=found.raw + own.raw
        )


def _sign(block: Block, clip: float) -> tf.Tensor:
    """1 where the norm of an example's block is at most `clip`, -1 where not, 0 where not finite.

    An example that is not finite contributes nothing, to the counts as well.
    """
    bound = tf.sqrt(tf.add_n([tensor.squared_norm_bounds() for tensor in block]))
    sign = tf.where(bound <= clip, 1.0, -1.0)
    return tf.where(tf.math.is_finite(bound), sign, 0.0)

"""How much of the noise that is added to a release reaches the gradients."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
import tensorflow as tf

Variances: TypeAlias = list[list[np.ndarray]]
"""For each tensor of each block the variances of the noise on its numbers, float64."""


class Lifting(Protocol):
    """The way back of a release space."""

    shapes: list[list[tuple[int, ...]]]

    def lift(self, released: Sequence[Sequence[tf.Tensor]], subspace: Any) -> list[tf.Tensor]:
        """From the sums of the blocks to one tensor per variable."""
        ...


@dataclasses.dataclass(frozen=True)
class NoiseEnergy:
    """`E|noise|^2` of one step.

    Attributes:
        released: number of coordinates with noise on them: those that are not frozen.
        raw: energy of the noise on them.
        lifted: energy of the noise in the lifted gradient of each variable.
        is_estimate: whether `lifted` is not exact.
        shared: positions of variables of which only the sum of `lifted` is known.

    Example: unit noise on three numbers, and a lift that doubles them.

    >>> NoiseEnergy.of([[np.ones(3)]], lifted=[12.0])
    NoiseEnergy(released=3, raw=3.0, lifted=[12.0], is_estimate=False, shared=())
    """

    released: int
    raw: float
    lifted: list[float]
    is_estimate: bool = False
    shared: Sequence[Sequence[int]] = ()

    @classmethod
    def of(cls, variances: Variances, lifted: Sequence[float], **attributes: Any) -> NoiseEnergy:
        """With the counts and the energy of what is released."""
        tensors = [tensor for block in variances for tensor in block]
        released = sum(int(np.count_nonzero(tensor)) for tensor in tensors)
        raw = sum(float(np.sum(tensor)) for tensor in tensors)
        return cls(released, raw, [float(energy) for energy in lifted], **attributes)

    @classmethod
    def tried(
        cls, space: Lifting, variances: Variances, subspace: Any, normal: Callable
    ) -> NoiseEnergy:
        """Lifts one draw: for lifts without a closed form, or that are not linear."""
        noise = [
            [tf.constant(np.sqrt(v), tf.float32) * n for v, n in zip(block, draws, strict=True)]
            for block, draws in zip(variances, map(normal, space.shapes), strict=True)
        ]
        lifted = space.lift(noise, subspace)
        energies = [float(tf.reduce_sum(tf.square(tensor))) for tensor in lifted]
        return cls.of(variances, energies, is_estimate=True)

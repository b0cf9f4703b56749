"""What an algorithm releases: linear images of the per-example gradients, in blocks."""

from __future__ import annotations

import abc
from collections.abc import Sequence

import tensorflow as tf

from tf_lowrank_dp.per_example.gradient import PerExampleGradient

Block = list[PerExampleGradient]


class ReleaseSpace(abc.ABC):
    """A linear map of per-example gradients and the map back; all an algorithm is.

    A space is chosen from public inputs only (weights, their history, public data): it never sees
    a per-example gradient before `project`, and nothing leaves `project` but through the
    mechanism.
    """

    shapes: list[list[tuple[int, ...]]]
    """For each block, which is clipped by itself, the shapes of what it releases."""

    @abc.abstractmethod
    def project(self, gradients: Sequence[PerExampleGradient]) -> list[Block]:
        """From one gradient per trainable variable to the blocks that are released."""

    @abc.abstractmethod
    def lift(self, released: Sequence[Sequence[tf.Tensor]]) -> list[tf.Tensor]:
        """From the noisy sums of the blocks back to one tensor per trainable variable."""

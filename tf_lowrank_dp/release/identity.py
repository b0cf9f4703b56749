"""DP-SGD releases the gradients as they are (Abadi et al. 2016)."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from tf_lowrank_dp.per_example.gradient import PerExampleGradient
from tf_lowrank_dp.release.space import Block, ReleaseSpace


class IdentitySpace(ReleaseSpace):
    """The gradients themselves, in one block or one block for each group of variables.

    Args:
        variables: the trainable variables.
        groups: positions of the variables of each block; each variable in exactly one.
    """

    def __init__(self, variables: Sequence, groups: Sequence[Sequence[int]]):
        self._groups = [list(group) for group in groups]
        self.shapes = [[tuple(variables[i].shape) for i in group] for group in self._groups]

    def project(self, gradients: Sequence[PerExampleGradient]) -> list[Block]:
        return [[gradients[index] for index in group] for group in self._groups]

    def lift(self, released: Sequence[Sequence[tf.Tensor]]) -> list[tf.Tensor]:
        by_index = {
            index: tensor
            for group, tensors in zip(self._groups, released, strict=True)
            for index, tensor in zip(group, tensors, strict=True)
        }
        return [by_index[index] for index in sorted(by_index)]

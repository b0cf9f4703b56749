"""What an algorithm releases: linear images of the per-example gradients, in blocks."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence

import tensorflow as tf

from tf_lowrank_dp.per_example.gradient import PerExampleGradient
from tf_lowrank_dp.per_example.parameter import Parameter

Block = list[PerExampleGradient]

Normal = Callable[[Sequence[tuple[int, ...]]], list[tf.Tensor]]
"""Standard normal float32 tensors of the shapes given, fresh at each call."""


class ReleaseSpace(abc.ABC):
    """A linear map of per-example gradients and the map back; all an algorithm is.

    A space is chosen from public inputs only (weights, their history, public data, random
    numbers): it never sees a per-example gradient before `project`, and nothing leaves `project`
    but through the mechanism.
    """

    shapes: list[list[tuple[int, ...]]]
    """For each block, which is clipped by itself, the shapes of what it releases."""

    def refresh(self) -> object:
        """The subspace of the next step, chosen from public inputs; once a logical batch."""
        return None

    @abc.abstractmethod
    def project(self, gradients: Sequence[PerExampleGradient], subspace) -> list[Block]:
        """From one gradient per trainable variable to the blocks that are released."""

    @abc.abstractmethod
    def lift(self, released: Sequence[Sequence[tf.Tensor]], subspace) -> list[tf.Tensor]:
        """From the noisy sums of the blocks back to one tensor per trainable variable."""


class PerVariableSpace(ReleaseSpace):
    """A space that releases something of each variable, whatever the others are.

    Here the gradients are released as they are; subclasses say what is released instead.

    Args:
        parameters: the trainable variables.
        groups: positions of the parameters of each block; each parameter in exactly one.
    """

    def __init__(self, parameters: Sequence[Parameter], groups: Sequence[Sequence[int]]):
        self.parameters = list(parameters)
        self._groups = [list(group) for group in groups]
        self.shapes = [
            [shape for index in group for shape in self.piece_shapes(index)]
            for group in self._groups
        ]

    def piece_shapes(self, index: int) -> list[tuple[int, ...]]:
        """Shapes of what is released of a parameter."""
        return [self.parameters[index].shape]

    def pieces(self, index: int, gradient: PerExampleGradient, subspace) -> Block:
        """What is released of a parameter."""
        return [gradient]

    def lift_piece(self, index: int, released: list[tf.Tensor], subspace) -> tf.Tensor:
        """From the noisy sums of `pieces` back to the parameter's shape."""
        return released[0]

    def project(self, gradients, subspace):
        return [
            [piece for index in group for piece in self.pieces(index, gradients[index], subspace)]
            for group in self._groups
        ]

    def lift(self, released, subspace):
        lifted = {}
        for group, tensors in zip(self._groups, released, strict=True):
            remaining = iter(tensors)
            for index in group:
                pieces = [next(remaining) for _ in self.piece_shapes(index)]
                lifted[index] = self.lift_piece(index, pieces, subspace)
        return [lifted[index] for index in range(len(self.parameters))]

"""What an algorithm releases: linear images of the per-example gradients, in blocks."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeAlias, TypeVar

import tensorflow as tf

from tf_lowrank_dp.per_example.gradient import PerExampleGradient, PerExampleTensor
from tf_lowrank_dp.per_example.parameter import Parameter
from tf_lowrank_dp.release.noise_energy import NoiseEnergy, Variances

Block: TypeAlias = Sequence[PerExampleTensor]

Subspace: TypeAlias = Any
"""What `refresh` chose for a step; each space has its own and understands no other."""

Normal: TypeAlias = Callable[[Sequence[tuple[int, ...]]], list[tf.Tensor]]
"""Standard normal float32 tensors of the shapes given, fresh at each call."""


Piece = TypeVar("Piece")


class ReleaseSpace(abc.ABC):
    """A linear map of per-example gradients and the map back; all an algorithm is.

    A space is chosen from public inputs only (weights, their history, public data, random
    numbers): it never sees a per-example gradient before `project`, and nothing leaves `project`
    but through the mechanism.

    Example: a space that releases nothing of the first variable, which stays as it is.

    >>> class AllButTheFirst(ReleaseSpace):
    ...     def __init__(self, parameters):
    ...         self.first, *others = parameters
    ...         self.shapes = [[parameter.shape for parameter in others]]
    ...
    ...     def project(self, gradients, subspace):
    ...         return [list(gradients[1:])]
    ...
    ...     def lift(self, released, subspace):
    ...         return [tf.zeros(self.first.shape), *released[0]]
    >>> parameters = [Parameter(tf.Variable(tf.ones(n)), "other", None, False) for n in (2, 3)]
    >>> [tensor.shape[0] for tensor in AllButTheFirst(parameters).lift([[tf.ones(3)]], None)]
    [2, 3]
    """

    shapes: list[list[tuple[int, ...]]]
    """For each block, which is clipped by itself, the shapes of what it releases."""

    def refresh(self) -> Subspace:
        """The subspace of the next step, chosen from public inputs; once a logical batch."""
        return None

    @abc.abstractmethod
    def project(
        self, gradients: Sequence[PerExampleGradient], subspace: Subspace
    ) -> Sequence[Block]:
        """From one gradient per trainable variable to the blocks that are released.

        Args:
            gradients: of the trainable variables, in the order of the parameters.
            subspace: what `refresh` returned.

        Returns:
            For each block a list of tensors, of the shapes in `shapes` for each example.
        """

    @abc.abstractmethod
    def lift(self, released: Sequence[Sequence[tf.Tensor]], subspace: Subspace) -> list[tf.Tensor]:
        """From the noisy sums of the blocks back to one tensor per trainable variable.

        Args:
            released: float32 tensors of the shapes in `shapes`.
            subspace: what `refresh` returned.

        Returns:
            Float32 tensors of the variables' shapes, in the order of the parameters.
        """

    def needed(self, subspace: Subspace) -> list[list[tf.Tensor | None]]:
        """Which numbers of the released sums `lift` reads: several workers send no others.

        Args:
            subspace: what `refresh` returned.

        Returns:
            For each released tensor zeros and ones that broadcast to its shape; None for all.
        """
        return [[None] * len(block) for block in self.shapes]

    def updating(self) -> AbstractContextManager:
        """Context in which the weights are updated by what `lift` gave; for coordinates of its own.

        A space whose lift gives gradients of other coordinates than the variables completes the
        update here, from public values.
        """
        return nullcontext()

    def noise_energy(
        self, variances: Variances, normal: Normal, subspace: Subspace = None
    ) -> NoiseEnergy:
        """How much noise a step adds; here by lifting one draw, closed forms are for subclasses.

        For diagnostics, outside of graphs: no step asks for it.

        Args:
            variances: of the noise on what is released, in the form of `shapes`.
            normal: public random numbers.
            subspace: of a step; None for that of the next one.
        """
        subspace = self.refresh() if subspace is None else subspace
        return NoiseEnergy.tried(self, variances, subspace, normal)


class PerVariableSpace(ReleaseSpace):
    """A space that releases something of each variable, whatever the others are.

    Here the gradients are released as they are; subclasses say what is released instead.

    Args:
        parameters: the trainable variables.
        groups: positions of the parameters of each block; each parameter in exactly one.

    Example: the mean of each column of a kernel.

    >>> from tf_lowrank_dp.per_example.materialized import Materialized
    >>> from tf_lowrank_dp.per_example.parameter import MatrixView
    >>> class ColumnMeans(PerVariableSpace):
    ...     def piece_shapes(self, index):
    ...         return [(1, self.parameters[index].view.columns)]
    ...
    ...     def pieces(self, index, gradient, subspace):
    ...         view = self.parameters[index].view
    ...         return [gradient.left(tf.ones((view.rows, 1)) / view.rows**0.5, view)]
    ...
    ...     def lift_piece(self, index, released, subspace):
    ...         view = self.parameters[index].view
    ...         return tf.ones((view.rows, 1)) / view.rows**0.5 @ released[0]
    >>> kernel = Parameter(tf.Variable(tf.ones((4, 3))), "kernel", MatrixView.of((4, 3)), False)
    >>> space = ColumnMeans([kernel], groups=[[0]])
    >>> blocks = space.project([Materialized(tf.ones((7, 4, 3)))], None)
    >>> [lifted] = space.lift([[blocks[0][0].weighted_sum(tf.ones(7))]], None)
    >>> space.shapes, lifted.numpy().max()
    ([[(1, 3)]], np.float32(7.0))
    """

    def __init__(self, parameters: Sequence[Parameter], groups: Sequence[Sequence[int]]):
        self.parameters = list(parameters)
        self.groups = [list(group) for group in groups]
        self.shapes = self.in_blocks(
            [self.piece_shapes(index) for index in range(len(self.parameters))]
        )

    def piece_shapes(self, index: int) -> list[tuple[int, ...]]:
        """Shapes of what is released of a parameter."""
        return [self.parameters[index].shape]

    def pieces(
        self, index: int, gradient: PerExampleGradient, subspace: Subspace
    ) -> Sequence[PerExampleGradient]:
        """What is released of a parameter."""
        return [gradient]

    def lift_piece(self, index: int, released: list[tf.Tensor], subspace: Subspace) -> tf.Tensor:
        """From the noisy sums of `pieces` back to the parameter's shape."""
        return released[0]

    def project(
        self, gradients: Sequence[PerExampleGradient], subspace: Subspace
    ) -> Sequence[Block]:
        return self.in_blocks([self.pieces(i, g, subspace) for i, g in enumerate(gradients)])

    def lift(self, released: Sequence[Sequence[tf.Tensor]], subspace: Subspace) -> list[tf.Tensor]:
        pieces = self.by_variable(released)
        return [self.lift_piece(index, found, subspace) for index, found in enumerate(pieces)]

    def in_blocks(self, pieces: Sequence[Sequence[Piece]]) -> list[list[Piece]]:
        """Pieces of each parameter, in the order of the blocks."""
        return [[piece for index in group for piece in pieces[index]] for group in self.groups]

    def by_variable(self, blocks: Sequence[Sequence[Piece]]) -> list[list[Piece]]:
        """The inverse of `in_blocks`."""
        found: dict[int, list[Piece]] = {}
        for group, pieces in zip(self.groups, blocks, strict=True):
            remaining = iter(pieces)
            for index in group:
                found[index] = [next(remaining) for _ in self.piece_shapes(index)]
        return [found[index] for index in range(len(self.parameters))]

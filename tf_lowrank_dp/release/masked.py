"""Releases some coordinates only of what another space releases."""

from __future__ import annotations

import typing
from collections.abc import Callable, Sequence
from typing import TypeAlias

import tensorflow as tf

from tf_lowrank_dp.per_example.gradient import PerExampleGradient
from tf_lowrank_dp.release.noise_energy import NoiseEnergy, Variances
from tf_lowrank_dp.release.space import Normal, PerVariableSpace, Subspace

Masks: TypeAlias = dict[int, list[tf.Tensor]]
"""By the position of a variable, zeros and ones that broadcast to each of its pieces."""


@typing.final
class MaskedSpace(PerVariableSpace):
    """Another space, with zeros at the coordinates that are frozen.

    The norm of an example is that of what is left; frozen coordinates have neither gradient nor
    noise in the lift's input.  Masks are chosen anew at each step.

    Formal guarantee: masks are chosen from the other space's subspace and from what `masks` knows,
    public inputs both.

    Args:
        space: what is released without masks.
        masks: gives the masks of a step for the other space's subspace.

    Example: the second number of a bias is frozen.

    >>> from tf_lowrank_dp.per_example.parameter import Parameter
    >>> from tf_lowrank_dp.release.identity import IdentitySpace
    >>> bias = Parameter(tf.Variable([1.0, 2.0]), "other", None, False)
    >>> space = MaskedSpace(IdentitySpace([bias], [[0]]), lambda _: {0: [tf.constant([1.0, 0.0])]})
    >>> space.lift([[tf.constant([5.0, 6.0])]], space.refresh())[0].numpy().tolist()
    [5.0, 0.0]
    """

    def __init__(self, space: PerVariableSpace, masks: Callable[[Subspace], Masks]):
        self._space, self._masks = space, masks
        super().__init__(space.parameters, space.groups)

    def refresh(self) -> tuple[Subspace, Masks]:
        """The other space's subspace, and the masks."""
        subspace = self._space.refresh()
        return subspace, self._masks(subspace)

    def piece_shapes(self, index: int) -> list[tuple[int, ...]]:
        return self._space.piece_shapes(index)

    def pieces(
        self, index: int, gradient: PerExampleGradient, subspace: Subspace
    ) -> Sequence[PerExampleGradient]:
        inner, masks = subspace
        pieces = self._space.pieces(index, gradient, inner)
        if index not in masks:
            return pieces
        return [piece.masked(mask) for piece, mask in zip(pieces, masks[index], strict=True)]

    def lift_piece(self, index: int, released: list[tf.Tensor], subspace: Subspace) -> tf.Tensor:
        inner, masks = subspace
        return self._space.lift_piece(index, _times(released, masks.get(index)), inner)

    def needed(self, subspace: Subspace) -> list[list[tf.Tensor | None]]:
        """What is frozen is multiplied by zero."""
        _, masks = subspace
        indexes = range(len(self.parameters))
        return self.in_blocks([masks.get(i, [None] * len(self.piece_shapes(i))) for i in indexes])

    def noise_energy(
        self, variances: Variances, normal: Normal, subspace: Subspace = None
    ) -> NoiseEnergy:
        """That of the other space, without noise on what is frozen."""
        inner, masks = self.refresh() if subspace is None else subspace
        of_variables = enumerate(self.by_variable(variances))
        left = [
            _times(found, [mask.numpy() for mask in masks[index]] if index in masks else None)
            for index, found in of_variables
        ]
        return self._space.noise_energy(self.in_blocks(left), normal, inner)


def _times(tensors: list, masks: list | None) -> list:
    if masks is None:
        return tensors
    return [tensor * mask for tensor, mask in zip(tensors, masks, strict=True)]

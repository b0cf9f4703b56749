"""Sparse DP-SGD releases the coordinates of important weights (baseline of Ito et al.)."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from tf_lowrank_dp.per_example.parameter import Parameter
from tf_lowrank_dp.release.masks import important_columns, largest_weights
from tf_lowrank_dp.release.space import PerVariableSpace

UNITS = ("weight", "neuron")


class CoordinateSpace(PerVariableSpace):
    """Releases the gradients of the weights largest in magnitude; the others are frozen.

    Args:
        parameters: the trainable variables.
        groups: positions of the parameters of each block.
        selected: positions of the matrices that are made sparse.
        sparsity: fraction of each that is frozen.
        unit: "weight" for single weights, "neuron" for all weights of an output unit.
    """

    def __init__(
        self,
        parameters: Sequence[Parameter],
        groups: Sequence[Sequence[int]],
        *,
        selected: Sequence[int],
        sparsity: float,
        unit: str,
    ):
        super().__init__(parameters, groups)
        self._selected, self._sparsity, self._unit = list(selected), sparsity, unit

    def refresh(self) -> dict[int, tf.Tensor]:
        """Masks in the variables' shapes, by position; `(o,)` where that broadcasts."""
        return {index: self._mask(self.parameters[index]) for index in self._selected}

    def _mask(self, parameter: Parameter) -> tf.Tensor:
        matrix, view = parameter.matrix(), parameter.view
        if self._unit == "weight":
            return view.to_variable(largest_weights(matrix, self._sparsity))
        columns = important_columns(matrix, self._sparsity)
        if view.column_axes == (len(view.shape) - 1,):
            return columns
        return view.to_variable(tf.broadcast_to(columns, matrix.shape))

    def pieces(self, index, gradient, subspace):
        return [gradient.masked(subspace[index]) if index in subspace else gradient]

    def lift_piece(self, index, released, subspace):
        return released[0] * subspace[index] if index in subspace else released[0]

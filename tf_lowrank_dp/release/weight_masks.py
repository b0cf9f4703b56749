"""Sparse DP-SGD releases the coordinates of important weights (baseline of Ito et al.)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow as tf

from tf_lowrank_dp.per_example.parameter import Parameter
from tf_lowrank_dp.release.masked import Masks
from tf_lowrank_dp.release.masks import important_columns, largest_weights
from tf_lowrank_dp.release.space import Subspace

UNITS = ("weight", "neuron")


def weight_masks(
    parameters: Sequence[Parameter], selected: Sequence[int], sparsity: float, unit: str
) -> Callable[[Subspace], Masks]:
    """Masks of gradients, with ones for the weights that are largest in magnitude at the step.

    Args:
        parameters: the trainable variables.
        selected: positions of the matrices that are made sparse.
        sparsity: fraction of each that is frozen.
        unit: "weight" for single weights, "neuron" for all weights of an output unit.

    Returns:
        What `MaskedSpace` takes: masks in the variables' shapes, `(o,)` where that broadcasts.
    """

    def mask(parameter: Parameter) -> tf.Tensor:
        matrix, view = parameter.matrix(), parameter.matrix_view
        if unit == "weight":
            return view.to_variable(largest_weights(matrix, sparsity))
        columns = important_columns(matrix, sparsity)
        if view.column_axes == (len(view.shape) - 1,):
            return columns
        return view.to_variable(tf.broadcast_to(columns, matrix.shape))

    return lambda subspace: {index: [mask(parameters[index])] for index in selected}

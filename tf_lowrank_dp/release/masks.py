"""Which units and weights are important: zeros and ones from public weights."""

from __future__ import annotations

import math

import tensorflow as tf

from tf_lowrank_dp.per_example.parameter import MatrixView, reshape_last


def largest(scores: tf.Tensor, sparsity: float) -> tf.Tensor:
    """Ones for the largest scores, zeros for the fraction `sparsity` of the smallest.

    Args:
        scores: float32 `(..., s)`.
        sparsity: fraction, in [0, 1); `floor(sparsity * s)` are zeros, exactly, ties or not.

    Returns:
        float32, the same shape.
    """
    frozen = math.floor(sparsity * scores.shape[-1])
    ranks = _order(_order(scores))
    return tf.cast(ranks >= frozen, tf.float32)


def _order(numbers: tf.Tensor) -> tf.Tensor:
    """Where the sorted numbers stand, int64: on a GPU the host computes with int32."""
    return tf.cast(tf.argsort(numbers, axis=-1, stable=True), tf.int64)


def important_rows(matrix: tf.Tensor, view: MatrixView, sparsity: float) -> tf.Tensor:
    """Ones for the rows of important input units, `I_i = sum_j |W_ij|` (LSG, Section 3.3).

    A convolution's rows belong to input channels, which are frozen as a whole.

    Args:
        matrix: `(..., m, n)`, the weights.
        view: of the variable.
        sparsity: fraction of units that are not important.

    Returns:
        float32 `(..., m)`.
    """
    repeats = view.rows // view.input_units
    importance = tf.reduce_sum(tf.abs(matrix), -1)
    importance = reshape_last(importance, 1, (repeats, view.input_units))
    return rows_of_units(largest(tf.reduce_sum(importance, -2), sparsity), view)


def rows_of_units(units: tf.Tensor, view: MatrixView) -> tf.Tensor:
    """What is given for each input unit, `(..., units)`, for each row, `(..., m)`."""
    return tf.concat([units] * (view.rows // view.input_units), axis=-1)


def important_columns(matrix: tf.Tensor, sparsity: float) -> tf.Tensor:
    """Ones for the columns of important output units, `O_j = sum_i |W_ij|`, float32 `(..., n)`."""
    return largest(tf.reduce_sum(tf.abs(matrix), -2), sparsity)


def largest_weights(matrix: tf.Tensor, sparsity: float) -> tf.Tensor:
    """Ones for the entries of largest magnitude, float32 `(m, n)`."""
    return tf.reshape(largest(tf.reshape(tf.abs(matrix), [-1]), sparsity), matrix.shape)

"""Orthonormal bases and low-rank approximations, the only copy in the package."""

from __future__ import annotations

import tensorflow as tf

_COMPLETION = 1e-6


def orthonormal_columns(matrix: tf.Tensor, completion: tf.Tensor) -> tf.Tensor:
    """An orthonormal basis whose span contains that of the columns.

    A Householder decomposition is stable for any matrix.  Each column is scaled to length 1 (by
    its largest entry first: squares of small or large numbers leave float32) and a millionth of
    `completion` is added, which changes a basis as little as rounding does and decides only what is
    missing: columns that are zero, or depend on others, are replaced by directions of
    `completion`, so that the basis always has all its columns.

    Args:
        matrix: float32 `(..., m, k)` with `k <= m`, finite.
        completion: the same shape, random.

    Returns:
        float32 `(..., m, k)`, `Q^T Q = I` to rounding.
    """
    matrix = tf.math.divide_no_nan(matrix, tf.reduce_max(tf.abs(matrix), axis=-2, keepdims=True))
    lengths = tf.norm(matrix, axis=-2, keepdims=True)
    completion /= tf.norm(completion, axis=-2, keepdims=True)
    unit = tf.math.divide_no_nan(matrix, lengths)
    return tf.linalg.qr(unit + _COMPLETION * completion).q


def low_rank_factors(
    matrices: tf.Tensor, start: tf.Tensor, completion: tf.Tensor, power_iterations: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """Orthonormal `L (m, k)` and `R (k, n)` near the leading singular vectors (RGP, Algorithm 2).

    Args:
        matrices: float32 `(j, m, n)`, one shape for all.
        start: random `(j, n, k)`.
        completion: random `(j, m, k)`.
        power_iterations: `K`; 1 is enough in the paper.

    Returns:
        `L (j, m, k)` with orthonormal columns and `R (j, k, n)` with orthonormal rows.
    """
    right = start
    for _ in range(power_iterations):
        left = orthonormal_columns(tf.matmul(matrices, right), completion)
        right = tf.matmul(matrices, left, transpose_a=True)
    return left, tf.linalg.matrix_transpose(orthonormal_columns(right, start))

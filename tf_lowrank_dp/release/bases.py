"""Orthonormal bases and low-rank approximations, the only copy in the package."""

from __future__ import annotations

import tensorflow as tf

_COMPLETION = 1e-6
_NEGLIGIBLE = 1e-5
_NEGLIGIBLE_COEFFICIENTS = 1e-3


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


def orthonormal_rows(matrix: tf.Tensor) -> tf.Tensor:
    """An orthonormal basis of the span of many long rows, by matrix products.

    With `M M^T = U V U^T`, in float64, the rows of `V^(-1/2) U^T M` are orthonormal and ordered by
    what they hold of `M`; one step `(3 I - B B^T) B / 2` removes what rounding in float32 left.
    Only the small `(k, k)` matrix is decomposed: a Householder decomposition of `M` takes three
    times as long.

    Directions that hold less than a hundred-thousandth of the largest one are rounding: they are
    rows of zeros.  So a matrix of any rank is welcome, zero included.

    Args:
        matrix: float32 `(k, p)`, finite.

    Returns:
        float32 `(k, p)`; `B B^T` is diagonal with ones, and zeros for what is missing, up to
        about `1e-6`.
    """
    matrix = tf.math.divide_no_nan(matrix, tf.reduce_max(tf.abs(matrix)))
    double = tf.cast(matrix, tf.float64)
    mixing = _whitening(tf.matmul(double, double, transpose_b=True), _NEGLIGIBLE)
    rows = tf.matmul(tf.cast(mixing, tf.float32), matrix)
    gram = tf.matmul(rows, rows, transpose_b=True)
    return 1.5 * rows - tf.matmul(0.5 * gram, rows)


def leading_rows(matrix: tf.Tensor, start: tf.Tensor, power_iterations: int) -> tf.Tensor:
    """Orthonormal rows near the leading right singular vectors (GEP, Algorithm 1, lines 2 to 7).

    Each iteration maps `B` to an orthonormal basis of `(G B^T)^T G`.  The small factor is made
    orthonormal first, which leaves the span and keeps the spread of the singular values of `G` from
    being squared.

    Args:
        matrix: `G`, float32 `(m, p)`.
        start: random `(k, p)`.
        power_iterations: at least 1.

    Returns:
        `B`, float32 `(k, p)`, see `orthonormal_rows`.
    """
    matrix = tf.math.divide_no_nan(matrix, tf.reduce_max(tf.abs(matrix)))
    rows = start
    for _ in range(power_iterations):
        images = tf.matmul(rows, matrix, transpose_b=True)
        rows = orthonormal_rows(tf.matmul(orthonormal_rows(images), matrix))
    return rows


def leading_coefficients(gram: tf.Tensor, start: tf.Tensor, power_iterations: int) -> tf.Tensor:
    """`leading_rows` of `G`, as coefficients `C` over its rows: `B = C G`.

    Only the inner products of the rows are needed.  Directions that hold less than a thousandth of
    the largest one are left out: their coefficients would be large and blow up rounding.

    Args:
        gram: `G G^T`, float64 `(m, m)`, finite.
        start: random float64 `(k, m)`: the iterations begin with `start G`.
        power_iterations: at least 1.

    Returns:
        float64 `(k, m)`; `C G G^T C^T` is diagonal with ones, and zeros for what is missing.
    """
    largest = tf.reduce_max(tf.linalg.diag_part(gram))
    gram = tf.math.divide_no_nan(gram, largest)
    coefficients = start
    for _ in range(power_iterations):
        images = tf.matmul(coefficients, gram)
        inner = tf.matmul(images, images, transpose_b=True)
        mixed = tf.matmul(_whitening(inner, _NEGLIGIBLE), images)
        inner = tf.matmul(tf.matmul(mixed, gram), mixed, transpose_b=True)
        coefficients = tf.matmul(_whitening(inner, _NEGLIGIBLE_COEFFICIENTS), mixed)
    return tf.math.divide_no_nan(coefficients, tf.sqrt(largest))


def _whitening(gram: tf.Tensor, negligible: float) -> tf.Tensor:
    """`V^(-1/2) U^T` of a Gram matrix `U V U^T`, float64 `(k, k)`, largest value first.

    Rows for values whose root is below `negligible` times the largest root are zeros.
    """
    values, vectors = tf.linalg.eigh(gram)
    values, vectors = values[::-1], vectors[:, ::-1]
    held = values > negligible**2 * tf.maximum(values[0], 1e-290)
    weights = tf.where(held, tf.math.rsqrt(tf.where(held, values, 1.0)), 0.0)
    return tf.transpose(vectors * weights)

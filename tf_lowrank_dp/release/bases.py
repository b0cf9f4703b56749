"""Orthonormal bases and low-rank approximations, the only copy in the package."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

_COMPLETION = 1e-7
_NEGLIGIBLE = 1e-5
_NEGLIGIBLE_COEFFICIENTS = 1e-3
_NEARLY_DEPENDENT = 1e-2
_SMALLEST = 1e-36


def orthonormal_columns(matrix: tf.Tensor, completion: tf.Tensor) -> tf.Tensor:
    """An orthonormal basis whose span contains that of the columns.

    A Householder decomposition is stable for any matrix.  Each column is scaled to length 1 (by
    its largest entry first: squares of small or large numbers leave float32) and a ten-millionth of
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


def leading_rows(
    matrices: Sequence[tf.Tensor], starts: Sequence[tf.Tensor], power_iterations: int
) -> list[tf.Tensor]:
    """Orthonormal rows near the leading right singular vectors (GEP, Algorithm 1, lines 2 to 7).

    Each iteration maps `B` to an orthonormal basis of `(G B^T)^T G`.  The small factor is made
    orthonormal first, which leaves the span and keeps the spread of the singular values of `G` from
    being squared.  It is also what is scaled, where entries of `G` are huge or tiny: nothing of
    the size of `G` is copied.

    Args:
        matrices: `G` in blocks of columns, float32 `(m, p_v)`, finite.
        starts: random float32 `(k, p_v)`.
        power_iterations: at least 1.

    Returns:
        `B` in blocks of columns, float32 `(k, p_v)`: orthonormal rows and zeros for what is
        missing, see `orthonormal_rows`.
    """
    largest = tf.reduce_max([tf.maximum(tf.reduce_max(g), -tf.reduce_min(g)) for g in matrices])
    largest = tf.where(largest > _SMALLEST, largest, 0.0)
    rows = list(starts)
    for _ in range(power_iterations):
        images = tf.add_n(
            [
                tf.matmul(tf.math.divide_no_nan(b, largest), g, transpose_b=True)
                for b, g in zip(rows, matrices, strict=True)
            ]
        )
        mixing = tf.math.divide_no_nan(orthonormal_rows(images), largest)
        rows = _orthonormal_blocks([tf.matmul(mixing, g) for g in matrices])
    return rows


def _orthonormal_blocks(blocks: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """`orthonormal_rows` of blocks of columns, for rows that are nearly orthogonal already.

    Rows of different lengths are scaled to 1 before their inner products are taken: these are well
    conditioned then, and float32 is enough for them.
    """
    squares = tf.add_n([tf.reduce_sum(tf.square(block), axis=1) for block in blocks])
    held = squares > _NEGLIGIBLE**2 * tf.reduce_max(squares)
    scales = tf.where(held, tf.math.rsqrt(tf.where(held, squares, 1.0)), 0.0)
    gram = _gram(blocks) * scales[:, None] * scales
    mixing = tf.cast(_whitening(tf.cast(gram, tf.float64), _NEARLY_DEPENDENT), tf.float32) * scales
    blocks = [tf.matmul(mixing, block) for block in blocks]
    correction = 1.5 * tf.eye(gram.shape[0]) - 0.5 * _gram(blocks)
    return [tf.matmul(correction, block) for block in blocks]


def _gram(blocks: Sequence[tf.Tensor]) -> tf.Tensor:
    return tf.add_n([tf.matmul(block, block, transpose_b=True) for block in blocks])


class Coefficients(NamedTuple):
    """Orthonormal combinations `B = C G` of the rows of `G`, float64.

    Attributes:
        values: `C (k, m)`.
        gram: `B B^T (k, k)` as computed, symmetric: diagonal with ones, zeros for what is missing.
        mixing, mixed: `W (k, k)` and `M (k, m)`, of which `C` is the product.
    """

    values: tf.Tensor
    gram: tf.Tensor
    mixing: tf.Tensor
    mixed: tf.Tensor


def leading_coefficients(gram: tf.Tensor, start: tf.Tensor, power_iterations: int) -> Coefficients:
    """`leading_rows` of `G`, as coefficients `C` over its rows: `B = C G`.

    Only the inner products of the rows are needed.  Directions that hold less than a thousandth of
    the largest one are left out: their coefficients would be large and blow up rounding.  The
    images of the start, any combinations of which would do, are taken in float32.

    Args:
        gram: `G G^T`, float64 `(m, m)`, finite.
        start: random float64 `(k, m)`: the iterations begin with `start G`.
        power_iterations: at least 1.
    """
    largest = tf.reduce_max(tf.linalg.diag_part(gram))
    gram = tf.math.divide_no_nan(gram, largest)
    single = tf.cast(gram, tf.float32)
    values = start
    for _ in range(power_iterations):
        images = tf.cast(tf.matmul(tf.cast(values, tf.float32), single), tf.float64)
        inner = tf.matmul(images, images, transpose_b=True)
        mixed = tf.matmul(_whitening(inner, _NEGLIGIBLE), images)
        products = tf.matmul(mixed, gram)
        inner = tf.matmul(products, mixed, transpose_b=True)
        mixing = _whitening(inner, _NEGLIGIBLE_COEFFICIENTS)
        values = tf.matmul(mixing, mixed)
    found = tf.matmul(tf.matmul(mixing, products), values, transpose_b=True)
    found = 0.5 * (found + tf.transpose(found))
    scale = tf.math.divide_no_nan(tf.ones([], tf.float64), tf.sqrt(largest))
    return Coefficients(scale * values, found, scale * mixing, mixed)


def _whitening(gram: tf.Tensor, negligible: float) -> tf.Tensor:
    """`V^(-1/2) U^T` of a Gram matrix `U V U^T`, float64 `(k, k)`, largest value first.

    Rows for values whose root is below `negligible` times the largest root are zeros.
    """
    values, vectors = tf.linalg.eigh(gram)
    values, vectors = values[::-1], vectors[:, ::-1]
    held = values > negligible**2 * tf.maximum(values[0], 1e-290)
    weights = tf.where(held, tf.math.rsqrt(tf.where(held, values, 1.0)), 0.0)
    return tf.transpose(vectors * weights)

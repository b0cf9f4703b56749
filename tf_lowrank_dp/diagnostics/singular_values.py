"""Singular values and leading directions of matrices, in float64."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tf_lowrank_dp import _validate


def scaled_matrix(matrix: npt.ArrayLike) -> np.ndarray:
    """The matrix in float64 over its largest magnitude, so that no square vanishes or overflows.

    Args:
        matrix: floating point `(m, n)`.

    Returns:
        float64 `(m, n)`: zeros for zeros, all NaN for a matrix that is not finite.

    Raises:
        ValueError: not a matrix.
    """
    matrix = np.asarray(matrix, np.float64)
    if matrix.ndim != 2 or not matrix.size:
        raise ValueError(
            f"Expected a matrix (m, n). Received: shape {matrix.shape}. Join the axes of its input "
            "features in rows and those of its output features in columns."
        )
    if not np.isfinite(matrix).all():
        return np.full_like(matrix, np.nan)
    return matrix / (np.abs(matrix).max() or 1.0)


def singular_values(matrix: npt.ArrayLike) -> np.ndarray:
    """Singular values up to a common factor, float64 `(min(m, n),)`, largest first.

    Args:
        matrix: floating point `(m, n)`; all values are NaN if it is not finite.
    """
    scaled = scaled_matrix(matrix)
    if np.isnan(scaled).any():
        return np.full(min(scaled.shape), np.nan)
    return np.linalg.svd(scaled, compute_uv=False)


def leading_subspace(matrix: npt.ArrayLike, rank: int) -> tuple[np.ndarray, np.ndarray]:
    """Orthonormal bases of the leading column and row space, from a full decomposition.

    Args:
        matrix: floating point `(m, n)`.
        rank: `r`, the number of directions wanted.

    Returns:
        `L (m, k)` with orthonormal columns and `R (k, n)` with orthonormal rows, float64; `k` is
        the rank of `matrix` to rounding, and at most `r`.

    Raises:
        ValueError: not a matrix, or not finite.

    Example:

    >>> import numpy as np
    >>> left, right = leading_subspace(np.diag([1.0, 3.0, 0.0]), rank=1)
    >>> abs(left[:, 0]).tolist(), right.shape
    ([0.0, 1.0, 0.0], (1, 3))
    """
    _validate.integer_at_least(1, rank=rank)
    scaled = scaled_matrix(matrix)
    if np.isnan(scaled).any():
        raise ValueError(
            "Expected a finite matrix, whose directions are known. Received: NaN or infinity in "
            f"a matrix of shape {scaled.shape}. Look for divergence before."
        )
    left, values, right = np.linalg.svd(scaled, full_matrices=False)
    dtype = np.asarray(matrix).dtype
    epsilon = np.finfo(dtype if np.issubdtype(dtype, np.floating) else np.float64).eps
    known = int(np.sum(values > values[0] * max(scaled.shape) * epsilon))
    k = min(rank, known)
    return left[:, :k], right[:k]

"""What a pair of low-rank subspaces misses of a gradient (RGP, Equations 5 and 6, Figure 3)."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from tf_lowrank_dp import _validate
from tf_lowrank_dp.diagnostics.singular_values import (
    leading_subspace,
    scaled_matrix,
    singular_values,
)

_ORTHONORMAL = 1e-3


def projection_residual(
    gradient: npt.ArrayLike, left: npt.ArrayLike, right: npt.ArrayLike
) -> float:
    """`|(I - L L^T) G (I - R^T R)| / |G|` in the Frobenius norm (RGP, Equations 5 and 6).

    This is what RGP's update loses of `G` with the carriers `L` and `R`: it keeps
    `L L^T G + G R^T R - L L^T G R^T R`.

    Args:
        gradient: `G`, floating point `(m, n)`.
        left: `L (m, k)` with orthonormal columns.
        right: `R (l, n)` with orthonormal rows, the transpose of the paper's `V`.

    Returns:
        Between 0 (nothing is lost) and 1; NaN for a gradient that is zero or not finite.

    Raises:
        ValueError: shapes that do not fit, or bases that are not orthonormal.

    Example:

    >>> import numpy as np
    >>> gradient = np.diag([3.0, 4.0])
    >>> projection_residual(gradient, left=np.array([[0.0], [1.0]]), right=np.array([[0.0, 1.0]]))
    0.6
    """
    gradient = scaled_matrix(gradient)
    left, right = np.asarray(left, np.float64), np.asarray(right, np.float64)
    _check_basis("left", left, left.T, gradient.shape[0])
    _check_basis("right", right.T, right, gradient.shape[1])
    missed = gradient - left @ (left.T @ gradient)
    missed = missed - (missed @ right.T) @ right
    norm = np.linalg.norm(gradient)
    return float(np.linalg.norm(missed) / norm) if norm > 0 else math.nan


def historical_projection_residual(
    gradient: npt.ArrayLike, history: npt.ArrayLike, rank: int
) -> float:
    """`projection_residual` of the leading subspace of the past (RGP, Equation 5).

    In RGP's algorithm the past is the update `W_t - W_0`; in the paper's Figure 3 it is the
    gradient of the same batch one epoch before.  Both are `history` here.

    Args:
        gradient: the present gradient, floating point `(m, n)`.
        history: `(m, n)`, whose `rank` leading directions are taken, or as many as it has.
        rank: `r`; 8 in the paper's figure.

    Returns:
        Between 0 and 1; 1 for a history of zeros, which has no directions; NaN for a gradient that
        is zero or not finite, or a history that is not finite.

    Raises:
        ValueError: shapes that do not fit, or a rank below 1.

    Example:

    >>> import numpy as np
    >>> historical_projection_residual(np.diag([3.0, 4.0]), np.diag([1.0, 0.0]), rank=1)
    0.8
    """
    if not np.isfinite(history).all():
        return math.nan
    return projection_residual(gradient, *leading_subspace(history, rank))


def self_projection_residual(gradient: npt.ArrayLike, rank: int) -> float:
    """`projection_residual` of the gradient's own leading subspace (RGP, Equation 6).

    It is `sqrt(sum_{i > r} s_i^2 / sum_i s_i^2)` of the singular values.  A historical residual
    close to it says that the past has found the leading subspace.  It is no lower bound: bases `L`
    and `R` that follow different directions can lose as little as the sum over `i > 2 r`.

    Args:
        gradient: floating point `(m, n)`.
        rank: `r`.

    Returns:
        Between 0 and 1; NaN for a gradient that is zero or not finite.

    Raises:
        ValueError: not a matrix, or a rank below 1.

    Example:

    >>> import numpy as np
    >>> self_projection_residual(np.diag([3.0, 4.0]), rank=1)
    0.6
    """
    _validate.integer_at_least(1, rank=rank)
    squares = singular_values(gradient) ** 2
    total = squares.sum()
    return math.sqrt(squares[rank:].sum() / total) if total > 0 else math.nan


def _check_basis(name: str, columns: np.ndarray, rows: np.ndarray, size: int) -> None:
    """Checks `columns (size, k)`, whose transpose is `rows`."""
    if columns.ndim != 2 or columns.shape[0] != size:
        wanted = f"({size}, k)" if name == "left" else f"(k, {size})"
        received = columns.shape if name == "left" else rows.shape
        raise ValueError(
            f"Expected `{name}` of shape {wanted}, to fit the gradient. Received: {received}. "
            "Pass L with its directions in columns and R with its directions in rows."
        )
    products = rows @ columns
    if not np.allclose(products, np.eye(len(products)), atol=_ORTHONORMAL):
        raise ValueError(
            f"Expected `{name}` to be orthonormal. Received: inner products that differ from those "
            f"of an orthonormal basis by {np.abs(products - np.eye(len(products))).max():.3g}. "
            "Orthonormalise it, for example with numpy.linalg.qr."
        )

"""The stable rank of gradients: how many directions carry them (RGP, Section 4.1, Figure 2)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import keras
import numpy.typing as npt

from tf_lowrank_dp._types import Nested
from tf_lowrank_dp.diagnostics.batch_gradients import gradient_matrices, whole_batch
from tf_lowrank_dp.diagnostics.singular_values import singular_values


def stable_rank(matrix: npt.ArrayLike) -> float:
    """The squared Frobenius norm over the squared spectral norm (RGP, Section 4.1).

    It is at least 1 and at most the rank; small directions hardly count.

    Args:
        matrix: floating point `(m, n)`; computed in float64.

    Returns:
        `sum_i s_i^2 / s_1^2` of the singular values; NaN for a matrix that is zero or not finite.

    Raises:
        ValueError: not a matrix.

    Example:

    >>> import numpy as np
    >>> stable_rank(np.eye(3))
    3.0
    >>> stable_rank(np.diag([2.0, 1.0]))
    1.25
    """
    squares = singular_values(matrix) ** 2
    return float(squares.sum() / squares[0]) if squares[0] > 0 else math.nan


def gradient_stable_ranks(
    model: keras.Model,
    x: Nested,
    y: Nested = None,
    *,
    sample_weight: Nested = None,
    include: Sequence[str] | None = None,
) -> dict[str, float]:
    """The stable rank of each kernel's gradient on one batch (RGP, Figure 2).

    Not private: on private data the result depends on them and no budget accounts for it.  Pass
    public or synthetic data, on which it is free.

    Args:
        model: built and compiled, with layers that `make_private` accepts; private or not.
        x: inputs of one batch, as for `fit`; the paper's has 500 examples.
        y: its targets.
        sample_weight: its weights.
        include: parts of variable paths, to look at these matrices only; None for all kernels.

    Returns:
        By variable path.  Convolutions and attention are matrices as the optimizers see them:
        input features (at all offsets) in rows, output features in columns.

    Raises:
        ValueError: `include` matches no matrix.

    Example:

    >>> import keras, numpy as np
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, name="d")])
    >>> model.compile("sgd", loss="mse")
    >>> [rank] = gradient_stable_ranks(model, np.eye(8, 4), np.ones((8, 2))).values()
    >>> 1.0 <= rank <= 2.0
    True
    """
    matrices = gradient_matrices(model, whole_batch(x, y, sample_weight), include)
    return {path: stable_rank(matrix) for path, matrix in matrices.items()}

"""Padding of a draw to whole parts of one size, so that one compiled program serves all draws."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import tensorflow as tf
from scipy import stats

from tf_lowrank_dp.accounting import Sampling


def part_rows(sampling: Sampling, most: int | None = None, workers: int = 1) -> int:
    """The number of rows of the parts in which draws are computed: a public constant.

    A Poisson draw of `n` rows is padded to `ceil(n / rows)` parts.  The size returned is the one
    with the fewest rows computed, `rows E[max(1, ceil(n / rows))]`: a little above the expected
    size (64: 76 rows, 81 computed a step; 1,024: 1,094 and 1,110), or an even division of it.
    Shuffled batches are never larger than stated, so no row is padded.

    Args:
        sampling: how batches are drawn.
        most: largest number of rows of a part, at least 1; None for a draw at once.
        workers: number of processes that share a draw evenly.

    Returns:
        Rows of each part, at least 1 and at most `most`.

    Example:

    >>> part_rows(Sampling.poisson(num_examples=60_000, batch_size=64))
    76
    >>> part_rows(Sampling.shuffle(batch_size=64, steps_per_pass=9), most=40)
    32
    """
    expected = -(-sampling.batch_size // workers)
    if sampling.kind == "shuffle":
        return _even(expected, most)
    spread = math.ceil(math.sqrt(expected))
    least = expected if most is None else _even(expected, most)
    largest = expected + 6 * spread if most is None else min(most, least + 6 * spread)
    step = max(1, spread // 8)
    return min(range(least, largest + 1, step), key=lambda rows: rows_computed(expected, rows))


def rows_computed(batch_size: int, rows: int) -> float:
    """Expected number of rows of a Poisson draw that is padded to parts of `rows` rows.

    Args:
        batch_size: expected number of examples.
        rows: of a part.

    Example:

    >>> round(rows_computed(64, 76), 1)
    80.7
    """
    multiples = np.arange(rows, batch_size + 12 * math.isqrt(batch_size) + 12, rows)
    return rows * (1.0 + float(stats.poisson.sf(multiples, batch_size).sum()))


def _even(rows: int, most: int | None) -> int:
    """Rows of each part if they are as few and as equal as can be."""
    count = 1 if most is None else -(-rows // most)
    return -(-rows // count)


def ceil_sqrt(n: int) -> int:
    """The square root of `n`, at least 1, rounded up: rows of a granule."""
    return math.isqrt(n - 1) + 1


def padded_size(n: int, multiple: int) -> int:
    """The smallest multiple of `multiple` that holds `n` rows and at least one row.

    Formal guarantees:
        * The result is never below `n`: a draw larger than expected is padded further, never
          truncated.
        * An empty draw gets one granule of absent rows.

    Args:
        n: number of rows, at least 0.
        multiple: rows per granule, at least 1.

    Returns:
        The padded number of rows.

    Raises:
        ValueError: `n` is negative or `multiple` is not positive.

    Example:

    >>> [padded_size(n, 8) for n in (0, 1, 8, 9)]
    [8, 8, 8, 16]
    """
    if n < 0 or multiple < 1:
        raise ValueError(
            "Expected a number of rows of at least 0 and a multiple of at least 1. "
            f"Received: n={n}, multiple={multiple}."
        )
    return -(-max(n, 1) // multiple) * multiple


def pad_rows(structure: Any, size: int) -> Any:
    """Pads every numpy array of a structure along axis 0 to `size` rows.

    The padding is zero, `False`, or the empty string. It means nothing by itself: presence says
    which rows are examples.

    Formal guarantees:
        * Rows are neither dropped, repeated nor reordered: the result starts with the input.

    Args:
        structure: nested structure of numpy arrays `(n, ...)` of any dtype; `n` may differ.
        size: number of rows of every returned array, at least every `n`.

    Returns:
        The same structure with arrays `(size, ...)` and the same dtypes. An array that already has
        `size` rows is returned as it is.

    Raises:
        ValueError: an array has more than `size` rows.

    Example:

    >>> import numpy as np
    >>> padded = pad_rows({"id": np.array([3, 4]), "text": np.array(["a", "b"])}, 3)
    >>> padded["id"].tolist(), padded["text"].tolist()
    ([3, 4, 0], ['a', 'b', ''])
    """
    return tf.nest.map_structure(lambda rows: _pad_array(rows, size), structure)


def _pad_array(rows: np.ndarray, size: int) -> np.ndarray:
    missing = size - rows.shape[0]
    if missing < 0:
        raise ValueError(
            f"Expected at most {size} rows. Received: an array of shape {rows.shape}. "
            "Rows are never dropped: compute the size with `padded_size`."
        )
    if missing == 0:
        return rows
    shape = (missing, *rows.shape[1:])
    if rows.dtype == object:
        filler = np.full(shape, _empty_string(rows), dtype=object)
    else:
        filler = np.zeros(shape, dtype=rows.dtype)
    return np.concatenate([rows, filler])


def _empty_string(rows: np.ndarray) -> str | bytes:
    """The empty string of the kind (str or bytes) that an object array holds."""
    return b"" if rows.size and isinstance(rows.flat[0], bytes) else ""

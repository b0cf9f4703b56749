"""Arrays of other libraries, in which one missing entry decides the dtype of all others."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np


def dtypes_without_missing(data: Any, array: np.ndarray) -> set[np.dtype]:
    """The dtypes that data have by what they state, and by a row in which nothing is missing.

    numpy makes float64 of integers, beside which an entry is missing, where pandas (nullable and
    categorical columns, alone or in a `DataFrame`), Arrow or others hold them as integers.

    Args:
        data: what was given.
        array: what numpy makes of it.

    Example:

    >>> dtypes_without_missing(np.zeros(3), np.zeros(3))
    {dtype('float64')}
    """
    found = {array.dtype}
    if isinstance(data, np.ndarray) or not hasattr(data, "__array__"):
        return found
    stated = [dtype for column in _columns(data) for dtype in _numpy_dtypes(column)]
    if any(is_own for _, is_own in stated):
        found.add(np.result_type(*(dtype for dtype, _ in stated)))
    if array.dtype.kind == "f" and array.size and callable(getattr(data, "__getitem__", None)):
        whole = ~np.isnan(array.reshape(len(array), -1)).any(axis=1)
        if not whole.all() and whole.any():
            row = int(np.argmax(whole))
            with contextlib.suppress(LookupError, TypeError, ValueError):  # it has no slices
                found.add(np.asarray(data[row : row + 1]).dtype)
    return found


def _columns(data: Any) -> Iterator[Any]:
    """The dtypes of columns, as pandas and Arrow state them."""
    schema: Any = getattr(data, "schema", None)
    if hasattr(schema, "types"):
        yield from schema.types
    elif hasattr(data, "dtypes") and np.ndim(data.dtypes) == 1:
        yield from data.dtypes
    else:
        yield from (getattr(data, name) for name in ("dtype", "type") if hasattr(data, name))


def _numpy_dtypes(stated: Any) -> Iterator[tuple[np.dtype, bool]]:
    """What numpy calls a column's dtype, if it does, and whether numpy has none of that kind."""
    for name in ("value_type", "categories"):  # of Arrow's dictionaries, and of categories
        if hasattr(stated, name) and getattr(stated, name) is not None:
            inner = getattr(stated, name)
            yield from ((dtype, True) for dtype, _ in _numpy_dtypes(getattr(inner, "dtype", inner)))
            return
    if isinstance(stated, np.dtype):
        yield stated, False
    elif hasattr(stated, "numpy_dtype"):
        yield np.dtype(stated.numpy_dtype), True
    elif hasattr(stated, "to_pandas_dtype"):
        yield np.dtype(stated.to_pandas_dtype()), True

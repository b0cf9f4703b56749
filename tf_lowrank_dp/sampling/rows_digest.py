"""A digest of rows: workers that draw from parts of one data set, or from their own, compare it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np

from tf_lowrank_dp.sampling import rows
from tf_lowrank_dp.sampling.records import Records

_AT_ONCE = 4_096
_MOST = 2**32  # bytes of which all rows are read
_DRAWN = 1_000
_BYTES = 16


def rows_digest(data: Any, records: Records | None, key: bytes, ordered: bool = True) -> str:
    """Tells whether other rows, or these in another order, are somewhere else.

    Guarantee: who does not know the key learns nothing of the rows from it.

    All rows of arrays of up to 4 GiB are read.  Of larger ones, and of records that are read from
    elsewhere, 1,000 are, drawn anew with each key: where a part `f` of the rows differs, this goes
    unnoticed with a chance of `(1 - f)^1000`, 4e-5 for one row in a hundred.

    Args:
        data: nested arrays of rows, `(n, ...)` each.
        records: whose rows they are, or None.
        key: secret, 16 bytes, the same wherever digests are compared, drawn after the rows were
            chosen; empty for rows that are public.
        ordered: whether the order makes a difference; it always does where some rows are read.

    Example:

    >>> one, two = np.arange(6), np.array([0, 1, 2, 4, 3, 5])
    >>> rows_digest({"x": one}, None, b"key") == rows_digest({"x": two}, None, b"key")
    False
    >>> rows_digest({"x": one}, None, b"", False) == rows_digest({"x": two}, None, b"", False)
    True
    """
    count = rows.count_rows(data)
    is_read = records is not None and records.is_read
    leaves = keras.tree.flatten(data)
    if is_read or sum(getattr(leaf, "nbytes", 0) for leaf in leaves) > _MOST:
        seed = int.from_bytes(hashlib.blake2b(b"rows", key=key).digest(), "little")
        drawn = np.random.default_rng(seed).integers(0, count, _DRAWN)
        parts = iter([np.unique(drawn)])
    else:
        if not ordered:
            return _of_any_order(leaves, count, key)
        parts = (np.arange(i, min(i + _AT_ONCE, count)) for i in range(0, count, _AT_ONCE))
    digest = hashlib.blake2b(f"{count} rows".encode(), digest_size=_BYTES, key=key)
    for indices in parts:
        if records is not None and is_read:
            for index in indices.tolist():
                for piece in _record(records, index):
                    digest.update(piece)
            continue
        for leaf in leaves:
            for piece in _pieces(rows.take_rows(leaf, indices)):
                digest.update(piece)
    return digest.hexdigest()


def _of_any_order(leaves: list, count: int, key: bytes) -> str:
    """The sum of the digests of all rows."""
    total = 0
    for start in range(0, count, _AT_ONCE):
        indices = np.arange(start, min(start + _AT_ONCE, count))
        taken = [rows.take_rows(leaf, indices) for leaf in leaves]
        for row in zip(*taken, strict=True):
            digest = hashlib.blake2b(digest_size=_BYTES, key=key)
            for value in row:
                for piece in _pieces(np.asarray(value)):
                    digest.update(piece)
            total += int.from_bytes(digest.digest(), "little")
    return f"{total % 2 ** (8 * _BYTES):x}"


def _record(records: Records, index: int) -> Iterator[bytes]:
    try:
        leaves = keras.tree.flatten(records.source[index])
    except Exception as error:  # whatever a source raises: it is absent from draws
        yield type(error).__name__.encode()
        return
    for leaf in leaves:
        yield from _pieces(np.asarray(leaf))


def _pieces(array: np.ndarray) -> Iterator[bytes]:
    """What makes an array: its type, its shape and its values; of strings with their lengths."""
    yield f"{array.dtype.kind} {array.shape}".encode()
    if array.dtype.kind in "OUS":
        for value in array.reshape(-1):
            content = value if isinstance(value, bytes) else str(value).encode()
            yield len(content).to_bytes(8, "little") + content
    else:
        yield np.ascontiguousarray(array).tobytes()

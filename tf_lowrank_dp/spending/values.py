"""Values that came with a ledger, known by their digests in any variable that holds them."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
import tensorflow as tf

from tf_lowrank_dp._tensorflow import value_behind
from tf_lowrank_dp.spending.digest import FIXED_KEY, digests
from tf_lowrank_dp.spending.present import present_value
from tf_lowrank_dp.spending.record import Record

Key: TypeAlias = tuple[int, bytes]
_HEAD = 256  # values that are compared before all of a variable is
_ADDED: contextvars.ContextVar[list[tuple[Key, Record, frozenset[Record]]]] = (
    contextvars.ContextVar("added_values")
)


class KnownValues:
    """The records that values came with, by number of elements and digest.

    It outlives the variables: a file says what was spent on its values, not which variables of
    this process will hold them.  Two different values that share a digest, one pair in 2^64, make
    the ledger too large, never too small.
    """

    def __init__(self) -> None:
        self._records: dict[Key, frozenset[Record]] = {}
        self._of_size: dict[int, frozenset[Record]] = {}

    def add(self, stored: np.ndarray, record: Record) -> None:
        """Takes what `stored_digests` made, with what was spent on these values."""
        for size, *words in np.asarray(stored, np.uint64).reshape([-1, 3]):
            key = int(size), np.array(words).tobytes()
            known = {each for each in self._records.get(key, ()) if each.ledger.entries}
            if record.ledger.entries or not known:  # a backup knows more than a damaged file
                _ADDED.get([]).append((key, record, self._records.get(key, frozenset())))
                self._records[key] = frozenset(known | {record})
            self._of_size[int(size)] = self._of_size.get(int(size), frozenset()) | {record}

    @contextlib.contextmanager
    def undone_on_error(self) -> Iterator[None]:
        """See `Spending.undone_on_error`: no variable holds these values by it."""
        added: list[tuple[Key, Record, frozenset[Record]]] = []
        token = _ADDED.set(added)
        try:
            yield
        except BaseException:
            for key, record, before in reversed(added):
                self._records[key] = self._records[key] - {record} | before
            raise
        finally:
            _ADDED.reset(token)

    def of_size(self, variable: tf.Variable) -> frozenset[Record]:
        """What values of as many elements came with: there is nothing else to be found."""
        return self._of_size.get(_size(variable), frozenset())

    def records(self, variables: Sequence) -> list[frozenset[Record]]:
        """What the values that the variables hold now came with."""
        keys = zip(map(_size, variables), digests(variables, FIXED_KEY), strict=True)
        return [self._records.get((size, _padded(digest)), frozenset()) for size, digest in keys]

    def behind(self, handles: Sequence[tf.Tensor]) -> Iterator[tuple[tf.Tensor, frozenset[Record]]]:
        """The handles of variables that hold known values now, with what these came with."""
        read = [(handle, value_behind(handle)) for handle in handles]
        held = [(h, value) for h, value in read if value is not None and self.of_size(value)]
        for (handle, _), records in zip(held, self.records([v for _, v in held]), strict=True):
            if records:
                yield handle, records


def stored_digests(variables: Sequence) -> np.ndarray:
    """What a file says of the values in it: the number of elements and digest of each.

    Left out are values that are all the same, such as zeros, which any model may hold.

    Args:
        variables: Keras or TensorFlow variables.

    Returns:
        uint64 `(n, 3)`, with `n` at most the number of variables.
    """
    variables = [variable for variable in variables if not _is_constant(variable)]
    rows = [
        [_size(variable), *np.frombuffer(_padded(digest), np.uint64)]
        for variable, digest in zip(variables, digests(variables, FIXED_KEY), strict=True)
    ]
    return np.array(rows, np.uint64).reshape([-1, 3])


def _padded(digest: bytes) -> bytes:
    return digest.ljust(16, b"\0")


def _size(variable: tf.Variable) -> int:
    return int(np.prod(variable.shape))


def _is_constant(variable: tf.Variable) -> bool:
    with tf.init_scope():
        values = tf.reshape(present_value(variable), [-1])
        parts = (values[:_HEAD], values)  # nearly all differ within the first
        return all(bool(tf.reduce_all(tf.equal(part, part[:1]))) for part in parts)

"""What was on record for variables that are gone, while graphs may still read their values."""

from __future__ import annotations

import weakref
from collections.abc import Iterable

import tensorflow as tf

from tf_lowrank_dp.spending.record import Record


class LeftValues:
    """Records by the handle of a variable that is gone, for as long as anything holds both.

    A concrete function, or a `tf.Variable` that was taken out of a layer, keeps the value; a run
    that has read it keeps the records, which the next run on the same weights is told of.
    """

    def __init__(self) -> None:
        self._noted: dict[int, tuple[weakref.ref, weakref.WeakSet, weakref.WeakSet]] = {}

    def note(self, handle: tf.Tensor, records: frozenset[Record], known_to: list[Record]) -> None:
        """Takes what was on record for the variable of a handle, which is gone.

        Args:
            handle: of the variable.
            records: what its value depends on.
            known_to: the runs that have read it, which have found that already.
        """
        if not records:
            return
        key = id(handle)
        reference = weakref.ref(handle, lambda _: self._noted.pop(key, None))
        self._noted[key] = reference, weakref.WeakSet(records), weakref.WeakSet(known_to)

    def records(self, handles: Iterable[tf.Tensor], run: Record) -> frozenset[Record]:
        """What was on record for the variables of these handles, before the run came to read them.

        Args:
            handles: of any variables.
            run: which reads them.
        """
        found: set[Record] = set()
        for handle in handles:
            reference, records, known_to = self._noted.get(id(handle), (None, (), ()))
            if reference is not None and reference() is handle and run not in known_to:
                found.update(records)
        return frozenset(found)

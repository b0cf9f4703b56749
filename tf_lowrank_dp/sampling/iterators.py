"""Iterators of batches that go on where they stopped: how far each was read."""

from __future__ import annotations

import collections
import copy
import inspect
import itertools
import types
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import keras
import numpy as np

from tf_lowrank_dp.sampling.upstream import refuse_given, without_padding

_READ_AHEAD = (
    "Expected a function whose data are what they were. Received: one of which an earlier call of "
    "fit, that failed, has read two batches: they are the first of this one. If data have changed, "
    "pass a new function."
)


class Position:
    """How far an iterator was read, by any call of `fit`.

    Args:
        source: it, before it is read.
    """

    def __init__(self, source: Any) -> None:
        self._unused: collections.deque = collections.deque()
        self._taken = 0
        is_generator = isinstance(source, types.GeneratorType)
        self._was_begun = is_generator and inspect.getgeneratorstate(source) != inspect.GEN_CREATED

    def read_ahead(self, source: Iterator, count: int) -> list:
        """The next few batches; a call of `fit` that fails must not shift its passes."""
        ahead = itertools.islice(without_padding(source), count - len(self._unused))
        self._unused.extend(map(own_copy, ahead))
        return list(self._unused)

    def batches(self, source: Iterator) -> Iterator[Any]:
        """All that were not taken yet, those that were read ahead first."""
        while self._unused:
            self._taken += 1
            yield self._unused.popleft()
        for batch in without_padding(source):
            self._taken += 1
            yield batch

    def refuse_within_pass(self, steps_per_pass: int) -> None:
        """Refuses to begin a pass where an interrupted training has left another.

        What comes next would be counted as one pass and hold examples of two.

        Args:
            steps_per_pass: number of batches of a pass over the data.

        Raises:
            ValueError: it was left so, or others have read of it.
        """
        if self._was_begun:
            raise ValueError(
                "Expected a generator of which nothing was read. Received: one that was begun "
                "before fit: its passes would not be those that are counted, and hold examples "
                "twice. Pass a new one, or a function that makes a new one, which fit calls for "
                "each pass."
            )
        if self._taken % steps_per_pass:
            raise ValueError(
                "Expected an iterator at the beginning of a pass over the data. Received: one of "
                f"which {self._taken} batches were taken, in passes of {steps_per_pass}, as "
                "training was interrupted: the next pass would hold examples twice. Pass a new "
                "generator, or the function that makes it, which fit calls for each pass."
            )


def own_copy(batch: Any) -> Any:
    """A copy of a batch, whose arrays the source may fill anew for the next one."""
    refuse_given(batch)

    def copied(leaf: Any) -> Any:
        try:
            return copy.deepcopy(leaf)
        except Exception:  # such as of an open file, or of what gradients are taken of
            return np.array(leaf) if hasattr(leaf, "__array__") else leaf

    return keras.tree.map_structure(copied, batch)


_POSITIONS: weakref.WeakKeyDictionary[Iterator, Position] = weakref.WeakKeyDictionary()
# Of kinds without weak references, such as `map` and `zip`: kept, so that they are known again.
_KEPT: list[tuple[Iterator, Position]] = []


def position_of(source: Iterator, kept: bool = True) -> Position:
    """The position of an iterator, the same whenever it is asked for.

    Args:
        source: the iterator.
        kept: whether one without weak references is kept, to be known again.
    """
    try:
        return _POSITIONS.setdefault(source, Position(source))
    except TypeError:
        for known, position in _KEPT:
            if known is source:
                return position
        position = Position(source)
        if kept:
            _KEPT.append((source, position))
        return position


def started(source: Callable[[], Iterable], count: int) -> tuple[list, Callable[[], Iterator]]:
    """The first few batches of a function's data, and a function that gives those of a pass.

    The first pass has what was looked at: a function that takes its batches from somewhere else
    would lose them to no step, and its next pass would begin in the middle of one of theirs.
    """
    position = _STARTED.get(source) if _is_known_again(source) else None
    if position is not None:
        warnings.warn(_READ_AHEAD, stacklevel=2)
    else:
        iterator = iter(source())
        position = position_of(iterator, kept=False), iterator
        if _is_known_again(source):
            _STARTED[source] = position
    own, iterator = position
    ahead = own.read_ahead(iterator, count)
    unused = [position]

    def batches() -> Iterator:
        if not unused:
            again = iter(source())
            return own.batches(again) if again is iterator else without_padding(again)
        unused.clear()
        if _is_known_again(source):
            _STARTED.pop(source, None)
        return own.batches(iterator)

    return ahead, batches


def refuse_within_pass(source: Any, steps_per_pass: int) -> None:
    """See `Position.refuse_within_pass`, of an iterator or of what a function gives.

    Args:
        source: data of any kind, of which the first batches were read; others have no position.
        steps_per_pass: number of batches of a pass over the data.
    """
    if isinstance(source, Iterator):
        position_of(source).refuse_within_pass(steps_per_pass)
    elif _is_known_again(source):
        _STARTED[source][0].refuse_within_pass(steps_per_pass)


_STARTED: weakref.WeakKeyDictionary[Callable, tuple[Position, Iterator]] = (
    weakref.WeakKeyDictionary()
)


def _is_known_again(source: Callable) -> bool:
    return isinstance(source, types.FunctionType)

"""Keras variables that share one `tf.Variable`: what is on record for one is for all of them."""

from __future__ import annotations

import weakref

import keras
import tensorflow as tf

from tf_lowrank_dp.spending.present import handle_of
from tf_lowrank_dp.spending.trace import Thing, alive


class SharedVariables:
    """Which Keras variables were seen to hold the same value, by the handle of their `tf.Variable`.

    `keras.Variable(layer.kernel.value)` and `copy.copy(layer.kernel)` are other objects than the
    kernel, with the same value for ever.  One that lives stands for all.
    """

    def __init__(self) -> None:
        self._holders: dict[int, tuple[weakref.ref, list[weakref.ref]]] = {}  # by handle
        self._seen: dict[int, list[weakref.ref]] = {}  # by variable

    def one_of(self, thing: Thing) -> Thing:
        """What stands for a thing: of Keras variables the first that was seen of those that live.

        Args:
            thing: which is seen by that.
        """
        holders = self._seen.get(id(thing))  # a handle is found ten times slower
        if holders is None:
            holders = self._see(thing)
        return thing if len(holders) < 2 else next(iter(alive(holders)))

    def another(self, handle: tf.Tensor | None) -> keras.Variable | None:
        """A Keras variable that lives and holds the value of this handle, if any does."""
        _, holders = self._holders.get(id(handle), (None, []))
        return next(iter(alive(holders)), None)

    def _see(self, thing: Thing) -> list[weakref.ref]:
        """The variables that share the value of a new one, with it."""
        handle = handle_of(thing)
        if handle is None:
            return []
        key, own = id(handle), id(thing)
        if key not in self._holders:
            gone = weakref.ref(handle, lambda _: self._holders.pop(key, None))
            self._holders[key] = gone, []
        _, holders = self._holders[key]
        holders.append(weakref.ref(thing, lambda _: self._seen.pop(own, None)))
        self._seen[own] = holders
        return holders

"""Keras variables that share one `tf.Variable`: what is on record for one is for all of them."""

from __future__ import annotations

import weakref

import keras

from tf_lowrank_dp.spending.present import handle_of
from tf_lowrank_dp.spending.trace import Thing, alive


class SharedVariables:
    """Which Keras variables were seen to hold the same value, by the handle of their `tf.Variable`.

    `keras.Variable(layer.kernel.value)` and `copy.copy(layer.kernel)` are other objects than the
    kernel, with the same value for ever.  One that lives stands for all.
    """

    def __init__(self) -> None:
        self._holders: dict[int, tuple[weakref.ref, list[weakref.ref]]] = {}

    def one_of(self, thing: Thing) -> Thing:
        """What stands for a thing: of Keras variables the first that was seen of those that live.

        Args:
            thing: which is seen by that.
        """
        handle = handle_of(thing)
        if handle is None:
            return thing
        key = id(handle)
        _, holders = self._holders.get(key, (None, []))
        for holder in holders:
            known = holder()
            if known is thing:
                break
        else:
            holders.append(weakref.ref(thing))
            if len(holders) == 1:
                gone = weakref.ref(handle, lambda _: self._holders.pop(key, None))
                self._holders[key] = gone, holders
        return next(iter(alive(holders)))

    def another(self, handle: object) -> keras.Variable | None:
        """A Keras variable that lives and holds the value of this handle, if any does."""
        _, holders = self._holders.get(id(handle), (None, []))
        return next(iter(alive(holders)), None)

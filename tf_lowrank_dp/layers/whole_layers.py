"""Layers that are differentiated as a whole, together with their children."""

from __future__ import annotations

import keras

_WHOLE: set[type] = set()


def register_fallback(layer_class: type) -> type:
    """Has layers of this class, and subclasses, differentiated as a whole with their children.

    For layers that call their children inside a loop or branch, where they cannot be captured one
    by one (recurrent layers, `TimeDistributed`).

    Args:
        layer_class: a subclass of `keras.layers.Layer`.

    Returns:
        The class: usable as a decorator.

    Example:

    >>> @register_fallback
    ... class Loop(keras.layers.Wrapper):
    ...     def call(self, x):
    ...         return keras.ops.map(self.layer, x)
    >>> is_whole(Loop(keras.layers.Dense(2)))
    True
    """
    _WHOLE.add(layer_class)
    return layer_class


def is_whole(layer: keras.layers.Layer) -> bool:
    """Whether the fallback treats the layer and its children as one."""
    return isinstance(layer, tuple(_WHOLE))


for _layer_class in (keras.layers.RNN, keras.layers.TimeDistributed):
    register_fallback(_layer_class)

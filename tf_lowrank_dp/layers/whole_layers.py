"""Layers that are differentiated as a whole, together with their children."""

from __future__ import annotations

import weakref

import keras

from tf_lowrank_dp._keras.layers import layers_of

_WHOLE: set[type] = set()
_WHOLE_LAYERS: weakref.WeakSet[keras.layers.Layer] = weakref.WeakSet()


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
    return layer in _WHOLE_LAYERS or isinstance(layer, tuple(_WHOLE))


def whole_layers(model: keras.Model) -> list[str]:
    """The paths of the layers of a model that are differentiated as a whole."""
    return [layer.path for layer in layers_of(model) if is_whole(layer)]


def differentiate_as_whole(layer: keras.layers.Layer) -> None:
    """Has one layer differentiated as a whole, whose children cannot be captured one by one."""
    _WHOLE_LAYERS.add(layer)


for _layer_class in (keras.layers.RNN, keras.layers.TimeDistributed):
    register_fallback(_layer_class)

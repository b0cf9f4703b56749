"""Which class captures which Keras layer, and the exchange of classes while a step is traced.

A model that was made private keeps its stock Keras layers: their classes are exchanged for capture
classes only for the length of a recorded forward pass.  So saving, loading, cloning or rebuilding
a model can never lose or leave behind a capture.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import keras

from tf_lowrank_dp.layers.fallback import fallback_class, own_variables
from tf_lowrank_dp.layers.units import is_unit

_CAPTURES: dict[type, type] = {}


def register_capture(layer_class: type) -> Callable[[type], type]:
    """Class decorator: the decorated subclass captures layers whose class is `layer_class`.

    Classes are matched exactly: a subclass may compute something else and needs its own entry.
    The decorated class may have a class method `can_capture(layer) -> bool`; where it says no, the
    fallback is used.
    """

    def decorate(capture: type) -> type:
        _CAPTURES[layer_class] = capture
        return keras.saving.register_keras_serializable("tf_lowrank_dp")(capture)

    return decorate


def capture_class(layer: keras.layers.Layer) -> type | None:
    """The class that records this layer, or None if it has nothing of its own to train."""
    if not own_variables(layer):
        return None
    capture = _CAPTURES.get(type(layer))
    if type(layer) in _CAPTURES.values():
        capture = type(layer)
    if capture is None or getattr(layer, "lora_enabled", False) or is_unit(layer):
        return fallback_class(type(layer))
    if not getattr(capture, "can_capture", lambda _: True)(layer):
        return fallback_class(type(layer))
    return capture


def captured_layers(model: keras.Model) -> list[tuple[keras.layers.Layer, type]]:
    """The layers that are recorded, each with its capture class, in the model's order."""
    pairs, covered = [], set()
    for layer in model._flatten_layers():
        if id(layer) in covered:
            continue
        if is_unit(layer):
            covered.update(id(child) for child in layer._flatten_layers())
        capture = capture_class(layer)
        if capture is not None:
            covered.add(id(layer))
            pairs.append((layer, capture))
    return pairs


@contextlib.contextmanager
def capturing(model: keras.Model) -> Iterator[None]:
    """Context in which the model's layers record their calls."""
    pairs = captured_layers(model)
    originals = [type(layer) for layer, _ in pairs]
    try:
        for layer, capture in pairs:
            object.__setattr__(layer, "__class__", capture)
        yield
    finally:
        for (layer, _), original in zip(pairs, originals, strict=True):
            object.__setattr__(layer, "__class__", original)

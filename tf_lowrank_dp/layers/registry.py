"""Which class captures which Keras layer, and the exchange of classes while a step is traced.

A model that was made private keeps its stock Keras layers: their classes are exchanged for capture
classes only for the length of a recorded forward pass.  So saving, loading, cloning or rebuilding
a model can never lose or leave behind a capture.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import keras

from tf_lowrank_dp._keras.layers import layers_of
from tf_lowrank_dp.layers.fallback import fallback_class, own_variables
from tf_lowrank_dp.layers.whole_layers import is_whole

_CAPTURES: dict[type, type] = {}
_BY_NAME: dict[str, type] = {}


def register_capture(layer_class: type | str) -> Callable[[type], type]:
    """Class decorator: the decorated subclass captures layers whose class is `layer_class`.

    Classes are matched exactly: a subclass may compute something else and needs its own entry.
    The decorated class may have

    * a class method `can_capture(layer) -> bool`; where it says no, the fallback is used;
    * a class method `matrix_views(layer)`, which returns pairs of a variable and its `MatrixView`;
    * a class method `added_biases(layer)`, which returns pairs of a kernel and its `AddedBias`, for
      kernels whose gradients can be centred;
    * `captures_children = True` if it records the variables of its children as well;
    * `captures_lora = True` if it records adapters of `enable_lora`.

    Args:
        layer_class: a Keras layer; or the full name of the class of a package that must not be
            imported here.  Then the decorated class has no base: it is put in front of that class.

    Example:

    >>> from tf_lowrank_dp.extend import broadcast_gradient, current_recorder
    >>> class Shift(keras.layers.Layer):
    ...     def build(self, shape):
    ...         self.bias = self.add_weight(shape=shape[-1:], name="bias")
    ...
    ...     def call(self, x):
    ...         return x + self.bias
    >>> @register_capture(Shift)
    ... class CapturedShift(Shift):
    ...     def call(self, x):
    ...         recorder = current_recorder()
    ...         if recorder is None:
    ...             return super().call(x)
    ...         builder = (self.bias, lambda d: broadcast_gradient(d, self.bias.shape))
    ...         return recorder.watch(self.name, [super().call(x)], [builder])[0]
    >>> layer = Shift()
    >>> layer.build((None, 3))
    >>> capture_class(layer).__name__
    'CapturedShift'
    """

    def decorate(capture: type) -> type:
        if isinstance(layer_class, str):
            _BY_NAME[layer_class] = capture
            return capture
        _CAPTURES[layer_class] = capture
        # For files of models that were built with captures of this package; others are never saved.
        if capture.__module__.startswith("tf_lowrank_dp."):
            keras.saving.register_keras_serializable("tf_lowrank_dp")(capture)
        return capture

    return decorate


def capture_class(layer: keras.layers.Layer) -> type | None:
    """The class that records this layer, or None if it has nothing of its own to train."""
    if not own_variables(layer):
        return None
    capture = registered_capture(type(layer))
    if capture is None or _needs_fallback(layer, capture):
        layer_class: type = type(layer)
        return fallback_class(layer_class)
    return capture


def registered_capture(layer_class: type) -> type | None:
    """The capture class of layers of exactly this class, if there is one."""
    if layer_class in _CAPTURES.values():
        return layer_class
    mixin = _BY_NAME.get(f"{layer_class.__module__}.{layer_class.__qualname__}")
    if mixin is not None and layer_class not in _CAPTURES:
        _CAPTURES[layer_class] = type(layer_class.__name__, (mixin, layer_class), {})
    return _CAPTURES.get(layer_class)


def _needs_fallback(layer: keras.layers.Layer, capture: type) -> bool:
    if is_whole(layer) and not getattr(capture, "captures_children", False):
        return True
    if getattr(layer, "lora_enabled", False) and not getattr(capture, "captures_lora", False):
        return True
    return not getattr(capture, "can_capture", lambda _: True)(layer)


def captured_layers(model: keras.Model) -> list[tuple[keras.layers.Layer, type]]:
    """The layers that are recorded, each with its capture class, in the model's order."""
    pairs: list[tuple[keras.layers.Layer, type]] = []
    covered: set[int] = set()
    for layer in layers_of(model):
        if id(layer) in covered:
            continue
        if is_whole(layer):
            covered.update(id(child) for child in layers_of(layer))
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

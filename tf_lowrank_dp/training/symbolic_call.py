"""Calls of a model on the specification of its data: what they build, and what they would mix."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence

import keras
import tensorflow as tf

from tf_lowrank_dp._keras.compiled import takes_training
from tf_lowrank_dp._keras.layers import layers_of, symbolic_inputs
from tf_lowrank_dp._types import Nested


def build_model(model: keras.Model, x_spec: Nested) -> None:
    """Builds what is not built of a model, by a call on data of this form, as Keras does in `fit`.

    Nothing is computed.  Layers that the model never calls stay as they are.

    Args:
        model: any model; one without `call` is left as it is.
        x_spec: nested `tf.TensorSpec` of a batch of inputs.
    """
    has_call = type(model).call is not keras.Model.call
    if has_call and not all(layer.built for layer in layers_of(model)):
        _trace(model, x_spec)


def input_spec(model: keras.Model) -> Nested:
    """Nested `tf.TensorSpec` of the inputs of a model, None where it does not know them itself."""
    inputs = symbolic_inputs(model)
    if inputs is None:
        return None
    return tf.nest.map_structure(lambda t: tf.TensorSpec(t.shape, t.dtype), inputs)


def mixing_normalizations(
    model: keras.Model, x_spec: Nested
) -> list[keras.layers.BatchNormalization]:
    """The batch normalisations that take averages over a batch when the model trains.

    One that is frozen, or called with `training=False` throughout, uses its stored averages.

    Args:
        model: a built model.
        x_spec: nested `tf.TensorSpec` of a batch of inputs.
    """
    layers = [
        layer
        for layer in layers_of(model)
        if isinstance(layer, keras.layers.BatchNormalization) and layer.trainable
    ]
    mixing: list[keras.layers.BatchNormalization] = []
    if layers:
        with _training_calls(layers, mixing.append):
            _trace(model, x_spec)
    return [layer for layer in layers if any(layer is other for other in mixing)]


def _trace(model: keras.Model, x_spec: Nested) -> None:
    """Calls the model as a private step does, in a graph that is thrown away."""
    training = {"training": True} if takes_training(model) else {}
    call = tf.function(lambda x: model(x, **training), autograph=False)
    call.get_concrete_function(x_spec)


@contextlib.contextmanager
def _training_calls(layers: Sequence[keras.layers.Layer], see: Callable) -> Iterator[None]:
    """Context in which `see(layer)` is told of each call of some layers in training mode."""

    def watched(layer: keras.layers.Layer) -> Callable:
        call = layer.call

        @functools.wraps(call)
        def seen(*args: Nested, training: bool | None = None, **kwargs: Nested) -> Nested:
            if training:
                see(layer)
            return call(*args, training=training, **kwargs)

        return seen

    for layer in layers:
        object.__setattr__(layer, "call", watched(layer))
    try:
        yield
    finally:
        for layer in layers:
            del layer.__dict__["call"]

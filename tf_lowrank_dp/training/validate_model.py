"""Refusals by type: what cannot be trained privately is named before anything is spent."""

from __future__ import annotations

import keras
import tensorflow as tf

from tf_lowrank_dp._keras.layers import layers_of, layers_without_variables
from tf_lowrank_dp._types import Nested
from tf_lowrank_dp.errors import UnsupportedModelError
from tf_lowrank_dp.training.distribution import refuse_distribution
from tf_lowrank_dp.training.symbolic_call import input_spec, mixing_normalizations

_LOOP = "Train it in a custom loop with tfdp.PrivateTrainer."
_REPLACED = {
    "train_step": (
        "so its loss has no known value per example",
        "Override compute_loss instead, which fit calls with the model's outputs, or train it in "
        "a custom loop with tfdp.PrivateTrainer.",
    ),
    "fit": ("which a private fit would not call", _LOOP),
    "make_train_function": ("whose steps nobody would clip or count", _LOOP),
}
"""Methods that `fit` replaces, or does without, what becomes of other ones, and what to do."""


def validate_layers(model: keras.Model) -> None:
    """Checks what is there of a model when it is made private: it may not be built yet.

    Raises:
        UnsupportedModelError: names the layer, or what is distributed, and the remedy.
    """
    if not isinstance(model, keras.Model):
        raise UnsupportedModelError(
            f"Expected a keras.Model. Received: {type(model).__name__}. Wrap layers in a "
            "keras.Sequential or functional model."
        )
    refuse_distribution(model)
    for layer in layers_of(model):
        _validate_layer(layer)


def validate_model(model: keras.Model, x_spec: Nested = None) -> None:
    """Checks a model that has its variables: before each `fit`, and before if it is built.

    Args:
        model: what was given as one.
        x_spec: nested `tf.TensorSpec` of a batch of inputs, by default of the model's own.

    Raises:
        UnsupportedModelError: names the layer, or what is distributed, and the remedy.
    """
    validate_layers(model)
    if not model.trainable_variables:
        remedy = "Set trainable = True on the layers to train."
        if layers_without_variables(model):
            remedy = "It is not built: call it once on a batch of data, model(x), first."
        raise UnsupportedModelError(
            f"Expected something to train. Received: '{model.name}' without trainable variables. "
            f"{remedy}"
        )
    x_spec = input_spec(model) if x_spec is None else x_spec
    if x_spec is not None:
        _validate_normalizations(model, x_spec)


def validate_training_step(model: keras.Model) -> None:
    """Checks that `fit` trains what Keras would: custom loops need no such thing.

    Raises:
        UnsupportedModelError: names the method that the model overrides.
    """
    for method, (why, remedy) in _REPLACED.items():
        own = getattr(type(model), method)
        is_tasks = method == "fit" and own.__module__.startswith("keras_hub.")
        if own is not getattr(keras.Model, method) and not is_tasks:
            raise UnsupportedModelError(
                f"Expected Keras' own {method}. Received: {type(model).__name__} overrides it, "
                f"{why}. {remedy}"
            )


def _validate_normalizations(model: keras.Model, x_spec: Nested) -> None:
    for layer in mixing_normalizations(model, x_spec):
        raise UnsupportedModelError(
            f"Expected layers that treat each example by itself. Received: '{layer.name}', a "
            "trainable BatchNormalization, which mixes the examples of a batch and stores their "
            "averages without noise. Freeze it (layer.trainable = False uses the stored "
            "averages) or use keras.layers.GroupNormalization instead: "
            "tfdp.replace_batch_normalization(model) gives a copy that does."
        )


def _validate_layer(layer: keras.layers.Layer) -> None:
    if isinstance(layer, keras.layers.SpectralNormalization):
        raise UnsupportedModelError(
            f"Expected layers whose weights only the optimizer changes. Received: '{layer.name}', "
            "a SpectralNormalization, which rewrites the kernel of its layer in every forward "
            "pass. Use the layer inside of it by itself."
        )
    if getattr(layer, "stateful", False):
        raise UnsupportedModelError(
            f"Expected layers without memory of earlier batches. Received: '{layer.name}', a "
            "stateful recurrent layer. Set stateful=False."
        )
    is_graph = isinstance(layer.call, tf.types.experimental.PolymorphicFunction)
    if is_graph and any(each.trainable_variables for each in layers_of(layer) if each is not layer):
        raise UnsupportedModelError(
            f"Expected layers that are called by Python code. Received: the call of '{layer.name}' "
            "is a tf.function, in which the layers that it calls cannot be reached. Remove the "
            "@tf.function: fit compiles the whole step anyway."
        )
    overwritten = [v.path for v in layer.trainable_variables if v.overwrite_with_gradient]
    if overwritten:
        raise UnsupportedModelError(
            f"Expected weights that an optimizer updates. Received: '{layer.name}' with "
            f"{overwritten}, which Keras overwrites with their gradient (float8 training). Use "
            "another dtype policy, such as mixed_bfloat16."
        )

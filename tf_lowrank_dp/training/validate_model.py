"""Refusals by type: what cannot be trained privately is named before anything is spent."""

from __future__ import annotations

import keras

from tf_lowrank_dp._keras.layers import layers_of
from tf_lowrank_dp.errors import UnsupportedModelError
from tf_lowrank_dp.training.data import is_task
from tf_lowrank_dp.training.distribution import refuse_distribution

_TABLES = (keras.layers.StringLookup, keras.layers.IntegerLookup)
"""Layers without weights; those inside of a `TextVectorization` are never marked as built."""

_REPLACED = {
    "train_step": "so its loss has no known value per example",
    "compute_loss": "so its loss has no known value per example",
    "compute_metrics": "which a private step would not call",
    "fit": "which a private fit would not call",
}
"""Methods that `fit` replaces, or does without, and what becomes of other ones."""


def validate_model(model: keras.Model) -> None:
    """Checks a model before it is made private, and again before each `fit`.

    Raises:
        UnsupportedModelError: names the layer, or what is distributed, and the remedy.
    """
    if not isinstance(model, keras.Model):
        raise UnsupportedModelError(
            f"Expected a keras.Model. Received: {type(model).__name__}. Wrap layers in a "
            "keras.Sequential or functional model."
        )
    refuse_distribution(model)
    outside = {id(layer) for layer in _preprocessing_layers(model)}
    unbuilt = [
        layer.name
        for layer in layers_of(model)
        if not layer.built and id(layer) not in outside and not isinstance(layer, _TABLES)
    ]
    if unbuilt:
        raise UnsupportedModelError(
            f"Expected a built model. Received: '{model.name}' with unbuilt layers {unbuilt}. Call "
            "the model once on a batch of data, or model.build(input_shape), first."
        )
    if not model.trainable_variables:
        raise UnsupportedModelError(
            f"Expected something to train. Received: '{model.name}' without trainable variables. "
            "Set trainable = True on the layers to train."
        )
    for layer in layers_of(model):
        _validate_layer(layer)


def validate_training_step(model: keras.Model) -> None:
    """Checks that `fit` trains what Keras would: custom loops need no such thing.

    Raises:
        UnsupportedModelError: names the method that the model overrides.
    """
    for method, why in _REPLACED.items():
        own = getattr(type(model), method)
        is_tasks = method == "fit" and own.__module__.startswith("keras_hub.")
        if own is not getattr(keras.Model, method) and not is_tasks:
            raise UnsupportedModelError(
                f"Expected Keras' own {method}. Received: {type(model).__name__} overrides it, "
                f"{why}. Train it in a custom loop with tfdp.PrivateTrainer."
            )


def _preprocessing_layers(model: keras.Model) -> list[keras.layers.Layer]:
    """The layers that a KerasHub task applies to its data before the model sees them."""
    preprocessor = getattr(model, "preprocessor", None)
    if is_task(model) and isinstance(preprocessor, keras.layers.Layer):
        return layers_of(preprocessor)
    return []


def _validate_layer(layer: keras.layers.Layer) -> None:
    if isinstance(layer, keras.layers.BatchNormalization) and layer.trainable:
        raise UnsupportedModelError(
            f"Expected layers that treat each example by itself. Received: '{layer.name}', a "
            "trainable BatchNormalization, which mixes the examples of a batch and stores their "
            "averages without noise. Freeze it (layer.trainable = False uses the stored "
            "averages) or use keras.layers.GroupNormalization instead: "
            "tfdp.replace_batch_normalization(model) gives a copy that does."
        )
    if isinstance(layer, _TABLES) and getattr(layer, "num_oov_indices", 1) == 0:
        raise UnsupportedModelError(
            f"Expected layers that take any record. Received: '{layer.name}', a "
            f"{type(layer).__name__} with num_oov_indices=0, which raises an error at a value that "
            "is not in its vocabulary: one record could stop the training, and show that it is "
            "there. Use num_oov_indices=1."
        )
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
    overwritten = [v.path for v in layer.trainable_variables if v.overwrite_with_gradient]
    if overwritten:
        raise UnsupportedModelError(
            f"Expected weights that an optimizer updates. Received: '{layer.name}' with "
            f"{overwritten}, which Keras overwrites with their gradient (float8 training). Use "
            "another dtype policy, such as mixed_bfloat16."
        )

"""What a model keeps where nothing is trained: validation, `evaluate`, `predict`, plain calls."""

from __future__ import annotations

import keras
import tensorflow as tf

from tf_lowrank_dp._keras.class_names import is_stock
from tf_lowrank_dp._keras.compiled import takes_training
from tf_lowrank_dp._keras.layers import layers_of
from tf_lowrank_dp._types import Nested
from tf_lowrank_dp.errors import UnsupportedModelError
from tf_lowrank_dp.tracing.random_ops import random_numbers_from, seeds_kept
from tf_lowrank_dp.tracing.secret_stream import SecretStream
from tf_lowrank_dp.training.chosen_method import part_of_this_graph


def refuse_writes_at_inference(model: keras.Model, x_spec: Nested) -> None:
    """Refuses layers that keep something of what they see where nothing is trained.

    Guarantee: no statistic of validation data, exact and without noise, is in a file of the model.

    Args:
        model: built.
        x_spec: nested `tf.TensorSpec` of a batch of its inputs.

    Raises:
        UnsupportedModelError: names the operation.
    """
    if all(_is_stock(layer) for layer in layers_of(model)):
        return
    parts: list = []
    masks = SecretStream()

    def inference(x: Nested) -> None:
        with random_numbers_from(masks), part_of_this_graph(x) as found, seeds_kept():
            if takes_training(model):
                model(x, training=False)
            else:
                model(x)
        parts[:] = found

    try:
        tf.function(inference, autograph=False).get_concrete_function(x_spec)
    except UnsupportedModelError:
        raise
    except Exception:  # a model that is called in training only
        return
    if parts[0].writes:
        raise UnsupportedModelError(
            "Expected layers that keep nothing of what they see. Received: "
            f"'{model.name}', where {parts[0].writes[0]} writes to a variable or table when the "
            "model is called with training=False, as by validation, evaluate and predict: that "
            "would be exact, without noise, in each file. Remove it, and keep statistics outside "
            "of the model."
        )


def _is_stock(layer: keras.Layer) -> bool:
    return is_stock(type(layer)) and not isinstance(layer, keras.layers.Lambda)

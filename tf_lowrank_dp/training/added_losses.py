"""Losses that layers add in their forward pass, example by example."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import keras
import tensorflow as tf

from tf_lowrank_dp._keras.layers import layers_of, own_losses
from tf_lowrank_dp.errors import UnsupportedModelError
from tf_lowrank_dp.layers.recorder import current_graph

_SEPARABLE = (keras.regularizers.L1, keras.regularizers.L2, keras.regularizers.L1L2)


@contextlib.contextmanager
def separated_activity_regularizers(model: keras.Model) -> Iterator[list[tf.Tensor]]:
    """Context in which activity regularisers give one value per example.

    Keras adds their sum over the batch, divided by its size, as one scalar.  L1 and L2 are sums
    over examples and can be taken apart; others are refused.

    Yields:
        A list that the forward pass fills with values `(b,)`: terms of the examples' losses.

    Raises:
        UnsupportedModelError: names the layer.
    """
    layers = [
        layer
        for layer in layers_of(model)
        if getattr(layer, "activity_regularizer", None) is not None
    ]
    originals = [layer.activity_regularizer for layer in layers]
    values: list[tf.Tensor] = []
    try:
        for layer, regularizer in zip(layers, originals, strict=True):
            if type(regularizer) not in _SEPARABLE:
                raise UnsupportedModelError(
                    f"Expected the activity regulariser of layer '{layer.name}' to be L1, L2 or "
                    f"L1L2, which are sums over examples. Received: {regularizer!r}. Remove it, "
                    "or add one value per example with add_loss in the layer's call."
                )
            layer.activity_regularizer = _collecting(regularizer, layer.name, values)
        yield values
    finally:
        for layer, regularizer in zip(layers, originals, strict=True):
            layer.activity_regularizer = regularizer


def added_losses(model: keras.Model, batch_size: float) -> tf.Tensor | float:
    """What the layers added in the latest forward pass, float32 `(b,)`.

    Keras adds these losses summed over the batch to a loss that is a mean over the batch, so
    here they count `batch_size` times: with batches of the expected size training minimises
    the same objective.

    Args:
        model: just called on a batch.
        batch_size: the expected batch size.

    Raises:
        UnsupportedModelError: a layer added a scalar, which mixes examples.
    """
    total = 0.0
    for layer in layers_of(model):
        for value in own_losses(layer):
            if value.shape.rank == 0:
                raise UnsupportedModelError(
                    f"Expected layer '{layer.name}' to add one loss per example, of shape "
                    "(batch,). Received: a scalar in add_loss, which mixes the examples of a "
                    "batch. Add the values before their sum or mean over the batch."
                )
            value = tf.cast(value, tf.float32)
            total += batch_size * tf.reduce_sum(value, axis=list(range(1, value.shape.rank)))
    return total


def regularization_gradients(model: keras.Model) -> list[tf.Tensor | None]:
    """Gradients of the weight regularisers: functions of public weights, added after the noise."""
    variables = model.trainable_variables
    with tf.GradientTape() as tape:
        penalties = [v.regularizer(v) for v in variables if v.regularizer is not None]
    return tape.gradient(penalties, [v.value for v in variables]) if penalties else []


def _collecting(
    regularizer: Callable[[tf.Tensor], tf.Tensor], name: str, values: list[tf.Tensor]
) -> Callable[[tf.Tensor], tf.Tensor]:
    """Stands in for `regularizer`: collects its value for each example and adds zeros to Keras."""
    graph = current_graph()

    def collect(outputs: tf.Tensor) -> tf.Tensor:
        if current_graph() is not graph:
            raise UnsupportedModelError(
                f"Expected layer '{name}' to run directly in the model's forward pass. Received: "
                "an activity regulariser inside a loop or branch of the layer around it. Put "
                "the regulariser on the surrounding layer, or remove it."
            )
        value = tf.cast(tf.vectorized_map(regularizer, outputs), tf.float32)
        values.append(value)
        return tf.zeros_like(value)

    return collect

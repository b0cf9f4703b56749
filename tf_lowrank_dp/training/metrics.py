"""Metrics of a private step.  They are computed on private data without noise."""

from __future__ import annotations

import keras
import tensorflow as tf


def update_metrics(model: keras.Model, batch: dict, presence, losses, outputs) -> None:
    """Updates the model's metrics with the examples that are present, padding left out.

    Args:
        model: a compiled Keras model.
        batch: `{"x", "y", "sample_weight"}`, the last two optional.
        presence: float32 `(b,)`.
        losses: float32 `(b,)`.
        outputs: `{"y_pred", "losses"}` from `CompiledLoss`.
    """
    model._loss_tracker.update_state(_present(losses, presence), sample_weight=presence)
    y, y_pred, sample_weight = batch.get("y"), outputs["y_pred"], batch.get("sample_weight")
    compiled_loss, parts = model._compile_loss, outputs["losses"]
    if not compiled_loss.built:
        compiled_loss(y, y_pred)
        compiled_loss.built = True
    for metric, values in zip(compiled_loss.metrics, parts, strict=False):
        metric.update_state(_present(values, presence), sample_weight=presence)
    compiled = model._compile_metrics
    if compiled is None:
        return
    if not compiled.built:
        compiled.build(y, y_pred)
    y, y_pred = compiled._flatten_y(y), compiled._flatten_y(y_pred)
    weights = [presence] * len(y_pred)
    if sample_weight is not None:
        weights = compiled._flatten_y(sample_weight)
        weights = weights if len(weights) == len(y_pred) else [weights[0]] * len(y_pred)
        weights = [_weighted(weight, presence) for weight in weights]
    for metric, y_t, y_p in zip(compiled._flat_metrics, y, y_pred, strict=False):
        if metric:
            metric.update_state(y_t, y_p, presence)
    for metric, y_t, y_p, weight in zip(
        compiled._flat_weighted_metrics, y, y_pred, weights, strict=False
    ):
        if metric:
            metric.update_state(y_t, y_p, weight)


def _present(values, presence):
    return tf.where(presence > 0.0, values, 0.0)


def _weighted(weight, presence):
    shape = tf.concat([tf.shape(presence), tf.ones([weight.shape.rank - 1], tf.int32)], 0)
    return tf.cast(weight, tf.float32) * tf.reshape(presence, shape)

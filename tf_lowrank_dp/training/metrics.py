"""Metrics of a private step.  They are computed on private data without noise."""

from __future__ import annotations

import keras
import tensorflow as tf

from tf_lowrank_dp._keras.compiled import (
    by_output,
    compiled_loss,
    compiled_metrics,
    loss_tracker,
    metrics_by_output,
)
from tf_lowrank_dp._types import Nested


def update_metrics(
    model: keras.Model, batch: dict, presence: tf.Tensor, losses: tf.Tensor, outputs: Nested
) -> None:
    """Updates the model's metrics with the examples that are present, padding left out.

    Args:
        model: a compiled Keras model.
        batch: `{"x", "y", "sample_weight"}`, the last two optional.
        presence: float32 `(b,)`.
        losses: float32 `(b,)`.
        outputs: `{"y_pred", "losses"}` from `CompiledLoss`.
    """
    loss_tracker(model).update_state(_present(losses, presence), sample_weight=presence)
    y, y_pred, sample_weight = batch.get("y"), outputs["y_pred"], batch.get("sample_weight")
    loss, parts = compiled_loss(model), outputs["losses"]
    assert loss is not None
    if not loss.built:
        loss(y, y_pred)
        loss.built = True
    for metric, values in zip(loss.metrics, parts, strict=False):
        metric.update_state(_present(values, presence), sample_weight=presence)
    compiled = compiled_metrics(model)
    if compiled is None:
        return
    if not compiled.built:
        compiled.build(y, y_pred)
    y, y_pred = by_output(compiled, y), by_output(compiled, y_pred)
    weights = [presence] * len(y_pred)
    if sample_weight is not None:
        weights = by_output(compiled, sample_weight)
        weights = weights if len(weights) == len(y_pred) else [weights[0]] * len(y_pred)
        weights = [_weighted(weight, presence) for weight in weights]
    metrics, weighted_metrics = metrics_by_output(compiled)
    for metric, y_t, y_p in zip(metrics, y, y_pred, strict=False):
        if metric:
            metric.update_state(y_t, y_p, presence)
    for metric, y_t, y_p, weight in zip(weighted_metrics, y, y_pred, weights, strict=False):
        if metric:
            metric.update_state(y_t, y_p, weight)


def _present(values: Nested, presence: tf.Tensor) -> Nested:
    return tf.where(presence > 0.0, values, 0.0)


def _weighted(weight: tf.Tensor, presence: tf.Tensor) -> tf.Tensor:
    shape = tf.concat([tf.shape(presence), tf.ones([weight.shape.rank - 1], tf.int32)], 0)
    return tf.cast(weight, tf.float32) * tf.reshape(presence, shape)

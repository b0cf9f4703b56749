"""Metrics of a private step.  They are computed on private data without noise."""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Iterator

import keras
import tensorflow as tf

from tf_lowrank_dp._keras.compiled import (
    compiled_loss,
    compiled_metrics,
    loss_tracker,
)
from tf_lowrank_dp._keras.layers import layers_of, seeds_in_reach
from tf_lowrank_dp._keras.scopes import attach_masks
from tf_lowrank_dp._types import Nested
from tf_lowrank_dp.errors import UnsupportedModelError


def reset_metrics(model: keras.Model) -> None:
    """`model.reset_metrics` of a model that was made private: as its class does.

    Guarantee: metrics, which know examples as they are, change no rate or other single
    floating-point variable of the optimizer when Python resets them, and none of the model that a
    metric holds.

    Raises:
        UnsupportedModelError: one would; it has its value back.
    """
    kept = _numbers_in_reach(model) if tf.executing_eagerly() else []
    before = [variable.numpy() for variable in kept]
    type(model).reset_metrics(model)
    changed = [
        (variable, value)
        for variable, value in zip(kept, before, strict=True)
        if variable.numpy().tobytes() != value.tobytes()
    ]
    for variable, value in changed:
        variable.assign(value)
    if changed:
        raise UnsupportedModelError(
            "Expected metrics that change variables of their own only when they are reset. "
            f"Received: '{model.name}', whose reset_metrics changes "
            f"{sorted(variable.path for variable, _ in changed)}: what metrics see is neither "
            "clipped nor noised. Change a rate in a schedule, or in a callback by what is public."
        )


def variables_of_metrics(model: keras.Model) -> list[keras.Variable]:
    """Of all metrics, with those of inner models and those that a class leaves out of its own."""
    models = [layer for layer in layers_of(model) if isinstance(layer, keras.Model)]
    found = [m for each in models for m in (*each.metrics, *keras.Model.metrics.fget(each))]
    metrics = {id(metric): metric for metric in found}.values()
    # What only behaves as a metric need not have any.
    return [variable for metric in metrics for variable in getattr(metric, "variables", ())]


def _numbers_in_reach(model: keras.Model) -> list[keras.Variable]:
    """Floating-point ones of one element: the optimizer's, and the model's that metrics hold."""
    optimizer = getattr(model, "optimizer", None)
    held = {id(variable) for variable in variables_of_metrics(model)}
    own = [*(optimizer.variables if optimizer else ())]
    own += [variable for variable in model.variables if id(variable) in held]
    floating = [variable for variable in own if tf.as_dtype(variable.dtype).is_floating]
    return [variable for variable in floating if math.prod(variable.shape) == 1]


@contextlib.contextmanager
def seeds_put_back(model: keras.Model) -> Iterator[None]:
    """Context in which metrics may draw: `seeds_in_reach` are as before behind it.

    Their counters would tell how many parts of a draw had rows.  The numbers themselves are of the
    step's secret stream.
    """
    states = seeds_in_reach(model)
    before = [tf.identity(state.value) for state in states]
    yield
    for state, value in zip(states, before, strict=True):
        state.assign(value)


def update_metrics(
    model: keras.Model, batch: dict, presence: tf.Tensor, losses: tf.Tensor, outputs: Nested
) -> None:
    """Updates the model's metrics with the examples that are present; they see no padding.

    Where no example is present they are left as they are: a mean over none would be no number.

    Args:
        model: a compiled Keras model.
        batch: `{"x", "y", "sample_weight"}`, the last two optional.  The model's own
            `compute_metrics` gets them as Keras gives them.
        presence: float32 `(b,)`.
        losses: float32 `(b,)`.
        outputs: `{"y_pred", "masks", "losses"}` from `CompiledLoss`.
    """
    _build(model, batch.get("y"), outputs["y_pred"])
    present = presence > 0.0

    def update() -> None:
        places = tf.where(present)[:, 0]
        shown = tf.nest.map_structure(
            lambda leaf: tf.gather(leaf, places), (batch, losses, outputs)
        )
        _update(model, *shown)

    tf.cond(tf.reduce_any(present), update, lambda: None)


def build_metrics(model: keras.Model, y: Nested, y_pred: Nested) -> None:
    """Makes the variables of metrics before the step is traced, which would be traced again else.

    Args:
        model: a compiled Keras model.
        y, y_pred: nested `tf.TensorSpec` of targets, or None, and outputs.
    """

    def update(y: Nested, y_pred: Nested) -> None:
        _build(model, y, y_pred)
        metrics = compiled_metrics(model)
        own = type(model).compute_metrics is not keras.Model.compute_metrics
        if metrics is None or own or all(map(_has_all_variables, metrics.metrics)):
            return
        metrics.update_state(y, y_pred)

    def rows(spec: tf.TensorSpec | None) -> tf.TensorSpec | None:
        if spec is None or not spec.shape.rank:
            return spec
        return tf.TensorSpec([None, *spec.shape[1:]], spec.dtype)

    specs = tf.nest.map_structure(rows, (y, y_pred))
    tf.function(update, autograph=False).get_concrete_function(*specs)  # traced, never called


def _has_all_variables(metric: keras.metrics.Metric) -> bool:
    """Whether it is a mean, which makes none when it is updated."""
    update = keras.metrics.MeanMetricWrapper.update_state
    return (
        isinstance(metric, keras.metrics.MeanMetricWrapper) and type(metric).update_state == update
    )


def _build(model: keras.Model, y: Nested, y_pred: Nested) -> None:
    """Has Keras make the metrics that depend on shapes, outside of what may not be executed."""
    loss, metrics = compiled_loss(model), compiled_metrics(model)
    if loss is not None and not loss.built:
        of_one_output = not (keras.tree.is_nested(y) or keras.tree.is_nested(y_pred))
        (loss.build if of_one_output else loss)(y, y_pred)  # a call matches targets with outputs
        loss.built = True
    if metrics is not None and not metrics.built:
        metrics.build(y, y_pred)


def _update(model: keras.Model, batch: dict, losses: tf.Tensor, outputs: Nested) -> None:
    loss_tracker(model).update_state(losses)
    loss, metrics = compiled_loss(model), compiled_metrics(model)
    for metric, values in zip(loss.metrics if loss else [], outputs["losses"], strict=False):
        metric.update_state(values)
    is_own = type(model).compute_metrics is not keras.Model.compute_metrics
    if metrics is not None or is_own:
        attach_masks(outputs["y_pred"], outputs["masks"])
    y, weight = batch.get("y"), batch.get("sample_weight")
    if is_own:
        results = model.compute_metrics(batch["x"], y, outputs["y_pred"], weight)
        _warn_of_others(model, results)
    elif metrics is not None:
        metrics.update_state(y, outputs["y_pred"], weight)


def _warn_of_others(model: keras.Model, results: dict) -> None:
    others = sorted(results.keys() - model.get_metrics_result().keys())
    if others:
        warnings.warn(
            f"compute_metrics of '{model.name}' returns {others}, which are no results of its "
            "metrics, and are not shown: a draw may be empty, or taken in several parts. Keep them "
            "in a keras.metrics.Metric that is an attribute of the model.",
            stacklevel=2,
        )

"""Per-example losses from whatever was given to `compile`.

Keras reduces a loss over the whole batch: its masks and weights rescale by counts over the batch,
so one example's mask changes another's gradient.  Here every example has a loss of its own, the
mean (or sum, for `reduction="sum"`) over its positions, and the training loss is their mean.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import keras
import tensorflow as tf

from tf_lowrank_dp._keras.compiled import (
    compiled_loss,
    losses_and_weights,
    observe_losses,
    with_losses,
)
from tf_lowrank_dp._keras.scopes import mask_of
from tf_lowrank_dp._types import LossLike, Nested
from tf_lowrank_dp.errors import UnsupportedModelError


class PerExampleLoss(keras.losses.Loss):
    """A Keras loss that returns one value per example instead of one per batch.

    A label of a sparse cross-entropy that is no class makes the loss of its example NaN, so that
    it contributes nothing, unless its weight is 0 or it is masked.  TensorFlow raises for it on a
    CPU, an error that tells of one private example.

    Args:
        loss: a `keras.losses.Loss`, the name of one, or a function `(y_true, y_pred)` that returns
            at least one value per example.

    Raises:
        UnsupportedModelError: the loss overrides `__call__`, so that its values per example
            cannot be reached; or, when called, it returns a scalar.
    """

    def __init__(self, loss: LossLike):
        self._identifier = loss
        resolved = None if _is_deferred(loss) else _as_loss(loss)
        super().__init__(name=getattr(resolved, "name", str(loss)), reduction="none")
        self._resolved = resolved

    def __call__(self, y_true: Nested, y_pred: Nested, sample_weight: Nested = None) -> tf.Tensor:
        loss = self._resolved or _crossentropy_for(y_true, y_pred)
        mask = mask_of(y_pred)
        y_true = keras.tree.map_structure(lambda t: keras.ops.cast(t, loss.dtype), y_true)
        y_pred = keras.tree.map_structure(lambda t: keras.ops.cast(t, loss.dtype), y_pred)
        no_class = None
        if _is_sparse(loss):
            y_true, no_class = _classes_of(loss, y_true, y_pred)
        values = tf.convert_to_tensor(loss.call(y_true, y_pred))
        if values.shape.rank == 0:
            raise UnsupportedModelError(
                f"Expected loss '{self.name}' to return one value per example, shape (batch,) or "
                "(batch, ...). Received: a scalar. Return the values before the mean over the "
                "batch (for keras losses with an axis argument, exclude the first axis)."
            )
        values = tf.cast(values, tf.float32)
        mask = _joined(mask, mask_of(values))
        losses = _reduced(values, mask, sample_weight, loss.reduction)
        if no_class is None:
            return losses
        counted = _reduced(no_class, mask, sample_weight, "sum") != 0.0
        return losses * tf.where(counted, float("nan"), 1.0)

    def get_config(self) -> dict:
        return {"loss": self._identifier}


class PerExampleCompiledLoss:
    """The compiled losses of a model, weighted and added up, for each example.

    Args:
        model: a compiled Keras model.

    Raises:
        UnsupportedModelError: there is no loss, or one that has no value per example.
    """

    def __init__(self, model: keras.Model):
        compiled = compiled_loss(model)
        if compiled is None:
            raise UnsupportedModelError(
                "Expected a loss in model.compile(loss=...). Received: none. Private training "
                "clips the gradient of each example's loss and needs it there."
            )
        losses, _ = losses_and_weights(compiled)
        per_example = keras.tree.map_structure(
            lambda leaf: None if leaf is None else PerExampleLoss(leaf), losses
        )
        self._compiled = with_losses(compiled, per_example)

    def __call__(
        self, y_true: Nested, y_pred: Nested, sample_weight: Nested = None
    ) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """Returns the total, float32 `(b,)`, and each output's unweighted losses."""
        if not self._compiled.built:
            # Building matches losses with outputs; the metrics it makes are replaced by these.
            self._compiled(y_true, y_pred, sample_weight)
        collectors = observe_losses(self._compiled, _Collector)
        total = self._compiled(y_true, y_pred, sample_weight)
        return tf.cast(total, tf.float32), [c.value for c in collectors if c.value is not None]


class _Collector:
    """Stands in for the metric of one output's loss and keeps its values."""

    value: tf.Tensor | None = None
    variables: Sequence[keras.Variable] = ()

    def update_state(self, value: tf.Tensor, sample_weight: tf.Tensor | None = None) -> None:
        del sample_weight
        self.value = value


def _is_deferred(loss: LossLike) -> bool:
    return isinstance(loss, str) and loss.lower() in ("crossentropy", "ce")


def _as_loss(loss: LossLike) -> keras.losses.Loss:
    resolved = keras.losses.get(loss)
    if not isinstance(resolved, keras.losses.Loss):
        return _FunctionLoss(resolved)
    if type(resolved).__call__ is not keras.losses.Loss.__call__:
        raise UnsupportedModelError(
            f"Expected loss '{resolved.name}' to be computed by its call(y_true, y_pred). "
            "Received: a class that overrides __call__, whose values per example cannot be "
            "reached. Override call instead and return one value per example."
        )
    return resolved


class _FunctionLoss(keras.losses.Loss):
    """A plain function `(y_true, y_pred)` as a Keras loss."""

    def __init__(self, function: Callable):
        super().__init__(name=getattr(function, "__name__", "loss"))
        self._function = function

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        return self._function(y_true, y_pred)


def _crossentropy_for(y_true: tf.Tensor, y_pred: tf.Tensor) -> keras.losses.Loss:
    """What Keras makes of loss="crossentropy": decided by the shapes."""
    if y_pred.shape[-1] == 1:
        return keras.losses.BinaryCrossentropy()
    if y_true.shape.rank < y_pred.shape.rank or y_true.shape[-1] == 1:
        return keras.losses.SparseCategoricalCrossentropy()
    return keras.losses.CategoricalCrossentropy()


def _is_sparse(loss: keras.losses.Loss) -> bool:
    """Whether targets are numbers of classes."""
    function = loss._function if isinstance(loss, _FunctionLoss) else getattr(loss, "fn", None)
    return function is keras.losses.sparse_categorical_crossentropy


def _classes_of(
    loss: keras.losses.Loss, y_true: tf.Tensor, y_pred: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """The labels, 0 where there is no such class; and 1.0 there, `(b, ...)` like the values."""
    is_class = (y_true >= 0) & (y_true < y_pred.shape[-1])
    ignored = getattr(loss, "ignore_class", None)
    if ignored is not None:
        is_class |= y_true == ignored
    no_class = tf.where(is_class, 0.0, 1.0)
    if no_class.shape.rank == y_pred.shape.rank:
        no_class = tf.squeeze(no_class, -1)
    return tf.where(is_class, y_true, tf.zeros_like(y_true)), no_class


def _joined(mask: tf.Tensor | None, other: tf.Tensor | None) -> tf.Tensor | None:
    if mask is None or other is None:
        return other if mask is None else mask
    return tf.logical_and(tf.cast(mask, tf.bool), tf.cast(other, tf.bool))


def _reduced(
    values: tf.Tensor,
    mask: tf.Tensor | None,
    sample_weight: tf.Tensor | None,
    reduction: str | None,
) -> tf.Tensor:
    """Reduces `(b, ...)` to `(b,)` by the example's own mask and weights alone."""
    weights = tf.ones_like(values)
    if sample_weight is not None:
        weights *= _aligned(tf.cast(sample_weight, tf.float32), values)
    counted = tf.ones_like(values)
    if mask is not None:
        counted = tf.ones_like(values) * _aligned(tf.cast(mask, tf.float32), values)
    values = tf.math.multiply_no_nan(values, weights * counted)
    axes = list(range(1, values.shape.rank))
    total = tf.reduce_sum(values, axes)
    if reduction == "sum":
        return total
    if reduction == "mean_with_sample_weight":
        counted = weights * counted
    return tf.math.divide_no_nan(total, tf.reduce_sum(counted, axes))


def _aligned(weights: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    """Weights of shape `(b,)`, `(b, 1)` or like the values', broadcastable to them."""
    if weights.shape.rank == values.shape.rank + 1 and weights.shape[-1] == 1:
        weights = tf.squeeze(weights, -1)
    while weights.shape.rank < values.shape.rank:
        weights = weights[..., None]
    return weights

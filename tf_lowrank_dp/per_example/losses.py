"""Per-example losses from whatever was given to `compile`.

Keras reduces a loss over the whole batch: its masks and weights rescale by counts over the batch,
so one example's mask changes another's gradient.  Here every example has a loss of its own, the
mean (or sum, for `reduction="sum"`) over its positions, and the training loss is their mean.
"""

from __future__ import annotations

from collections.abc import Sequence

import keras
import tensorflow as tf

from tf_lowrank_dp._keras.compiled import (
    compiled_loss,
    loss_object,
    losses_and_weights,
    name_of_loss,
    observe_losses,
    same_ranks,
    with_losses,
)
from tf_lowrank_dp._keras.scopes import mask_of
from tf_lowrank_dp._types import LossLike, Nested
from tf_lowrank_dp.per_example.losses_alone import one_by_one, try_alone
from tf_lowrank_dp.per_example.separated_losses import separated

_OF_CLASSES = (
    keras.losses.sparse_categorical_crossentropy,
    keras.losses.categorical_generalized_cross_entropy,
)
"""Losses whose targets are numbers of classes."""

_OF_THE_BATCH = (keras.losses.hinge, keras.losses.squared_hinge)
"""Losses that decide by all targets of a batch whether 0 means -1."""


class PerExampleLoss(keras.losses.Loss):
    """A Keras loss that returns one value per example instead of one per batch.

    It is the value that Keras gives a batch of this example alone.  A loss that returns values per
    example is computed for the whole batch at once, and so is one that returns the mean of such
    values; others, and those that override `__call__`, for one example after the other.

    A label of a sparse cross-entropy that is no class makes the loss of its example NaN, so that
    it contributes nothing, unless its weight is 0 or it is masked.  TensorFlow raises for it on a
    CPU, an error that tells of one private example.

    Args:
        loss: whatever `compile` takes as the loss of one output: a `keras.losses.Loss`, the name of
            one, or a function `(y_true, y_pred)`.

    Raises:
        UnsupportedModelError: when called: it returns a scalar that does not depend on the outputs
            where an example is alone.
    """

    def __init__(self, loss: LossLike):
        self._identifier = loss
        super().__init__(name=name_of_loss(loss), reduction="none")
        self._tried = False

    def __call__(self, y_true: Nested, y_pred: Nested, sample_weight: Nested = None) -> tf.Tensor:
        loss = loss_object(self._identifier, y_true, y_pred)
        mask = mask_of(y_pred)
        values, no_class = None, None
        own_call = type(loss).__call__ is not keras.losses.Loss.__call__
        if not own_call and getattr(loss, "fn", None) not in _OF_THE_BATCH:
            values, no_class = _values(loss, y_true, y_pred)
        if values is None or not values.shape.rank:  # None where the graph does not tell
            if not self._tried:
                try_alone(loss, y_true, y_pred)
                self._tried = True
            if values is not None and mask is None and sample_weight is None:
                found = _apart(values, y_pred)
                if found is not None:
                    return found
            return one_by_one(loss, y_true, y_pred, mask, sample_weight)
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
        model: a Keras model that was compiled with a loss.
    """

    def __init__(self, model: keras.Model):
        compiled = compiled_loss(model)
        assert compiled is not None
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


def _values(
    loss: keras.losses.Loss, y_true: Nested, y_pred: Nested
) -> tuple[tf.Tensor, tf.Tensor | None]:
    """What a loss returns for a batch before it is reduced, and where labels are no classes."""
    # On its own in each row, as otherwise the last axis would be that of the examples.
    y_pred = keras.tree.map_structure(lambda t: t[:, None] if t.shape.rank == 1 else t, y_pred)
    y_true, y_pred = keras.tree.map_structure(
        lambda t: keras.ops.cast(t, loss.dtype), (y_true, y_pred)
    )
    y_true, y_pred = same_ranks(y_true, y_pred)
    no_class = None
    if getattr(loss, "fn", None) in _OF_CLASSES:
        y_true, no_class = _classes_of(loss, y_true, y_pred)
    return tf.convert_to_tensor(loss.call(y_true, y_pred)), no_class


def _apart(value: tf.Tensor, y_pred: Nested) -> tf.Tensor | None:
    """A mean over the batch for each example, float32 `(b,)`, where its graph shows them."""
    rows = tf.nest.flatten(y_pred)[0].shape[0]
    if rows is None or not tf.is_symbolic_tensor(value):
        return None
    found = separated(value, rows, batch_size=1.0, strict=True)
    return None if found is None or found.shape != (rows,) else tf.cast(found, tf.float32)


def _classes_of(
    loss: keras.losses.Loss, y_true: tf.Tensor, y_pred: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """The labels, 0 where there is no such class, and 1.0 there; `(b, ...)` like the values."""
    if y_true.shape.rank == y_pred.shape.rank:
        y_true = tf.squeeze(y_true, -1)
    is_class = (y_true >= 0) & (y_true < y_pred.shape[-1])
    ignored = getattr(loss, "ignore_class", None)
    if ignored is not None:
        is_class |= y_true == ignored
    no_class = tf.where(is_class, 0.0, 1.0)
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
    """Reduces `(b, ...)` to `(b,)`: Keras' reduction of each example as a batch of one."""
    weights = None if sample_weight is None else tf.cast(sample_weight, tf.float32)
    mean = reduction in ("sum_over_batch_size", "mean")
    if mask is not None:
        counted = tf.cast(mask, tf.float32)
        if mean:
            share = tf.math.divide_no_nan(_total(tf.ones_like(counted)), _total(counted))
            counted = tf.math.multiply(*_aligned(counted, share))
        weights = counted if weights is None else tf.math.multiply(*_aligned(counted, weights))
    if weights is not None:
        values = tf.math.multiply_no_nan(*_aligned(values, weights))
    if mean:
        return tf.math.divide_no_nan(_total(values), _total(tf.ones_like(values)))
    if reduction == "mean_with_sample_weight":
        return tf.math.divide_no_nan(
            _total(values), _total(tf.ones_like(values) if weights is None else weights)
        )
    return _total(values)


def _total(values: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(values, list(range(1, values.shape.rank)))


def _aligned(values: tf.Tensor, weights: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Both with as many axes, as Keras and broadcasting align them in a batch of one.

    A last axis of length 1 is dropped; other missing axes are added behind that of the examples.
    """
    if weights.shape.rank == values.shape.rank + 1 and weights.shape[-1] == 1:
        weights = tf.squeeze(weights, -1)
    elif values.shape.rank == weights.shape.rank + 1 and values.shape[-1] == 1:
        weights = weights[..., None]
    while weights.shape.rank < values.shape.rank:
        weights = weights[:, None]
    while values.shape.rank < weights.shape.rank:
        values = values[:, None]
    return values, weights

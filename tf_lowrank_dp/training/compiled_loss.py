"""The forward pass and the loss of a compiled model, example by example."""

from __future__ import annotations

from collections.abc import Callable

import keras
import tensorflow as tf

from tf_lowrank_dp._keras.compiled import compiled_loss, takes_training
from tf_lowrank_dp._keras.scopes import masks_of
from tf_lowrank_dp._types import Nested
from tf_lowrank_dp.errors import UnsupportedModelError
from tf_lowrank_dp.per_example.losses import PerExampleCompiledLoss
from tf_lowrank_dp.training.added_losses import (
    added_losses,
    own_compute_loss,
    separated_activity_regularizers,
)


class CompiledLoss:
    """`forward` of a compiled Keras model, as `PrivateGradients` wants it.

    Args:
        model: a compiled Keras model.
        batch_size: the expected batch size, see `added_losses`.
        augment: applied to the inputs `(b, ...)` first, as a layer of the model would be; or None.

    Attributes:
        y_pred_spec: nested `tf.TensorSpec` of the outputs, when they have been seen; else None.
        with_penalties: whether weight regularisers count; known once it was called.
    """

    def __init__(self, model: keras.Model, batch_size: float, augment: Callable | None = None):
        self.augment = augment
        self.y_pred_spec: Nested = None
        self.with_penalties = True
        self._model = model
        self._batch_size = batch_size
        self._compiled = compiled_loss(model)
        self._loss = None if self._compiled is None else PerExampleCompiledLoss(model)
        self._own = type(model).compute_loss is not keras.Model.compute_loss

    @property
    def is_current(self) -> bool:
        """Whether the model is still compiled with the loss that it had."""
        return compiled_loss(self._model) is self._compiled

    def __call__(self, batch: dict) -> tuple[tf.Tensor, dict]:
        """Returns losses `(b,)` and `{"y_pred": ..., "masks": ..., "losses": ...}`.

        The masks are those of `y_pred`, the losses one `(b,)` for each output.

        Raises:
            UnsupportedModelError: there is no loss.
        """
        model = self._model
        if self.augment is not None:
            batch = {**batch, "x": _augmented(self.augment, batch["x"])}
        with separated_activity_regularizers(model) as activities:
            if takes_training(model):
                y_pred = model(batch["x"], training=True)
            else:
                y_pred = model(batch["x"])
        self.y_pred_spec = tf.nest.map_structure(tf.type_spec_from_value, y_pred)
        total: list[tf.Tensor] = []
        parts: list[tf.Tensor] = []
        if self._own:
            own = own_compute_loss(model, batch, y_pred, self._batch_size, activities.zeros)
            total = [own.values]
            self.with_penalties = own.with_penalties
        else:
            if self._loss is not None:
                losses, parts = self._loss(batch.get("y"), y_pred, batch.get("sample_weight"))
                total = [losses]
            total += added_losses(model, batch, self._batch_size, activities.zeros)
        if not total:
            raise UnsupportedModelError(
                f"Expected a loss in model.compile(loss=...), or in add_loss. Received: none of "
                f"'{model.name}'. Private training clips the gradient of each example's loss."
            )
        if not self._own or own.with_activities:
            total += activities.values
        losses = tf.add_n(total)
        return losses, {"y_pred": y_pred, "masks": masks_of(y_pred), "losses": parts}


def _augmented(augment: Callable, x: Nested) -> Nested:
    if isinstance(augment, keras.layers.Layer) and takes_training(augment):
        return augment(x, training=True)
    return augment(x)

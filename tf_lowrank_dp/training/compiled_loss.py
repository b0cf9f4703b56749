"""The forward pass and the loss of a compiled model, example by example."""

from __future__ import annotations

import keras
import tensorflow as tf

from tf_lowrank_dp._keras.compiled import compiled_loss, takes_training
from tf_lowrank_dp.per_example.losses import PerExampleCompiledLoss
from tf_lowrank_dp.training.added_losses import added_losses, separated_activity_regularizers


class CompiledLoss:
    """`forward` of a compiled Keras model, as `PrivateGradients` wants it.

    Args:
        model: a compiled Keras model.
        batch_size: the expected batch size, see `added_losses`.
    """

    def __init__(self, model: keras.Model, batch_size: float):
        self._model = model
        self._batch_size = batch_size
        self._loss = PerExampleCompiledLoss(model)
        self._compiled = compiled_loss(model)

    @property
    def is_current(self) -> bool:
        """Whether the model is still compiled with the loss that it had."""
        return compiled_loss(self._model) is self._compiled

    def __call__(self, batch: dict) -> tuple[tf.Tensor, dict]:
        """Returns losses `(b,)` and `{"y_pred": ..., "losses": [one (b,) for each output]}`."""
        model = self._model
        with separated_activity_regularizers(model) as activity_losses:
            if takes_training(model):
                y_pred = model(batch["x"], training=True)
            else:
                y_pred = model(batch["x"])
        losses, parts = self._loss(batch.get("y"), y_pred, batch.get("sample_weight"))
        losses += added_losses(model, self._batch_size)
        losses = tf.add_n([losses, *activity_losses])
        return losses, {"y_pred": y_pred, "losses": parts}

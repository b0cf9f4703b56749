"""The loss of each example by itself: what membership inference and black-box canaries look at."""

from __future__ import annotations

from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from tf_lowrank_dp import _validate
from tf_lowrank_dp._keras.compiled import compiled_loss
from tf_lowrank_dp._types import LossLike, Nested
from tf_lowrank_dp.errors import UnsupportedModelError
from tf_lowrank_dp.per_example.losses import PerExampleCompiledLoss, PerExampleLoss


def per_example_losses(
    model: keras.Model, x: Nested, y: Nested, *, loss: LossLike = None, batch_size: int = 256
) -> np.ndarray:
    """Losses of a Keras model in inference mode, private or not.

    Not private: whoever sees these numbers for training examples may learn from them; that is
    what an audit measures.

    Args:
        model: built.
        x: features as the model takes them: nested arrays `(n, ...)`.
        y: targets as the loss takes them: nested arrays `(n, ...)`.
        loss: a Keras loss, the name of one, or a function `(y_true, y_pred)` that returns at least
            one value per example; None for the loss that the model was compiled with.
        batch_size: number of examples per forward pass.

    Returns:
        float64 `(n,)`; an example with several positions has their mean (their sum, for a loss with
        `reduction="sum"`).

    Raises:
        UnsupportedModelError: there is no loss, or one without a value per example.

    Example:

    >>> import keras, numpy as np
    >>> dense = keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")
    >>> model = keras.Sequential([keras.Input((2,)), dense])
    >>> losses = per_example_losses(model, np.eye(2), np.array([[1.0], [3.0]]), loss="mse")
    >>> [float(value) for value in losses]
    [0.0, 4.0]
    """
    losses = loss_function(model, loss)
    batches = batches_of(x, y, batch_size)
    return np.concatenate([losses(*batch).numpy() for batch in batches]).astype(np.float64)


def loss_function(model: keras.Model, loss: LossLike) -> Callable[..., tf.Tensor]:
    """A function of features and targets `(b, ...)` that returns losses, float32 `(b,)`.

    Args:
        model, loss: see `per_example_losses`.
    """
    if loss is not None:
        given = PerExampleLoss(loss)
        return lambda features, targets: given(targets, model(features, training=False))
    if compiled_loss(model) is None:
        raise UnsupportedModelError(
            f"Expected a loss. Received: '{model.name}', which is not compiled with one. Pass "
            "loss=..., or compile it."
        )
    compiled = PerExampleCompiledLoss(model)
    return lambda features, targets: compiled(targets, model(features, training=False))[0]


def batches_of(x: Nested, y: Nested, batch_size: int) -> tf.data.Dataset:
    """Batches of features and targets in order, the last one smaller."""
    _validate.integer_at_least(1, batch_size=batch_size)
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(batch_size)

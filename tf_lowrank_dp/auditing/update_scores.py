"""How far an update of the weights goes down the loss of each canary: a white-box score."""

from __future__ import annotations

from collections.abc import Sequence

import keras
import numpy as np
import tensorflow as tf

from tf_lowrank_dp._types import LossLike, Nested
from tf_lowrank_dp.auditing.losses import batches_of, loss_function


def update_scores(
    model: keras.Model,
    update: Sequence,
    x: Nested,
    y: Nested,
    *,
    loss: LossLike = None,
    batch_size: int = 256,
) -> np.ndarray:
    """The inner product of an update with minus the gradient of each example's loss.

    A training step moves the weights along minus the gradients of the examples that were in it, so
    included canaries have high scores.  Gradients are those at the present weights, in inference
    mode; no per-example gradient is formed, forward-mode differentiation gives the products of all
    examples at once.

    Args:
        model: built.
        update: one array for each trainable variable, such as its last value less its first, or
            less the one before.
        x: see `per_example_losses`.
        y: see `per_example_losses`.
        loss: see `per_example_losses`.
        batch_size: see `per_example_losses`.

    Returns:
        float64 `(n,)`.

    Raises:
        ValueError: `update` is not of the shapes of the trainable variables.
        UnsupportedModelError: see `per_example_losses`.

    Example:

    >>> import keras, numpy as np
    >>> dense = keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")
    >>> model = keras.Sequential([keras.Input((2,)), dense])
    >>> update = [np.array([[0.5], [0.25]])]
    >>> scores = update_scores(model, update, np.eye(2), np.array([[3.0], [3.0]]), loss="mse")
    >>> [float(score) for score in scores]  # the gradients are -4 in the first and second weight
    [2.0, 1.0]
    """
    variables = [variable.value for variable in model.trainable_variables]
    shapes = [tuple(variable.shape) for variable in variables]
    if [np.shape(array) for array in update] != shapes:
        raise ValueError(
            "Expected one array for each trainable variable, of its shape. Received: shapes "
            f"{[np.shape(array) for array in update]}, for variables of shapes {shapes}. Pass "
            "[after - before for ...] over model.trainable_variables."
        )
    tangents = [
        tf.cast(array, variable.dtype) for array, variable in zip(update, variables, strict=True)
    ]
    losses_of = loss_function(model, loss)

    def scores(features: Nested, targets: Nested) -> tf.Tensor:
        with tf.autodiff.ForwardAccumulator(variables, tangents) as accumulator:
            losses = losses_of(features, targets)
        return -accumulator.jvp(losses, tf.UnconnectedGradients.ZERO)

    batches = batches_of(x, y, batch_size)
    return np.concatenate([scores(*batch).numpy() for batch in batches]).astype(np.float64)

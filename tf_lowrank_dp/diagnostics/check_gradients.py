"""A check that users can run: the fast path against one example at a time."""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf

from tf_lowrank_dp.mechanism.clipping import unguarded_norms
from tf_lowrank_dp.per_example.backward import METHODS
from tf_lowrank_dp.training.compiled_loss import CompiledLoss
from tf_lowrank_dp.training.train_step import private_optimizer


def check_gradients(
    model: keras.Model, x, y=None, *, sample_weight=None, tolerance: float = 1e-4
) -> float:
    """Compares the optimizer's `gradient_method` with gradients of batches of one.

    For models with random layers the comparison is made with their `training=True` behaviour only
    if it is the same for any batch size; set dropout rates to 0 to check the rest of the model.

    Args:
        model: private and compiled.
        x, y, sample_weight: a few examples, as for `fit`; nothing is released or recorded.
        tolerance: largest relative difference of per-example norms and of sums.

    Returns:
        The largest relative difference found.

    Raises:
        AssertionError: a difference above `tolerance`; names the variable.
    """
    batch = {"x": x, "y": y, "sample_weight": sample_weight}
    batch = {
        key: tf.nest.map_structure(tf.convert_to_tensor, value)
        for key, value in batch.items()
        if value is not None
    }
    method = private_optimizer(model).gradient_method
    size = tf.nest.flatten(batch)[0].shape[0]
    forward = CompiledLoss(model, float(size))
    fast = METHODS[method](model, forward, batch).gradients
    slow = METHODS["loop"](model, forward, batch).gradients
    weights = tf.linspace(0.5, 1.5, size)
    pairs = [
        ("per-example norms", unguarded_norms(fast), unguarded_norms(slow)),
        *(
            (variable.path, a.weighted_sum(weights), b.weighted_sum(weights))
            for variable, a, b in zip(model.trainable_variables, fast, slow, strict=True)
        ),
    ]
    worst = 0.0
    for name, a, b in pairs:
        difference = _relative(a, b)
        if not difference <= tolerance:
            raise AssertionError(
                f"Expected '{name}' from gradient_method='{method}' to equal the gradients of one "
                f"example at a time within {tolerance}. Received: a relative difference of "
                f"{difference:.3g}. Please report this model, and use gradient_method='loop' "
                "or 'vectorized' meanwhile."
            )
        worst = max(worst, difference)
    return worst


def _relative(a, b) -> float:
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    return float(np.linalg.norm(a - b) / max(np.linalg.norm(b), 1e-12))

"""A check that users can run: the fast path against one example at a time."""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf

from tf_lowrank_dp._types import Nested
from tf_lowrank_dp.diagnostics.batch_gradients import whole_batch
from tf_lowrank_dp.gradient_methods.methods import METHODS
from tf_lowrank_dp.mechanism.clipping import unguarded_norms
from tf_lowrank_dp.training.compiled_loss import CompiledLoss
from tf_lowrank_dp.training.train_step import private_optimizer

_LEAST_SHARE = 1e-3  # of the whole gradient: smaller parts are compared with this


def check_gradients(
    model: keras.Model,
    x: Nested,
    y: Nested = None,
    *,
    sample_weight: Nested = None,
    tolerance: float = 1e-4,
) -> float:
    """Compares the optimizer's `gradient_method` with gradients of batches of one.

    For models with random layers the comparison is made with their `training=True` behaviour only
    if it is the same for any batch size; set dropout rates to 0 to check the rest of the model.

    Args:
        model: private and compiled.
        x, y, sample_weight: a few examples, as for `fit`; nothing is released or recorded.
        tolerance: largest difference of per-example norms, and of each variable's sum, relative
            to its norm or a thousandth of the whole gradient's, whichever is larger.

    Returns:
        The largest relative difference found.

    Raises:
        AssertionError: a difference above `tolerance`; names the variable.
    """
    batch = whole_batch(x, y, sample_weight)
    method = private_optimizer(model).gradient_method
    size = tf.nest.flatten(batch)[0].shape[0]
    forward = CompiledLoss(model, float(size))
    fast = METHODS[method](model, forward, batch).gradients
    slow = METHODS["loop"](model, forward, batch).gradients
    weights = tf.linspace(0.5, 1.5, size)
    fast_norms, slow_norms = unguarded_norms(fast), unguarded_norms(slow)
    fast_sums, slow_sums = ([g.weighted_sum(weights) for g in found] for found in (fast, slow))
    # A variable whose true gradient is 0 holds nothing but rounding: it is compared with the rest.
    least = _LEAST_SHARE * float(tf.linalg.global_norm(slow_sums))
    names = [variable.path for variable in model.trainable_variables]
    pairs = [
        ("per-example norms", fast_norms, slow_norms, 0.0),
        *zip(names, fast_sums, slow_sums, [least] * len(names), strict=True),
    ]
    worst = 0.0
    for name, a, b, floor in pairs:
        difference = _relative(a, b, floor)
        if not difference <= tolerance:
            raise AssertionError(
                f"Expected '{name}' from gradient_method='{method}' to equal the gradients of one "
                f"example at a time within {tolerance}. Received: a relative difference of "
                f"{difference:.3g}. Please report this model, and use gradient_method='loop' "
                "or 'vectorized' meanwhile."
            )
        worst = max(worst, difference)
    return worst


def _relative(a: tf.Tensor, b: tf.Tensor, floor: float) -> float:
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    return float(np.linalg.norm(a - b)) / max(float(np.linalg.norm(b)), floor, 1e-12)

"""A check that users can run: the fast path against one example at a time."""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf

from tf_lowrank_dp._keras.layers import layers_of
from tf_lowrank_dp._tensorflow import pointwise_filters_without_strides
from tf_lowrank_dp._types import Nested
from tf_lowrank_dp.diagnostics.batch_gradients import whole_batch
from tf_lowrank_dp.gradient_methods.methods import METHODS
from tf_lowrank_dp.mechanism.clipping import unguarded_norms
from tf_lowrank_dp.tracing.random_ops import ConstantSource, random_numbers_from
from tf_lowrank_dp.training.chosen_method import choose
from tf_lowrank_dp.training.compiled_loss import CompiledLoss
from tf_lowrank_dp.training.given_forward import spec_of
from tf_lowrank_dp.training.symbolic_call import build_model
from tf_lowrank_dp.training.train_step import private_optimizer

# Tolerance, and the share of the whole gradient with which a smaller part is compared.
_FLOAT32, _LESS_PRECISE = (1e-4, 1e-3), (0.2, 0.1)


def check_gradients(
    model: keras.Model,
    x: Nested,
    y: Nested = None,
    *,
    sample_weight: Nested = None,
    tolerance: float | None = None,
) -> float:
    """Compares the gradients of `fit` with those of batches of one.

    With `gradient_method="auto"` they are taken as `fit` would: one at a time where it is not
    proven that examples are kept apart.  Both get the same random numbers, one for all elements of
    a draw, so that they do not depend on the number of rows: dropout keeps all it gets.

    Args:
        model: private and compiled.
        x: a few examples, as for `fit`; nothing is released or recorded.
        y: their targets.
        sample_weight: their weights.
        tolerance: largest difference of per-example norms, and of each variable's sum, relative
            to its norm or a thousandth of the whole gradient's, whichever is larger.  None for 1e-4
            where all layers compute in float32; else for 0.2, and a tenth of the whole gradient.

    Returns:
        The largest relative difference found.

    Raises:
        AssertionError: a difference above `tolerance`; names the variable.
        UnsupportedModelError: `fit` would refuse the model.
    """
    batch = whole_batch(x, y, sample_weight)
    build_model(model, tf.nest.map_structure(tf.TensorSpec.from_tensor, batch["x"]))
    method = private_optimizer(model).gradient_method
    size = tf.nest.flatten(batch)[0].shape[0]
    forward = CompiledLoss(model, float(size))
    if method == "auto":
        method = choose(model, forward, tf.nest.map_structure(spec_of, batch), method, size).method
    factors = tf.linspace(0.5, 1.5, size)
    default, share = _FLOAT32 if _in_float32(model) else _LESS_PRECISE
    tolerance = default if tolerance is None else tolerance

    @tf.function(autograph=False)
    def by_method(batch: Nested) -> tuple[tf.Tensor, list[tf.Tensor]]:
        with random_numbers_from(_OneNumber()):
            gradients = METHODS[method](model, forward, batch).gradients
            return unguarded_norms(gradients), [g.weighted_sum(factors) for g in gradients]

    @tf.function(autograph=False)
    def of_one(example: Nested) -> list[tf.Tensor]:
        values = [tf.convert_to_tensor(variable) for variable in model.trainable_variables]
        mapping = list(zip(model.trainable_variables, values, strict=True))
        with random_numbers_from(_OneNumber()), tf.GradientTape() as tape:
            tape.watch(values)
            with keras.StatelessScope(mapping, collect_losses=True):
                losses, _ = forward(example)
        with pointwise_filters_without_strides():
            gradients = tape.gradient(losses, values, unconnected_gradients="zero")
        return [tf.cast(tf.convert_to_tensor(g), tf.float32) for g in gradients]

    fast_norms, fast_sums = by_method(batch)
    slow_norms, slow_sums = [], [tf.zeros(v.shape) for v in model.trainable_variables]
    for row in range(size):
        own = of_one(tf.nest.map_structure(lambda leaf, row=row: leaf[row : row + 1], batch))
        slow_norms.append(tf.linalg.global_norm(own))
        slow_sums = [s + factors[row] * g for s, g in zip(slow_sums, own, strict=True)]
    # A variable whose true gradient is 0 holds nothing but rounding: it is compared with the rest.
    least = share * float(tf.linalg.global_norm(slow_sums))
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


class _OneNumber(ConstantSource):
    """One number for all draws of a kind, in whatever order and however often they are traced."""

    def key_and_counter(self) -> tuple[tf.Tensor, tf.Tensor]:
        self._next = 0
        return super().key_and_counter()


def _in_float32(model: keras.Model) -> bool:
    layers = layers_of(model)
    return all(getattr(layer, "compute_dtype", None) in (None, "float32") for layer in layers)


def _relative(a: tf.Tensor, b: tf.Tensor, floor: float) -> float:
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    return float(np.linalg.norm(a - b)) / max(float(np.linalg.norm(b)), floor, 1e-12)

"""Is the loss of an example the same beside other examples, but for rounding?"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from tf_lowrank_dp._types import Nested
from tf_lowrank_dp.errors import UnsupportedModelError

_TOLERANCE = 1e-4
_SHAKES, _SHAKE = 4, 1e-6  # some roundings of float32


def check_equal(a: tf.Tensor, b: tf.Tensor, what: str, rounding: Callable[[], float]) -> bool:
    """Refuses losses that differ by more than rounding; returns whether they were finite.

    Args:
        a: loss of an example, float `()`.
        b: the same beside others.
        what: that it seems to depend on.
        rounding: see `rounding`; called where they differ.

    Raises:
        UnsupportedModelError: they differ.
    """
    a, b = float(a), float(b)
    if not (np.isfinite(a) and np.isfinite(b)):
        return False  # Random inputs can be outside a model's domain; there is nothing to compare.
    near = abs(a - b) <= _TOLERANCE * max(1e-3, abs(a), abs(b))
    if not near and not abs(a - b) <= _SHAKES * rounding():
        raise UnsupportedModelError(
            "Expected layers and losses that treat each example by itself. Received: on random "
            f"data, an example's loss depends on {what} ({a:.6g} against {b:.6g}). Replace the "
            "layer or loss that mixes examples (batch statistics, contrastive or ranking losses, "
            "means over the batch): no clipping could bound one example's influence."
        )
    return True


def rounding(losses: Callable, batch: Nested, values: Sequence[tf.Tensor], row: int) -> float:
    """How far rounding may move the loss of a row, where numbers cancel on the way to it.

    As far as it moves when each weight is up to a millionth larger, by chance; without a limit
    where that decides whether it is a number.  Inputs stay: they may be codes of what is missing.

    Args:
        losses: of a batch and values of the weights.
        batch: nested tensors `(b, ...)`.
        values: of the weights.
        row: of the batch.
    """
    generator = np.random.default_rng(0)

    def shaken(tensor: tf.Tensor) -> tf.Tensor:
        factors = 1.0 + _SHAKE * generator.random(tensor.shape)
        return tensor * tf.cast(factors, tensor.dtype)

    loss = float(losses(batch, values)[row])
    moved = [float(losses(batch, [*map(shaken, values)])[row]) - loss for _ in range(_SHAKES)]
    return max(map(abs, moved)) if np.all(np.isfinite(moved)) else np.inf

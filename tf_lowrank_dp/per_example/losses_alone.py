"""Losses that have one value for a batch: their value for each example alone."""

from __future__ import annotations

import warnings

import keras
import numpy as np
import tensorflow as tf

from tf_lowrank_dp._keras.scopes import attach_mask
from tf_lowrank_dp._types import Nested
from tf_lowrank_dp.errors import UnsupportedModelError

_ROWS, _UNKNOWN_SIZE = 12, 8


def one_by_one(
    loss: keras.losses.Loss,
    y_true: Nested,
    y_pred: Nested,
    mask: tf.Tensor | None,
    sample_weight: Nested,
) -> tf.Tensor:
    """A loss of batches of one example each, float32 `(b,)`.

    In a loop: vectorised, functions that select positions fail, and abort the process under XLA.

    Args:
        loss: called with `(y_true, y_pred, sample_weight)`.
        y_true, y_pred, sample_weight: nested tensors `(b, ...)`, or None.
        mask: that of `y_pred`, `(b, ...)`, or None.
    """
    parts = {"y_true": y_true, "y_pred": y_pred, "mask": mask, "sample_weight": sample_weight}
    given = {name: part for name, part in parts.items() if part is not None}

    def alone(example: Nested) -> tf.Tensor:
        own = dict.fromkeys(parts) | tf.nest.map_structure(lambda t: t[None], example)
        if own["mask"] is not None:
            attach_mask(own["y_pred"], own["mask"])
        value = loss(own["y_true"], own["y_pred"], sample_weight=own["sample_weight"])
        return tf.reduce_sum(tf.cast(value, tf.float32))

    if tf.nest.flatten(y_pred)[0].shape[0] == 1:
        return alone(tf.nest.map_structure(lambda t: t[0], given))[None]
    return tf.map_fn(alone, given, fn_output_signature=tf.TensorSpec([], tf.float32))


def try_alone(loss: keras.losses.Loss, y_true: Nested, y_pred: Nested) -> None:
    """Says so where a loss means something else for an example alone; tried on random numbers.

    Args:
        loss: called with `(y_true, y_pred)`.
        y_true, y_pred: nested tensors, of which shapes and dtypes are used.

    Raises:
        UnsupportedModelError: the loss of an example alone does not depend on its output.
    """
    generator = np.random.default_rng(0)

    def random(tensors: Nested, outputs: bool) -> Nested:
        return tf.nest.map_structure(lambda t: _random(t, generator, outputs), tensors)

    with tf.init_scope():
        targets, found, others = random(y_true, False), random(y_pred, True), random(y_pred, True)
        try:
            together = np.sum(loss(targets, found))
            alone = one_by_one(loss, targets, found, None, None).numpy()
            changed = one_by_one(loss, targets, others, None, None).numpy()
        except (ValueError, TypeError, RuntimeError, tf.errors.OpError):
            return  # Random numbers may be outside of its domain; the model's own are tried later.
    if np.array_equal(alone, changed):
        raise UnsupportedModelError(
            "Expected a loss of one example. Received: "
            f"'{loss.name}', one value for a batch that for an example alone does not depend on "
            "the model's output: it compares examples (a contrastive or ranking loss). No "
            "clipping could bound one example's influence on it. Use a loss of single examples; "
            "pairs or triplets can be one example, with an axis of their own."
        )
    if not any(np.isclose(together, x, 1e-3, equal_nan=True) for x in (alone.mean(), alone.sum())):
        warnings.warn(
            f"Expected a loss that is the mean of its values for single examples. Received: "
            f"'{loss.name}', whose one value for a batch is not (a ratio of sums over the batch, "
            "say). Private training takes its value for each example alone.",
            stacklevel=2,
        )


def _random(tensor: tf.Tensor, generator: np.random.Generator, outputs: bool) -> tf.Tensor:
    shape = [_ROWS, *(_UNKNOWN_SIZE if size is None else size for size in tensor.shape[1:])]
    if outputs:
        return tf.constant(generator.uniform(0.1, 0.9, shape), tensor.dtype)
    values = generator.integers(0, 2, shape)
    values[1] = 1 - values[0]  # so that no entry is the same in all rows
    return tf.cast(tf.constant(values), tensor.dtype)

"""What a custom loop hands to a trainer: batches, and functions from a batch to losses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tf_lowrank_dp._types import Nested
from tf_lowrank_dp.sampling.batch import PRESENCE


def check_batch(batch: Any) -> None:
    """Refuses what is no logical batch.

    Raises:
        ValueError: it is no dict, or has no presence, or a leaf has no rows.
    """
    if not isinstance(batch, Mapping) or PRESENCE not in batch:
        received = sorted(batch) if isinstance(batch, Mapping) else f"a {type(batch).__name__}"
        raise ValueError(
            "Expected a logical batch, a dict with 'presence', which tells examples from padding. "
            f"Received: {received}. Take batches from the sampler; to those of your data, whose "
            "sampling you state with tfdp.accounting.Sampling, add 'presence': tf.ones([rows])."
        )
    presence = tf.convert_to_tensor(batch[PRESENCE])
    if presence.shape.rank not in (1, None) or not presence.dtype.is_floating:
        raise ValueError(
            "Expected 'presence' of shape (b,), 1.0 for examples and 0.0 for padding. Received: "
            f"shape {tuple(presence.shape)}, dtype {presence.dtype.name}. Take it as the sampler "
            "gives it, or pass tf.cast(is_example, 'float32')."
        )
    for leaf in tf.nest.flatten(dict(batch)):
        rank = leaf.shape.rank if tf.is_tensor(leaf) else np.ndim(leaf)
        if rank == 0:
            raise ValueError(
                "Expected arrays in a batch whose first axis is the example. Received: a number, "
                f"of type {type(leaf).__name__}. Make arrays of lists; let forward take what all "
                "examples share from elsewhere."
            )


def with_outputs(forward: Callable) -> Callable:
    """The function, with a sentence where it does not return what it should."""

    def checked(batch: Nested) -> tuple[tf.Tensor, Nested]:
        found = forward(batch)
        if not (isinstance(found, tuple) and len(found) == 2) or found[1] is None:
            raise TypeError(
                "Expected forward to return losses (b,) and a structure of other tensors. "
                f"Received: {type(found).__name__} {found}. Return `losses, ()` if there is "
                "nothing else."
            )
        return found

    return checked


def spec_of(tensor: tf.Tensor) -> tf.TensorSpec:
    """Of tensors like this one with any number of rows."""
    return tf.TensorSpec([None, *tensor.shape[1:]], tensor.dtype)

"""What a custom loop hands to a trainer: batches, and functions from a batch to losses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from tf_lowrank_dp._types import Nested
from tf_lowrank_dp.sampling.batch import PRESENCE


def check_batch(batch: Any) -> None:
    """Refuses what is no logical batch.

    Raises:
        ValueError: it is no dict, or has no presence.
    """
    if not isinstance(batch, Mapping) or PRESENCE not in batch:
        received = sorted(batch) if isinstance(batch, Mapping) else f"a {type(batch).__name__}"
        raise ValueError(
            "Expected a logical batch, a dict with 'presence', which tells examples from padding. "
            f"Received: {received}. Take batches from the sampler; to those of your data, whose "
            "sampling you state with tfdp.accounting.Sampling, add 'presence': tf.ones([rows])."
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

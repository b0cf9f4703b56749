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


def is_same_code(function: Callable, other: Callable) -> bool:
    """Whether two functions are one, or the same code made again over the same objects.

    A function that is written inside of a training loop is made at each step.
    """
    return function is other or _parts(function) == _parts(other) != []


def _parts(function: Callable) -> list[int]:
    """Identities of all that makes a Python function; empty for other callables."""
    code = getattr(function, "__code__", None)
    if code is None:
        return []
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    named = (function.__kwdefaults__ or {}).values()
    owner = getattr(function, "__self__", None)
    return [id(part) for part in [code, owner, *cells, *(function.__defaults__ or ()), *named]]

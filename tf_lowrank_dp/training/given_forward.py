"""What a custom loop hands to a trainer: batches, and functions from a batch to losses."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tf_lowrank_dp._types import Nested
from tf_lowrank_dp.errors import UnsupportedModelError
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


class Code:
    """What a Python function is made of when it is looked at: its code and what that uses.

    A function that is written inside of a training loop is made at each step, over the same
    objects; one that is written before it may use numbers that change.  Numbers and texts are
    compared by value, other tuples, lists and dicts and what is called by what they hold, all else
    by identity: what changes inside of an object is not seen.
    """

    def __init__(self, function: Callable):
        self._parts = _parts(function)
        if any(tf.is_symbolic_tensor(part) for part in self._parts if tf.is_tensor(part)):
            raise _of_the_loop("a tensor of the graph around it")

    def is_that_of(self, function: Callable) -> bool:
        """Whether a function is made of the same, now.

        Raises:
            UnsupportedModelError: it is the same code with another tensor or array than before,
                which a loop may have computed from the batch.
        """
        parts = _parts(function)
        if parts[0] is not self._parts[0] or len(parts) != len(self._parts):
            return False
        others = _others(parts, self._parts)
        if any(isinstance(other, tf.Tensor | np.ndarray) for other in others):
            raise _of_the_loop("another tensor or array from outside than the step before")
        return not others


def _of_the_loop(what: str) -> UnsupportedModelError:
    return UnsupportedModelError(
        "Expected a forward function that computes of its batch whatever depends on examples. "
        f"Received: one that uses {what}. If that was computed from the batch, one example would "
        "act on the gradients of all, and no clip bounds that: compute it of the function's "
        "argument. A public number that changes is a Python number, or a tf.Variable that is "
        "assigned."
    )


_BY_VALUE = (bool, int, float, complex, str, bytes)
_THEMSELVES = (tf.Module, keras.Layer, type, FunctionType, MethodType)


def _others(new: Any, old: Any) -> list:
    """What of `new` is not what it was, in containers and in objects of the user's own as well."""
    if new is old or (isinstance(new, _BY_VALUE) and type(new) is type(old) and new == old):
        return []
    if type(new) is not type(old):
        return [new]
    if isinstance(new, dict):
        new, old = [[*each.keys(), *each.values()] for each in (new, old)]
    elif hasattr(new, "__dict__") and callable(new) and not isinstance(new, _THEMSELVES):
        new, old = [[*vars(each).values()] for each in (new, old)]
    if isinstance(new, list | tuple) and len(new) == len(old):
        return [other for pair in zip(new, old, strict=True) for other in _others(*pair)]
    return [new]


def _parts(function: Callable) -> list:
    """All that makes a Python function, numbers of its module included; itself if it is none."""
    if isinstance(function, functools.partial):
        return [*_parts(function.func), function.args, function.keywords]
    if not hasattr(function, "__code__") and hasattr(type(function).__call__, "__code__"):
        function = type(function).__call__.__get__(function)  # an object that is called
    code = getattr(function, "__code__", None)
    if code is None:
        return [function]
    cells = [_contents(cell) for cell in function.__closure__ or ()]
    named = (function.__kwdefaults__ or {}).values()
    of_module = [function.__globals__.get(name) for name in _names(code)]
    numbers = [each if isinstance(each, _BY_VALUE) else None for each in of_module]
    owner = getattr(function, "__self__", None)
    return [code, owner, *cells, *(function.__defaults__ or ()), *named, *numbers]


def _contents(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not yet assigned
        return cell


def _names(code: CodeType) -> list[str]:
    """The names that a function's code looks up in its module, those of functions in it as well."""
    inner = [
        name for const in code.co_consts if isinstance(const, CodeType) for name in _names(const)
    ]
    return [*code.co_names, *inner]

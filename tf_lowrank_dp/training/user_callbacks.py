"""Callbacks that are not Keras' own: what they change in a private call is looked at."""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterator, Sequence

import keras
import numpy as np
import tensorflow as tf

from tf_lowrank_dp.spending import SPENDING

_STOCK = ("keras", "keras_hub", "tf_lowrank_dp")
_HOOKS = [
    f"on_{when}{end}"
    for when in (
        *("batch_", "train_batch_", "test_batch_", "predict_batch_"),
        *("epoch_", "train_", "test_", "predict_"),
    )
    for end in ("begin", "end")
]


def as_list(callbacks: object) -> list[keras.callbacks.Callback]:
    """Callbacks one by one, in the order in which Keras calls them.

    Args:
        callbacks: what `fit` takes: one, nested lists, a `CallbackList` or None.
    """
    found: list[keras.callbacks.Callback] = []
    for each in keras.tree.flatten(callbacks):
        if isinstance(each, keras.callbacks.CallbackList):
            found += as_list(each.callbacks)
        elif each is not None:
            found.append(each)
    return found


@contextlib.contextmanager
def changes_by_callbacks_are_told(
    model: keras.Model, callbacks: Sequence[keras.callbacks.Callback]
) -> Iterator[None]:
    """Inside, has a look at the weights around whatever is not Keras' own in these callbacks.

    Guarantee: what code of a user's callback does to weights on which something was spent, such as
    ordinary training of a model that shares them, is not taken for post-processing: their prior
    spend is unknown then, unless the values are some that private steps have left, or private
    steps have made them.

    Args:
        model: whose weights.
        callbacks: their hooks are other ones inside, and as they were afterwards.
    """
    with contextlib.ExitStack() as stack:
        for callback in callbacks:
            for name in _HOOKS:
                hook = getattr(callback, name, None)
                module = getattr(hook, "__module__", None) or ""
                if callable(hook) and module.split(".")[0] not in _STOCK:
                    stack.enter_context(_in_place(callback, name, _looked_at(model, hook)))
        yield


@contextlib.contextmanager
def _in_place(callback: keras.callbacks.Callback, name: str, hook: Callable) -> Iterator[None]:
    """Inside, the callback has this hook."""
    own = vars(callback)
    had, before = name in own, own.get(name)
    setattr(callback, name, hook)
    try:
        yield
    finally:
        if had:
            setattr(callback, name, before)
        else:
            delattr(callback, name)


def _looked_at(model: keras.Model, hook: Callable) -> Callable:
    """The hook, after which what it has changed is told."""

    @functools.wraps(hook)
    def told(*args: object, **kwargs: object) -> object:
        weights = list(model.weights)
        before = [tf.convert_to_tensor(weight) for weight in weights]
        steps = SPENDING.steps_on(weights)
        try:
            return hook(*args, **kwargs)
        finally:
            unchanged = map(_equal, weights, before)
            pairs = zip(weights, steps, SPENDING.steps_on(weights), unchanged, strict=True)
            changed = [w for w, was, now, same in pairs if was == now and not same]
            if SPENDING.changed_by_others(changed):
                _warn(hook)

    return told


def _equal(weight: keras.Variable, before: tf.Tensor) -> bool:
    """Whether a variable has the bits that it had."""
    now = tf.convert_to_tensor(weight)
    return now.shape == before.shape and np.array_equal(_bits(now), _bits(before))


def _bits(value: tf.Tensor) -> np.ndarray:
    return np.ascontiguousarray(value.numpy()).reshape(-1).view(np.uint8)


def _warn(hook: Callable) -> None:
    warnings.warn(
        "Expected weights that private steps have left. Received: others, which the callback "
        f"{getattr(hook, '__qualname__', hook)} has assigned in a private call: more may have been "
        'spent on them, and statements say "prior spend unknown" from now on. If they are a '
        "function of the weights alone, such as an average, assign them inside of "
        "tfdp.post_processing(model), or use Keras' SwapEMAWeights.",
        stacklevel=4,
    )

"""Callbacks that choose by losses and metrics of private data."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

import keras
import tensorflow as tf

from tf_lowrank_dp._types import Nested
from tf_lowrank_dp.sampling import Records

_PUBLIC = ("epsilon", "learning_rate", "lr")
_WATCHING = (
    keras.callbacks.EarlyStopping,
    keras.callbacks.ModelCheckpoint,
    keras.callbacks.ReduceLROnPlateau,
)


def warn_about_choices(callbacks: Iterable[keras.callbacks.Callback], is_private: bool) -> None:
    """Warns of Keras' callbacks by which private examples decide steps, rates or what is kept.

    A single record can decide alone: one of NaN ends a `fit` with `TerminateOnNaN`, and the number
    of steps is in the ledger and the statement.

    Args:
        callbacks: of the user.
        is_private: whether validation data are private examples, see `validates_private`.
    """
    choices = [_choice(callback, is_private) for callback in callbacks]
    found = [choice for choice in dict.fromkeys(choices) if choice]
    if found:
        warnings.warn(
            f"Expected callbacks that choose by public data. Received: {', '.join(found)}, which "
            "is computed from private examples without noise. When training ends, at which rate it "
            "goes on and which weights are kept then tells something of them that epsilon does not "
            "include. Pass validation_data that may be public and watch 'val_loss', or fix the "
            "number of epochs; examples that are NaN contribute nothing, so that nothing has to "
            "end for them.",
            stacklevel=4,
        )


def validates_private(x: Nested, validation_data: Any, validation_split: float) -> bool:
    """Whether `fit` validates with examples that it trains on, or a part of them."""
    if validation_data is None:
        return bool(validation_split)
    trained, seen = ({id(leaf) for leaf in _leaves(data)} for data in (x, validation_data))
    return bool(trained & seen)


def _leaves(data: Nested) -> list:
    return tf.nest.flatten(data.source if isinstance(data, Records) else data)


def _choice(callback: keras.callbacks.Callback, is_private: bool) -> str:
    """What a callback chooses by, if it is private; nothing else."""
    if isinstance(callback, keras.callbacks.TerminateOnNaN):
        monitor = "loss"
    elif isinstance(callback, _WATCHING) and getattr(callback, "save_best_only", True):
        monitor = callback.monitor
    else:
        return ""
    is_public = monitor in _PUBLIC or (monitor.startswith("val_") and not is_private)
    return "" if is_public else f"{type(callback).__name__} of '{monitor}'"

"""Callbacks that choose by losses and metrics of private data."""

from __future__ import annotations

import warnings
from collections.abc import Iterable

import keras

_PUBLIC = ("epsilon", "learning_rate", "lr")
_WATCHING = (
    keras.callbacks.EarlyStopping,
    keras.callbacks.ModelCheckpoint,
    keras.callbacks.ReduceLROnPlateau,
)


def warn_about_choices(
    callbacks: Iterable[keras.callbacks.Callback], validation_split: float
) -> None:
    """Warns of Keras' callbacks by which private examples decide steps, rates or what is kept.

    A single record can decide alone: one of NaN ends a `fit` with `TerminateOnNaN`, and the number
    of steps is in the ledger and the statement.

    Args:
        callbacks: of the user.
        validation_split: the share of the private examples that validation data are, if any.
    """
    choices = [_choice(callback, bool(validation_split)) for callback in callbacks]
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


def _choice(callback: keras.callbacks.Callback, is_split: bool) -> str:
    """What a callback chooses by, if it is private; nothing else."""
    if isinstance(callback, keras.callbacks.TerminateOnNaN):
        monitor = "loss"
    elif isinstance(callback, _WATCHING) and getattr(callback, "save_best_only", True):
        monitor = callback.monitor
    else:
        return ""
    is_public = monitor in _PUBLIC or (monitor.startswith("val_") and not is_split)
    return "" if is_public else f"{type(callback).__name__} of '{monitor}'"

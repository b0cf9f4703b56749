"""The error of a function of the port whose private names are not there."""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import keras

P = ParamSpec("P")
R = TypeVar("R")


def uses_private_names(function: Callable[P, R]) -> Callable[P, R]:
    """Decorator: names the function and the version of Keras where a private name is missing.

    The function does nothing but look up private names and call what they hold, which may call
    code of the user's: errors of that are raised as they are.

    Raises:
        RuntimeError: a name is missing, or is something else than it was.
    """

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except (AttributeError, ImportError) as error:
            if _passed_other_code(error):
                raise
            raise RuntimeError(
                f"Expected the interior of Keras that {function.__module__}.{function.__name__} "
                f"was written for. Received: Keras {keras.__version__}, where {error}. Install "
                "Keras 3.15, or a version of tf_lowrank_dp that knows yours."
            ) from error

    return checked


def _passed_other_code(error: Exception) -> bool:
    """Whether it comes from code that is neither Keras', TensorFlow's nor this library's."""
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    modules = {frame.f_globals.get("__name__", "").partition(".")[0] for frame in frames}
    return not modules <= {"keras", "keras_hub", "tensorflow", __name__.partition(".")[0]}

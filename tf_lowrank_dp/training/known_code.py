"""Whether classes and functions are written in libraries that are known, patches included."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from types import (
    BuiltinFunctionType,
    CellType,
    ClassMethodDescriptorType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    WrapperDescriptorType,
)
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tf_lowrank_dp.training.function_code import packages_of

_BUILT_IN = (
    *(BuiltinFunctionType, WrapperDescriptorType, MethodDescriptorType),
    *(ClassMethodDescriptorType, GetSetDescriptorType, MemberDescriptorType),
)
_PLAIN = (bool, int, float, str, bytes, type(None), tf.Tensor, np.ndarray, np.generic, tf.DType)
_LIBRARIES = ("keras_hub", "keras_nlp", "keras", "tensorflow", "contextlib", "tf_lowrank_dp")


def is_library_class(kind: type) -> bool:
    """Whether all that a class and those above it hold is data, or written in the libraries."""
    return all(_is_of_libraries(thing) for each in kind.__mro__ for thing in vars(each).values())


def is_library_object(thing: Any, own: Container[int] = ()) -> bool:
    """Whether an object acts by code of the libraries alone, on its own variables alone.

    Functions and methods never count: what they are bound to is not looked at.

    Args:
        thing: a regulariser, constraint, schedule or optimizer, or what one of these holds.
        own: `id` of the variables that it may hold.
    """
    if isinstance(thing, _PLAIN):
        return True
    if isinstance(thing, dict | list | tuple | set):
        parts = thing.values() if isinstance(thing, dict) else thing
        return all(is_library_object(part, own) for part in parts)
    if isinstance(thing, tf.Variable | keras.Variable):
        return id(thing) in own
    if isinstance(thing, keras.Layer | FunctionType | MethodType):
        return False
    if not (packages_of(type(thing)) <= {*_LIBRARIES} and is_library_class(type(thing))):
        return False
    if not (callable(thing) or isinstance(thing, keras.optimizers.Optimizer)):
        return True  # what keeps track of variables, say
    return all(is_library_object(held, own) for held in vars(thing).values())


def is_written_in(packages: Sequence[str], function: Callable) -> bool:
    """Whether a function or method is written in these packages, and so is what it decorates."""
    function = getattr(function, "__func__", function)
    if not isinstance(function, FunctionType):
        return False
    cells = [cell for cell in function.__closure__ or () if cell != CellType()]  # not empty
    inside = [cell.cell_contents for cell in cells]
    return packages_of(function) <= {*packages} and all(map(_is_of_libraries, inside))


def _is_of_libraries(thing: Any) -> bool:
    for inside in ("__func__", "fget"):  # of methods of classes, static ones and properties
        thing = getattr(thing, inside, None) or thing
    if isinstance(thing, FunctionType):
        return is_written_in(_LIBRARIES, thing)
    if isinstance(thing, type):
        return packages_of(thing) <= {*_LIBRARIES, "builtins"}
    return isinstance(thing, _BUILT_IN) or not (callable(thing) or hasattr(thing, "__get__"))

"""Whether classes and functions are written in libraries that are known, patches included."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
import tensorflow as tf

from tf_lowrank_dp.training.function_code import packages_of

_BUILT_IN = (
    *(BuiltinFunctionType, WrapperDescriptorType, MethodDescriptorType),
    *(ClassMethodDescriptorType, GetSetDescriptorType, MemberDescriptorType),
)
_VARIABLES = (tf.Variable, keras.Variable)
_LIBRARIES = ("keras_hub", "keras_nlp", "keras", "tensorflow", "contextlib", "tf_lowrank_dp")


def is_library_class(kind: type) -> bool:
    """Whether all that a class and those above it hold is data, or written in the libraries."""
    return all(_is_of_libraries(thing) for each in kind.__mro__ for thing in vars(each).values())


def is_library_object(thing: Any) -> bool:
    """Whether code of the libraries alone acts where an object is used, on its own variables alone.

    Args:
        thing: a function, or an object, of which what it holds and calls counts.
    """
    if isinstance(thing, FunctionType | MethodType):
        return is_written_in(_LIBRARIES, thing)
    if not (packages_of(type(thing)) <= {*_LIBRARIES} and is_library_class(type(thing))):
        return False
    is_optimizer = isinstance(thing, keras.optimizers.Optimizer)
    own = {id(variable) for variable in thing.variables} if is_optimizer else set()
    for held in getattr(thing, "__dict__", {}).values():
        if isinstance(held, _VARIABLES):
            if id(held) not in own:
                return False
        elif callable(held) or isinstance(held, keras.optimizers.Optimizer):
            if not is_library_object(held):
                return False
    return True


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

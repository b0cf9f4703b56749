"""What a Python function of a custom loop is made of: its code, and all that this uses."""

from __future__ import annotations

import dis
import functools
import math
import warnings
from collections.abc import Callable, Iterator
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tf_lowrank_dp.errors import UnsupportedModelError

_NUMBERS = (bool, int, float, complex, str, bytes, type(None))
_ARRAYS = (tf.Tensor, np.ndarray, np.generic)
_THEMSELVES = (tf.Module, tf.Variable, keras.Layer, keras.Variable, type, ModuleType)
_VARIABLES = (tf.Module, tf.Variable, keras.Layer, keras.Variable)
_MADE_ANEW = (
    "Expected a forward function that uses the variables and layers of the step before. Received: "
    "one that uses others. If they hold what a loop has computed from its batches, one example "
    "acts on the gradients of all, and no clip bounds that: compute it of the function's argument. "
    "Make variables for public numbers once, before the loop, and assign them."
)
_LIBRARIES = ("keras", "keras_hub", "tensorflow", "numpy", "tf_lowrank_dp")
_COPIED = 2**16  # elements of an array that may have changed inside
_MOST = 2000  # things that are looked into
_SHORT = 300  # things of a container, where a short look will do


class Code:
    """What a Python function is made of when it is looked at: its code and what that uses.

    A function that is written inside of a training loop is made at each step, over the same
    objects; one that is written before it may use numbers that change.  Numbers and texts are
    compared by value; functions, containers and objects of the user's own by what of them the code
    uses, in cells, defaults, attributes and the module; tensors, arrays and all else by identity.
    """

    def __init__(self, function: Callable):
        self._parts = _Parts().of(function, ())
        if any(tf.is_symbolic_tensor(each) for each in _things(self._parts) if tf.is_tensor(each)):
            raise _of_the_loop("a tensor of the graph around it")

    @property
    def key(self) -> CodeType | int:
        """Tells functions of other code apart; a cell that is run again compiles equal code."""
        code = _code_of(self._parts)
        return code if isinstance(code, CodeType) else id(code)

    def is_that_of(self, other: Code) -> bool:
        """Whether a function of the same code is made of the same.

        Another variable or layer than before is warned of: it may be another teacher.

        Raises:
            UnsupportedModelError: it uses another tensor or array than before, which a loop may
                have computed from the batch.
        """
        others = list(_others(other._parts, self._parts))
        if any(isinstance(other, _ARRAYS) for other in others):
            raise _of_the_loop("another tensor or array from outside than the step before")
        if any(isinstance(other, _VARIABLES) for other in others):
            warnings.warn(_MADE_ANEW, stacklevel=2)
        return not others


def layers_used_by(function: Callable) -> list[keras.Layer]:
    """The layers and models that a function uses, as far as a short look tells.

    Containers of more than some hundred things are not looked into.
    """
    try:
        things = _things(_Parts(longest=_SHORT).of(function, ()))
        return [thing for thing in things if isinstance(thing, keras.Layer)]
    except Exception:  # of objects of the user's own, or nested too deeply: nothing is known
        return []


def _of_the_loop(what: str) -> UnsupportedModelError:
    return UnsupportedModelError(
        "Expected a forward function that computes of its batch whatever depends on examples. "
        f"Received: one that uses {what}. If that was computed from the batch, one example would "
        "act on the gradients of all, and no clip bounds that: compute it of the function's "
        "argument. A public number that changes is a Python number, or a tf.Variable that is made "
        "before the loop, and assigned."
    )


class _Itself(NamedTuple):
    """What is compared by identity; of an array also what it held."""

    thing: Any
    held: bytes | None = None


class _Parts:
    """Takes functions apart into lists, dicts, numbers and what is compared by identity."""

    def __init__(self, longest: float = math.inf) -> None:
        self._seen: set[int] = set()
        self._longest = longest  # containers that are looked into

    def of(self, thing: Any, names: tuple[str, ...]) -> Any:
        """The parts of a thing, of which the code around it uses attributes of these names."""
        if isinstance(thing, _NUMBERS):
            return thing
        if isinstance(thing, _ARRAYS):
            is_small = isinstance(thing, np.ndarray) and thing.size <= _COPIED
            return _Itself(thing, thing.tobytes() if is_small else None)
        if isinstance(thing, _THEMSELVES) or id(thing) in self._seen or len(self._seen) > _MOST:
            return _Itself(thing)
        self._seen.add(id(thing))
        if isinstance(thing, tf.types.experimental.PolymorphicFunction):  # calls fill the object
            return self.of(thing.python_function, names)
        if isinstance(thing, dict | list | tuple) and len(thing) > self._longest:
            return _Itself(thing)
        if isinstance(thing, functools.partial):
            return [self.of(part, names) for part in (thing.func, thing.args, thing.keywords)]
        if isinstance(thing, MethodType):
            used = _uses(thing.__func__.__code__) if _is_own(thing.__func__) else ()
            return [self.of(thing.__func__, names), self.of(thing.__self__, used)]
        if isinstance(thing, FunctionType):
            return self._of_function(thing) if _is_own(thing) else _Itself(thing)
        if isinstance(thing, dict):
            return {str(key): self.of(value, names) for key, value in thing.items()}
        if isinstance(thing, list | tuple):
            return [self.of(part, names) for part in thing]
        if hasattr(thing, "__dict__"):
            return self._of_object(thing, names)
        return _Itself(thing)

    def _of_function(self, function: FunctionType) -> list:
        code = function.__code__
        names = _uses(code)
        cells = [_contents(cell) for cell in function.__closure__ or ()]
        defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
        of_module = [function.__globals__.get(name) for name in _looked_up(code)]
        return [_Itself(code), *(self.of(part, names) for part in [*cells, *defaults, *of_module])]

    def _of_object(self, thing: Any, names: tuple[str, ...]) -> Any:
        """What is used of an object: if it is called, all that it holds."""
        held = vars(thing)
        called = type(thing).__call__ if callable(thing) else None
        if isinstance(called, FunctionType):
            names = (*held, *_uses(called.__code__))
        found: dict[str, Any] = {"": _Itself(type(thing))}
        waiting = list(names)
        for name in waiting:  # which grows by what methods use
            if name in found:
                continue
            if name in held:
                found[name] = self.of(held[name], names)
            elif isinstance(method := getattr(type(thing), name, None), FunctionType):
                found[name] = self.of(method, names)
                waiting += _uses(method.__code__) if _is_own(method) else ()
        if isinstance(called, FunctionType) and _is_own(called):
            found["()"] = self.of(called, names)
        return found if len(found) > 1 else _Itself(thing)


def _is_own(function: Callable) -> bool:
    """Whether it is code of the user's, or decorates such, and not of a library that is known."""
    return not packages_of(function) <= {*_LIBRARIES}


def packages_of(function: Callable) -> set[str]:
    """The packages that a function is said to be of, and that it is written in.

    They differ where one decorates the other: `functools.wraps` gives a function the name and
    module of another, and leaves its globals.
    """
    written = getattr(function, "__globals__", {}).get("__name__") or function.__module__
    return {(module or "").partition(".")[0] for module in (function.__module__, written)}


def _contents(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not yet assigned
        return cell


@functools.cache
def _uses(code: CodeType) -> tuple[str, ...]:
    """The names of attributes that code uses, with those of functions in it."""
    inner = [name for each in _inside(code) for name in _uses(each)]
    return tuple(dict.fromkeys([*code.co_names, *inner]))


@functools.cache
def _looked_up(code: CodeType) -> tuple[str, ...]:
    """The names that code looks up in its module, with those of functions in it."""
    own = [each.argval for each in dis.get_instructions(code) if each.opname in _LOOK_UP]
    inner = [name for each in _inside(code) for name in _looked_up(each)]
    return tuple(dict.fromkeys([*own, *inner]))


_LOOK_UP = ("LOAD_GLOBAL", "LOAD_NAME")


def _inside(code: CodeType) -> Iterator[CodeType]:
    return (const for const in code.co_consts if isinstance(const, CodeType))


def _code_of(parts: Any) -> Any:
    """The code, or what else it is, of the function that was taken apart."""
    while isinstance(parts, list | dict) and parts:
        parts = parts[0] if isinstance(parts, list) else next(iter(parts.values()))
    return parts.thing if isinstance(parts, _Itself) else parts


def _things(parts: Any) -> Iterator[Any]:
    """All that is compared by identity in what was taken apart, tensors and arrays among it."""
    if isinstance(parts, _Itself):
        yield parts.thing
    elif isinstance(parts, list | dict):
        for part in parts.values() if isinstance(parts, dict) else parts:
            yield from _things(part)


def _others(new: Any, old: Any) -> Iterator[Any]:
    """What of `new` is not what it was."""
    if isinstance(new, _Itself):
        same = isinstance(old, _Itself) and new.thing is old.thing and new.held == old.held
        if not same:
            yield new.thing
    elif type(new) is not type(old) or (isinstance(new, _NUMBERS) and new != old):
        yield from _things(new)
        yield None
    elif isinstance(new, dict):
        for name, part in new.items():
            yield from _others(part, old.get(name, _MISSING))
        if old.keys() - new.keys():
            yield None
    elif isinstance(new, list):
        for part, before in zip(new, old, strict=False):
            yield from _others(part, before)
        yield from _things(new[len(old) :])  # a list of notes may grow
        if len(new) < len(old):
            yield None


_MISSING = _Itself(object())

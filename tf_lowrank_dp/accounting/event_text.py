"""Events of dp_accounting, as our own and as JSON values."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import dp_accounting
import numpy as np
from dp_accounting import dp_event


def own_copy(event: dp_accounting.DpEvent) -> dp_accounting.DpEvent:
    """The same event, of Python's numbers and of tuples, which nobody can change.

    Iterators are read here, once.  Of a subclass it is the class of `dp_accounting` that it has,
    which is what accountants know.

    Raises:
        TypeError, ValueError: there is something else than events and numbers in it.

    Example:

    >>> parts = (dp_accounting.GaussianDpEvent(noise) for noise in (2.0, 3.0))
    >>> len(own_copy(dp_accounting.ComposedDpEvent(parts)).events)
    2
    """
    kind = next(kind for kind in type(event).__mro__ if kind.__module__ == dp_event.__name__)
    names = inspect.signature(kind).parameters
    return kind(**{name: _own(getattr(event, name)) for name in names})


def event_to_dict(event: dp_accounting.DpEvent) -> dict[str, Any]:
    """The event as JSON values; infinity, which JSON has not, as text.

    Example:

    >>> event_to_dict(dp_accounting.LaplaceDpEvent(2.0))
    {'class_name': 'LaplaceDpEvent', 'noise_multiplier': 2.0}
    """
    return _plain(event.to_named_tuple())


def event_from_dict(content: Mapping[str, Any]) -> dp_accounting.DpEvent:
    """The event that `event_to_dict` wrote.

    Raises:
        ValueError: it is none of dp_accounting's.
    """
    kind = getattr(dp_event, str(content["class_name"]), None)
    if not (isinstance(kind, type) and issubclass(kind, dp_accounting.DpEvent)):
        raise ValueError(f"no event: {content['class_name']!r}")
    return kind(**{name: _made(value) for name, value in content.items() if name != "class_name"})


def _own(value: Any) -> Any:
    if hasattr(value, "shape"):  # of NumPy, pandas or TensorFlow
        value = np.asarray(value).tolist()
    if isinstance(value, dp_accounting.DpEvent):
        return own_copy(value)
    if isinstance(value, Iterable) and not isinstance(value, str):
        return tuple(_own(part) for part in value)
    return value if isinstance(value, int | float) else float(value)


def _plain(value: Any) -> Any:
    """JSON values of what `DpEvent.to_named_tuple` makes."""
    if hasattr(value, "_asdict"):
        fields = value._asdict()
        del fields["module_name"]
        return {name: _plain(field) for name, field in fields.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(part) for part in value]
    value = value.item() if hasattr(value, "item") else value
    return str(value) if isinstance(value, float) and math.isinf(value) else value


def _made(value: Any) -> Any:
    if isinstance(value, Mapping):
        return event_from_dict(value)
    if isinstance(value, str):
        return float(value)
    return tuple(map(_made, value)) if isinstance(value, list) else value

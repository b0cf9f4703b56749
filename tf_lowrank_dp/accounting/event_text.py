"""Events of dp_accounting as JSON values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import dp_accounting
from dp_accounting import dp_event


def event_to_dict(event: dp_accounting.DpEvent) -> dict[str, Any]:
    """The event as JSON values.

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


def _plain(value: Any) -> Any:
    """JSON values of what `DpEvent.to_named_tuple` makes."""
    if hasattr(value, "_asdict"):
        fields = value._asdict()
        del fields["module_name"]
        return {name: _plain(field) for name, field in fields.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(part) for part in value]
    return value.item() if hasattr(value, "item") else value


def _made(value: Any) -> Any:
    if isinstance(value, Mapping):
        return event_from_dict(value)
    return [_made(part) for part in value] if isinstance(value, list) else value

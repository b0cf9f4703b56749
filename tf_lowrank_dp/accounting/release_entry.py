"""A release by another mechanism in the ledger: any event that the tight accountant knows."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import dp_accounting
import numpy as np
from dp_accounting import dp_event, pld

from tf_lowrank_dp import _validate
from tf_lowrank_dp.accounting.composition import Mechanism, OtherMechanism
from tf_lowrank_dp.accounting.event_text import event_to_dict, own_copy
from tf_lowrank_dp.accounting.sampling import DrawnBy, Unit

_POSSIBLE: dict[str, Callable[[np.ndarray], bool]] = {
    "noise_multiplier": lambda v: bool(np.isfinite(v) & (v >= 0)),
    "standard_deviation": lambda v: bool(np.isfinite(v) & (v >= 0)),
    "noise_parameter": lambda v: bool(np.isfinite(v) & (v > 0)),
    "sampling_probability": lambda v: bool((v >= 0) & (v <= 1)),
    "count": lambda v: bool(np.isfinite(v) & (v >= 0)) and v == int(v),
    "sensitivities": lambda v: bool(np.all(np.isfinite(v) & (v >= 0))),
    "sensitivity": lambda v: bool(np.all(np.isfinite(v) & (v >= 0))),
    "sampling_probs": lambda v: bool(np.all(v >= 0)) and math.isclose(v.sum(), 1.0),
    "mean": lambda v: bool(np.isfinite(v) & (v > 0)),
    "shape": lambda v: bool(v > -1),
}
"""Which numbers the attributes of events may be."""

_OF_SEVERAL = ("sensitivities", "sampling_probs")

_ADD_OR_REMOVE_ONE = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
_PLD = pld.PLDAccountant(_ADD_OR_REMOVE_ONE)


@dataclasses.dataclass(frozen=True)
class ReleaseEntry:
    """Something else that was computed from the data and released, such as a private mean.

    Attributes:
        event: what was done, for neighbours by adding or removing one example, or user; a copy of
            what is passed.
        mechanism: a description, for reports.
        steps: how often it was done, at least 0.
        entry_id: identifies the release, so that merging ledgers does not count it twice.
        unit: "example" or "user", whose absence makes neighbours.
        drawn_by: "user" where it took batches that the library has not drawn, as `Sampling` says.

    Example:

    >>> ReleaseEntry(dp_accounting.LaplaceDpEvent(2.0), "count of examples").steps
    1
    """

    event: dp_accounting.DpEvent
    mechanism: str
    steps: int = 1
    entry_id: str = dataclasses.field(default_factory=lambda: uuid.uuid4().hex)
    unit: Unit = "example"
    drawn_by: DrawnBy = "library"

    noise_multiplier = None
    num_examples = None
    seeded = False
    neighboring_relation = _ADD_OR_REMOVE_ONE

    def __post_init__(self) -> None:
        object.__setattr__(self, "steps", _validate.integer_at_least(0, steps=self.steps))
        _validate.one_of(("example", "user"), unit=self.unit)
        _validate.one_of(("library", "user"), drawn_by=self.drawn_by)
        for name in ("mechanism", "entry_id"):
            value = getattr(self, name)
            if not isinstance(value, str) or not value:
                raise _validate.error("to be a non-empty string", "Pass a name.", **{name: value})
        object.__setattr__(self, "event", _known(self.event))
        _check(self.event)

    @property
    def is_released(self) -> bool:
        """Whether there is a release that epsilon has to count."""
        return self.steps > 0

    @property
    def mechanisms(self) -> list[Mechanism | OtherMechanism]:
        """All parts of the event, as often as they were done."""
        return list(_parts(self.event, self.steps))


def _known(event: Any) -> dp_accounting.DpEvent:
    """A copy of an event that an accountant knows: what callers do with theirs changes nothing."""
    if isinstance(event, dp_accounting.DpEvent):
        with contextlib.suppress(TypeError, ValueError):
            copy = own_copy(event)
            if isinstance(copy, dp_event.RepeatAndSelectDpEvent) or _PLD.supports(copy):
                return copy
    raise _validate.error(
        "to be an event of dp_accounting that its PLDAccountant supports",
        "Pass one that is a bound of it, such as a GaussianDpEvent.",
        event=event,
    )


def _check(event: dp_accounting.DpEvent) -> None:
    """Checks that the numbers of an event are those of one: the accountant does not."""
    for name, possible in _POSSIBLE.items():
        if not hasattr(event, name):
            continue
        value = np.asarray(getattr(event, name), float)
        if (value.ndim and name not in _OF_SEVERAL) or not possible(value):
            raise _validate.error(
                f"to be an event with a {name} that is possible",
                "Counts are whole, probabilities add up to at most 1, deviations of Laplace noise "
                "are positive, and nothing is negative, infinite or NaN.",
                event=event,
            )
    if isinstance(event, dp_accounting.LaplaceDpEvent) and not event.noise_multiplier > 0:
        raise _validate.error("to have noise", "Pass a deviation above 0.", event=event)
    for part in [getattr(event, "event", None), *getattr(event, "events", ())]:
        if isinstance(part, dp_accounting.DpEvent):
            _check(part)


def _parts(event: dp_accounting.DpEvent, count: int) -> Iterator[Mechanism | OtherMechanism]:
    """Gaussians as what the ledger knows of training runs, so that equal ones are one."""
    if isinstance(event, dp_accounting.SelfComposedDpEvent):
        yield from _parts(event.event, count * event.count)
    elif isinstance(event, dp_accounting.ComposedDpEvent):
        for part in event.events:
            yield from _parts(part, count)
    elif isinstance(event, dp_accounting.GaussianDpEvent):
        yield Mechanism(1.0, float(event.noise_multiplier), count)
    elif isinstance(event, dp_accounting.PoissonSampledDpEvent) and isinstance(
        event.event, dp_accounting.GaussianDpEvent
    ):
        if event.sampling_probability > 0:
            rate, noise = float(event.sampling_probability), float(event.event.noise_multiplier)
            yield Mechanism(rate, noise, count)
    elif not isinstance(event, dp_accounting.NoOpDpEvent):
        yield OtherMechanism(json.dumps(event_to_dict(event), sort_keys=True), count)

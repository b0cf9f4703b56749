"""A release by another mechanism in the ledger: any event that the tight accountant knows."""

from __future__ import annotations

import dataclasses
import json
import math
import uuid
from collections.abc import Iterator

import dp_accounting
from dp_accounting import dp_event, pld

from tf_lowrank_dp import _validate
from tf_lowrank_dp.accounting.composition import Mechanism, OtherMechanism
from tf_lowrank_dp.accounting.event_text import event_to_dict
from tf_lowrank_dp.accounting.sampling import Unit

_ADD_OR_REMOVE_ONE = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE


@dataclasses.dataclass(frozen=True)
class ReleaseEntry:
    """Something else that was computed from the data and released, such as a private mean.

    Attributes:
        event: what was done, for neighbours by adding or removing one example, or user.
        mechanism: a description, for reports.
        steps: how often it was done, at least 0.
        entry_id: identifies the release, so that merging ledgers does not count it twice.
        unit: "example" or "user", whose absence makes neighbours.

    Example:

    >>> ReleaseEntry(dp_accounting.LaplaceDpEvent(2.0), "count of examples").steps
    1
    """

    event: dp_accounting.DpEvent
    mechanism: str
    steps: int = 1
    entry_id: str = dataclasses.field(default_factory=lambda: uuid.uuid4().hex)
    unit: Unit = "example"

    noise_multiplier = None
    num_examples = None
    seeded = False
    neighboring_relation = _ADD_OR_REMOVE_ONE

    def __post_init__(self) -> None:
        object.__setattr__(self, "steps", _validate.integer_at_least(0, steps=self.steps))
        _validate.one_of(("example", "user"), unit=self.unit)
        for name in ("mechanism", "entry_id"):
            value = getattr(self, name)
            if not isinstance(value, str) or not value:
                raise _validate.error("to be a non-empty string", "Pass a name.", **{name: value})
        is_event = isinstance(self.event, dp_accounting.DpEvent)
        if not is_event or not (
            pld.PLDAccountant(_ADD_OR_REMOVE_ONE).supports(self.event)
            or isinstance(self.event, dp_event.RepeatAndSelectDpEvent)
        ):
            raise _validate.error(
                "to be an event of dp_accounting that its PLDAccountant supports",
                "Pass one that is a bound of it, such as a GaussianDpEvent.",
                event=self.event,
            )
        _check(self.event)

    @property
    def is_released(self) -> bool:
        """Whether there is a release that epsilon has to count."""
        return self.steps > 0

    @property
    def mechanisms(self) -> list[Mechanism | OtherMechanism]:
        """All parts of the event, as often as they were done."""
        return list(_parts(self.event, self.steps))


def _check(event: dp_accounting.DpEvent) -> None:
    """Checks that the numbers of an event are those of one: the accountant does not."""
    found = {
        name: getattr(event, name)
        for name in ("noise_multiplier", "sampling_probability", "count")
        if hasattr(event, name)
    }
    for name, value in found.items():
        usable = math.isfinite(value) and value >= 0
        if name == "sampling_probability":
            usable = usable and value <= 1
        if name == "count":
            usable = usable and value == int(value)
        if not usable:
            raise _validate.error(
                f"to be an event with a {name} that is possible",
                "Counts are whole, probabilities at most 1, and nothing is negative or NaN.",
                event=event,
            )
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

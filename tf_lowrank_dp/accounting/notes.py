"""What a ledger knows beside its numbers: batches that others drew, layers with adapted state."""

from __future__ import annotations

import collections
from collections.abc import Iterable

from dp_accounting import dp_event

from tf_lowrank_dp.accounting.ledger_entry import Entry, LedgerEntry
from tf_lowrank_dp.accounting.release_entry import ReleaseEntry

_STATED = {
    "poisson": "batches are independent Poisson draws and each row is made of one example",
    "shuffle": "each example is in a pass at most once, each row is made of one example, and what "
    "one holds does not decide where others are",
    "release": "they were drawn as its event says and each row is made of one example",
}
_ADAPTED = "adapted state of "


def notes_on_batches(entries: Iterable[Entry]) -> list[str]:
    """Sentences on what was stated, and not verified, of batches that the library has not drawn.

    Args:
        entries: the history.
    """
    entries = tuple(entry for entry in entries if is_by_user(entry))
    steps: collections.Counter[str] = collections.Counter()
    for entry in entries:
        if isinstance(entry, LedgerEntry):
            steps[entry.sampling.kind] += entry.steps
    subjects = {kind: [f"{count} steps"] for kind, count in steps.items()}
    others = dict.fromkeys(e.mechanism for e in entries if isinstance(e, ReleaseEntry))
    if others:
        subjects["release"] = [f"'{name}'" for name in others]
    return [
        f"Note: batches of {' and of '.join(of)} were drawn outside of the library. It was "
        f"stated, and nothing has verified, that {_STATED[kind]}; if not, epsilon is too low."
        for kind, of in subjects.items()
    ]


def is_by_user(entry: Entry) -> bool:
    """Whether there are steps of batches that the library has not drawn."""
    return entry.is_released and entry.drawn_by == "user"


def adapted_entry(name: str) -> ReleaseEntry:
    """A layer with state that `adapt` may have computed from the data, which epsilon leaves out.

    It follows values and files as releases do, and costs nothing: it has no steps.

    Args:
        name: of the layer.
    """
    return ReleaseEntry(dp_event.NoOpDpEvent(), name, steps=0, entry_id=_ADAPTED + name)


def adapted_in(entries: Iterable[Entry]) -> list[str]:
    """Names of the layers of which an `adapted_entry` is among the entries."""
    return [entry.mechanism for entry in entries if is_adapted(entry)]


def is_adapted(entry: Entry) -> bool:
    """Whether it was made by `adapted_entry`."""
    return isinstance(entry, ReleaseEntry) and entry.entry_id == _ADAPTED + entry.mechanism

"""One line of what was spent: a run that goes on, or a ledger that came with values."""

from __future__ import annotations

import dataclasses
import itertools
import threading
import weakref
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from tf_lowrank_dp.accounting import LedgerEntry, PrivacyLedger
from tf_lowrank_dp.spending.present import handle_of, present_value

_orders = itertools.count()


@dataclasses.dataclass
class Reading:
    """What the steps of a run depend on, and what they change.

    Attributes:
        updated: things that they update.
        read: things that go into them.
        handles: of all variables that their graphs were seen to read; see `of_others`.
        added: of variables that terms which a graph adds to released gradients are computed from,
            among which may be sums of releases.
        own: handles of variables that were among `read` and `updated`, by their `id`s.
        gone: handles, and what was known of them, of variables that nobody has looked at since
            they were deleted.
        layers: in which variables were that only their graphs know.
        came: what values of variables came with of which only their graphs know.
        behind: runs that have made what they read.
        found: what was spent on what they read since, by the releases until the run's last update
            at that time: the next release, or the update that is still to come, depends on it.
        later: what runs behind have found so, which no step of theirs has read, by both, and as of
            the same releases: those after such a step depend on it.
        looked_at: such releases when what they read was last looked at.
    """

    updated: list[weakref.ref] = dataclasses.field(default_factory=list)
    read: list[weakref.ref] = dataclasses.field(default_factory=list)
    handles: list[weakref.ref] = dataclasses.field(default_factory=list)
    added: list[weakref.ref] = dataclasses.field(default_factory=list)
    own: MutableMapping[int, tf.Tensor] = dataclasses.field(
        default_factory=weakref.WeakValueDictionary
    )
    gone: list[tuple[tf.Tensor, Any]] = dataclasses.field(default_factory=list)
    layers: list[weakref.ref] = dataclasses.field(default_factory=list)
    came: frozenset[Record] = frozenset()
    behind: frozenset[Record] = frozenset()
    found: dict[Record, int] = dataclasses.field(default_factory=dict)
    later: dict[tuple[Record, Record], int] = dataclasses.field(default_factory=dict)
    looked_at: int = 0

    def add(self, handles: Sequence[tf.Tensor], added: bool) -> list[tf.Tensor]:
        """Takes further handles, which are `added` or not, and gives those `of_others`."""
        kept = self.added if added else self.handles
        known = {id(reference()) for reference in kept}
        kept += [weakref.ref(each) for each in handles if id(each) not in known]
        return self.of_others(handles)

    def find(self, record: Record, at: int) -> bool:
        """Notes what is found as of so many releases; whether that is new, or earlier."""
        if self.found.get(record, at + 1) <= at:
            return False
        self.found[record] = at
        return True

    def has_found(self) -> bool:
        """Whether anything is found that no step has read yet."""
        return bool(self.found or self.later)

    def find_later(self, behind: Record, at: int, known: frozenset[Record]) -> bool:
        """Notes what a run behind has found, but for what is known; whether that is new."""
        others = {*behind.reading.found, *(record for _, record in behind.reading.later)}
        new = {(behind, record) for record in others - known}.difference(self.later)
        self.later |= dict.fromkeys(new, at)
        return bool(new)

    def give_on(self, behind: Record, due: frozenset[Record]) -> None:
        """Notes as found what a run behind has read by now."""
        for record in due:
            at = self.later.pop((behind, record), None)
            if at is not None:
                self.find(record, at)

    def forget(self, due: frozenset[Record]) -> None:
        """Forgets what the updated things have now."""
        self.found = {each: at for each, at in self.found.items() if each not in due}
        self.later = {both: at for both, at in self.later.items() if both[1] not in due}

    def has(self, handle: tf.Tensor) -> bool:
        """Whether the steps read the variable of this handle, whosever it is."""
        return id(handle) in self.own or any(each is handle for each in self._of_graphs())

    def handles_of_others(self) -> list[tf.Tensor]:
        """Of the variables that graphs read, and that are not of the model and optimizer now."""
        return self.of_others(self._of_graphs())

    def of_others(self, handles: Iterable[tf.Tensor]) -> list[tf.Tensor]:
        """Those of variables that are not of the model and optimizer that the steps update."""
        own = {id(handle_of(reference())) for reference in (*self.read, *self.updated)}
        return [handle for handle in handles if id(handle) not in own]

    def _of_graphs(self) -> list[tf.Tensor]:
        handles = [reference() for reference in (*self.handles, *self.added)]
        return [handle for handle in handles if handle is not None]


class Record:
    """What values can depend on: a training run of this process, or a ledger that came with them.

    Args:
        ledger: what is known for good.
        entry: the run's line in the ledger; None for a ledger that was loaded.
        counter: `tf.Variable` int64, the releases of the run so far.
        updates: `tf.Variable` int64, those until its last update: the same where each step is one.

    Attributes:
        reading: what steps of the run read; empty for a ledger that was loaded.
        trained_in: the thread in which `fit` takes its steps now, or None.
    """

    def __init__(
        self,
        ledger: PrivacyLedger | None = None,
        entry: LedgerEntry | None = None,
        counter: tf.Variable | None = None,
        updates: tf.Variable | None = None,
    ) -> None:
        self._ledger = ledger or PrivacyLedger()
        self._entry, self._counter = entry, counter
        self.updates = counter if updates is None else updates
        self.reading = Reading()
        self.trained_in: int | None = None
        self.order = next(_orders)

    @property
    def is_loaded(self) -> bool:
        """Whether it came from a file, with values that this process did not make."""
        return self._counter is None

    @property
    def steps(self) -> int:
        """Releases of the run so far, read from its counter; 0 for a ledger that was loaded."""
        return _value(self._counter)

    @property
    def updated_at(self) -> int:
        """Releases until the last update, after which its values are as they were left."""
        return _value(self.updates)

    def due(self) -> frozenset[Record]:
        """What its steps have read, of what was found there."""
        found = self.reading.found
        steps = self.steps if found else 0
        return frozenset(each for each, at in found.items() if steps > at)

    def include(self, ledger: PrivacyLedger) -> None:
        """What came with values says more now; only of one that has no counter.

        Raises:
            ValueError: another run is under a known id.  Nothing is changed then.
        """
        self._ledger = merged([self, Record(ledger)])

    @property
    def ledger(self) -> PrivacyLedger:
        """What it stands for now."""
        if self._entry is None:
            return self._ledger
        return PrivacyLedger([dataclasses.replace(self._entry, steps=self.steps)])


def grow_elsewhere(records: Iterable[Record]) -> bool:
    """Whether `fit` may take steps of one in another thread, while this one goes on."""
    return any(each.trained_in not in (None, threading.get_ident()) for each in records)


def steps_of(runs: Iterable[Record]) -> int:
    """Releases of several runs together, until their last updates."""
    return sum(run.updated_at for run in runs)


def _value(counter: tf.Variable | None) -> int:
    return 0 if counter is None else int(present_value(counter))


def merged(records: Iterable[Record]) -> PrivacyLedger:
    """One ledger of several records, in the order in which these were made."""
    ledger = PrivacyLedger()
    for record in sorted(records, key=lambda record: record.order):
        ledger.merge(record.ledger)
    return ledger


def hold(records: Iterable[Record], ledger: PrivacyLedger) -> bool:
    """Whether these records say all that a ledger does."""
    return merged([*records, Record(ledger)]) == merged(records)


Steps: TypeAlias = Mapping[Record, int]
"""How many releases runs had made until their last updates at some time."""
UNKNOWN = Record(PrivacyLedger(prior_spend_unknown=True))

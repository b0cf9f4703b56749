"""What is on record for each thing, and for the runs that read it."""

from __future__ import annotations

import contextlib
import contextvars
import threading
import weakref
from collections.abc import Iterable, Iterator, Sequence

import keras
import tensorflow as tf

from tf_lowrank_dp._keras.layers import own_weights
from tf_lowrank_dp.accounting import PrivacyLedger
from tf_lowrank_dp.spending import readers
from tf_lowrank_dp.spending.left import LeftValues
from tf_lowrank_dp.spending.marks import put_back, state_of
from tf_lowrank_dp.spending.present import handle_of
from tf_lowrank_dp.spending.record import Record, Steps, hold, merged
from tf_lowrank_dp.spending.shared import SharedVariables
from tf_lowrank_dp.spending.trace import (
    Recognised,
    Thing,
    Trace,
    alive,
    quantized_variables,
    tells_of_data,
    values_kept_in,
)

_ADDED: contextvars.ContextVar[list[Record]] = contextvars.ContextVar("added")
_RECOGNISED: contextvars.ContextVar[list[Recognised]] = contextvars.ContextVar("recognised")


class Traces:
    """A `Trace` for each thing that lives, by identity, and the runs that update and read things.

    Attributes:
        version: grows whenever a thing gains a record.
        runs: all whose values live.
        left: what was on record for things that are gone.
    """

    def __init__(self) -> None:
        self._traces: dict[int, Trace] = {}
        self._shared = SharedVariables()
        self.left = LeftValues()
        self.runs: weakref.WeakSet[Record] = weakref.WeakSet()
        self.version = 0
        self._lock = threading.RLock()

    def __getitem__(self, thing: Thing) -> Trace:
        thing = self._shared.one_of(thing)
        trace = self._traces.get(id(thing))
        return self._keep(thing, Trace(weakref.ref(thing))) if trace is None else trace

    def _keep(self, thing: Thing, trace: Trace) -> Trace:
        trace.thing, self._traces[id(thing)] = weakref.ref(thing), trace
        is_looked_at = isinstance(thing, keras.Variable) and tells_of_data(thing)
        handle = handle_of(thing) if is_looked_at else None
        weakref.finalize(thing, self._let_go, id(thing), handle).atexit = False
        return trace

    def _let_go(self, identity: int, handle: tf.Tensor | None) -> None:
        """A thing is gone: runs that have read it keep its value until somebody looks at them."""
        trace = self._traces.pop(identity)
        heir = self._shared.another(handle)
        if heir is not None:
            self._keep(heir, trace)
        elif handle is not None:
            known_to = [run for run in [*self.runs] if run.reading.has(handle)]
            self.left.note(handle, trace.records, known_to)
            for run in known_to:
                run.reading.gone.append((handle, trace))

    def __contains__(self, thing: Thing) -> bool:
        return id(self._shared.one_of(thing)) in self._traces

    def __iter__(self) -> Iterator[Trace]:
        return iter([*self._traces.values()])

    def __len__(self) -> int:
        return len(self._traces)

    def known(self, things: Iterable[Thing]) -> list[tuple[Thing, Trace]]:
        """The things that have a trace, with it; those that share one once."""
        found = [(thing, self[thing]) for thing in things if thing in self]
        return [*{id(trace): (thing, trace) for thing, trace in found}.values()]

    def records(self, things: Iterable[Thing]) -> frozenset[Record]:
        """What is on record for any of the things."""
        found: set[Record] = set()
        for _, trace in self.known(things):
            found |= trace.records | self.records(alive(trace.links))
        return frozenset(found)

    def runs_of(self, thing: Thing) -> frozenset[Record]:
        """The runs whose steps have made the value of a thing."""
        return self[thing].runs if thing in self else frozenset()

    def attach(
        self,
        things: Iterable[Thing],
        records: frozenset[Record],
        since: Steps | None = None,
    ) -> None:
        """Adds records to things, and tells the runs that read them.

        Args:
            things: the things.
            records: what their values depend on.
            since: steps of each run when that may have begun, before it was found; None for now.
        """
        with self._lock:
            before = self.version
            for trace in [self[thing] for thing in things] if records else []:
                if not records <= trace.records:
                    trace.records |= records
                    self.version += 1
            if self.version > before:
                readers.tell(self, frozenset() if since is None else records, since)

    def tell_readers(self) -> None:
        """Tells the runs that read things, as `attach` does, once they have come to read more."""
        with self._lock:
            readers.tell(self)

    def watch(self, things: Iterable[Thing]) -> None:
        """Notes which runs read things of which nothing may be on record yet."""
        for thing in things:
            self[thing]
        self.tell_readers()

    def came(self, run: Record, handle: tf.Tensor, records: frozenset[Record]) -> None:
        """Adds to what a run updates what a value came with, whose variable graphs alone know.

        Other runs that read it get it where they have taken a step since they were looked at.
        """
        with self._lock:
            since, new = readers.at_last_looks(self), False
            for reader in readers.of_handle(self, handle):
                new |= not records <= reader.reading.came
                reader.reading.came |= records
            self.attach(alive(run.reading.updated), records, since)
            if new:
                readers.tell(self, records, since)

    def count_what_was_read(self) -> None:
        """Adds to what runs update what was found in what they read, where a step came after.

        Steps in a graph tell nobody, so that this is done when somebody asks.
        """
        with self._lock:
            while due := {run: new for run in [*self.runs] if (new := run.due())}:
                for run, records in due.items():
                    for reader in [*self.runs]:
                        reader.reading.give_on(run, records)
                    self.attach(alive(run.reading.updated), records)
                    run.reading.forget(records)

    def add(self, things: Iterable[Thing], record: Record, since: Steps | None = None) -> None:
        """Adds a new record to things, as `attach` does, which `undone_on_error` may take away."""
        _ADDED.get([]).append(record)
        if since is None and record.ledger.prior_spend_unknown:
            since = readers.at_last_looks(self)
        self.attach(things, frozenset({record}), since)

    def link(self, optimizer: Thing, things: Iterable[Thing]) -> None:
        """Has what is on record for things count for an optimizer; they get what it has loaded."""
        trace = self[optimizer]
        known = {id(thing) for thing in alive(trace.links)}
        new = [thing for thing in things if id(thing) not in known]
        trace.links = [weakref.ref(thing) for thing in [*alive(trace.links), *new]]
        self.attach(new, frozenset(record for record in trace.records if record.is_loaded))

    def recognise(
        self, thing: Thing, records: frozenset[Record], runs: frozenset[Record] | None = None
    ) -> None:
        """Adds records that the value of a thing came with, as `add` does, and as its runs."""
        trace, since = self[thing], readers.at_last_looks(self) if runs is None else None
        runs = records if runs is None else runs
        new = Recognised(trace, records - trace.records, runs - trace.runs)
        _RECOGNISED.get([]).append(new)
        self.attach([thing], records, since)
        trace.runs |= runs

    def tell(self, layer: Thing) -> list[keras.Variable]:
        """Adds to a layer, and as its runs, what is on record for its own weights.

        Models, and layers that only hold others, have none.

        Returns:
            Variables that quantisation has put there since.  They get what the layer has.
        """
        if not isinstance(layer, keras.layers.Layer):
            return []
        own = own_weights(layer)
        new = [each for each in quantized_variables(layer) if each not in self]
        for thing, parts in [(layer, own), *((variable, [layer]) for variable in new)]:
            records = self.records(parts)
            if records:
                self.recognise(thing, records, frozenset().union(*map(self.runs_of, parts)))
        return new

    def extend(
        self,
        record: Record,
        ledger: PrivacyLedger,
        things: Sequence[Thing],
        since: Steps | None,
    ) -> Record:
        """Adds to a record of before and to things, as `attach` does; who depends on it asks again.

        Returns:
            The record; a new one where somebody else depends on it who has not learnt of this: a
            student that has ended.
        """
        with self._lock:
            own = {id(self[thing]) for thing in things}
            held = {t.records for t in self if record in t.records and id(t) not in own}
            if all(hold(records, ledger) for records in held):
                record.include(ledger)
            else:
                record = Record(merged({record, Record(ledger)}))
            self.attach(things, frozenset({record}), since)
            self.version += 1
        return record

    @contextlib.contextmanager
    def undone_on_error(self) -> Iterator[None]:
        """See `Spending.undone_on_error`."""
        before = {id(t): (t, t.seen_at, {**t.seen}, state_of(t)) for t in self}
        found = {run: frozenset(run.reading.found) for run in [*self.runs]}
        later = {run: {**run.reading.later} for run in [*self.runs]}
        added: list[Record] = []
        recognised: list[Recognised] = []
        tokens = _ADDED.set(added), _RECOGNISED.set(recognised)
        try:
            yield
        except BaseException:
            with self._lock:
                changed = [trace for trace in self if trace.records & {*added}]
                for trace, records, runs in recognised:
                    trace.records -= records
                    trace.runs -= runs
                    changed.append(trace)
                for trace in changed:
                    trace.records -= {*added}
                    new: tuple = (trace, None, {}, None)
                    _, trace.seen_at, trace.seen, state = before.get(id(trace), new)
                    put_back(trace, state)
                undone = frozenset(added).union(*(records for _, records, _ in recognised))
                for run in [*self.runs]:
                    run.reading.came -= undone
                    kept = found.get(run, frozenset()) | {each for _, each in later.get(run, ())}
                    kept |= self.records(readers.read_by(self, run))
                    run.reading.found = {
                        record: at
                        for record, at in run.reading.found.items()
                        if record in kept or record not in undone
                    }
                for run in [*self.runs]:
                    run.reading.later = {
                        (behind, record): at
                        for (behind, record), at in run.reading.later.items()
                        if (behind, record) in later.get(run, ())
                        or record not in undone
                        or record in behind.reading.found
                    }
            raise
        finally:
            _ADDED.reset(tokens[0])
            _RECOGNISED.reset(tokens[1])

    def begin(self, run: Record, updated: Sequence[Thing], read: Iterable[Thing]) -> None:
        """Takes a run that is going to update and read these things."""
        read = [*read]
        run.reading.updated = [*map(weakref.ref, updated)]
        run.reading.read = [*map(weakref.ref, read)]
        handles = map(handle_of, [*updated, *read])
        run.reading.own.update({id(each): each for each in handles if each is not None})
        self.runs.add(run)

    def linked(self, optimizer: Thing, without: Iterable[Thing]) -> list[Thing]:
        """What an optimizer is linked to, but for what is left out."""
        left_out = {id(thing) for thing in without}
        return [thing for thing in alive(self[optimizer].links) if id(thing) not in left_out]

    def made_by_steps(self, things: Iterable[Thing]) -> list[keras.Variable]:
        """The variables that these are, or keep, whose values private steps have made."""
        made = [t for t in things if any(run.ledger.num_steps for run in self.runs_of(t))]
        kept = [variable for thing in made for variable in values_kept_in(thing)]
        return [*{id(variable): variable for variable in kept}.values()]

    def computed(self, things: Iterable[Thing]) -> None:
        """Takes what was added to things as what has made their values."""
        for _, trace in self.known(things):
            trace.runs |= {record for record in trace.records if record.is_loaded}

"""What the steps of runs read, and what reaches the values that they update by it, and when."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from typing import Protocol

import keras
import tensorflow as tf

from tf_lowrank_dp.spending.present import handle_of
from tf_lowrank_dp.spending.record import Record, Steps
from tf_lowrank_dp.spending.trace import (
    Thing,
    Trace,
    alive,
    tells_of_data,
    values_kept_in,
    variables_of,
)


class Traces(Protocol):
    """What is asked of `traces.Traces`, which tells the readers of what it gains."""

    runs: weakref.WeakSet[Record]

    def __iter__(self) -> Iterator[Trace]: ...

    def records(self, things: Iterable[Thing]) -> frozenset[Record]: ...

    def runs_of(self, thing: Thing) -> frozenset[Record]: ...


def read_by(traces: Traces, run: Record) -> list[Thing]:
    """What goes into the steps of a run, what only its graphs know included."""
    return [*alive(run.reading.read), *known_only_to(traces, run)]


def known_only_to(traces: Traces, run: Record) -> list[Thing]:
    """The variables that only the graphs of a run are known to read, such as a teacher's.

    Their layers as well, which stay when quantisation replaces what a graph has read.
    """
    found = having(traces, run.reading.handles_of_others())
    noted = {id(thing) for thing in alive(run.reading.layers)}
    layers = [thing for thing in found if isinstance(thing, keras.layers.Layer)]
    run.reading.layers += [weakref.ref(each) for each in layers if id(each) not in noted]
    known = {id(thing) for thing in found}
    return [*found, *(each for each in alive(run.reading.layers) if id(each) not in known)]


def having(traces: Traces, handles: Iterable[tf.Tensor]) -> list[Thing]:
    """The variables of these handles, and layers that hold one, of which something is known."""
    wanted = {id(handle) for handle in handles}
    return alive(trace.thing for trace in traces if wanted and trace.has_handle(wanted))


def of_handle(traces: Traces, handle: tf.Tensor) -> list[Record]:
    """The runs of whose steps only graphs know that they read a variable."""
    return [
        run
        for run in [*traces.runs]
        if any(each is handle for each in run.reading.handles_of_others())
    ]


def values_read_by(traces: Traces, run: Record, without: Iterable[Thing]) -> list[Thing]:
    """The variables whose values go into the steps of a run, but for those given."""
    left_out = {id(variable) for variable in without}
    read = [kept for thing in read_by(traces, run) for kept in values_kept_in(thing)]
    return [v for v in variables_of(read) if id(v) not in left_out and tells_of_data(v)]


def records_ahead(traces: Traces, run: Record, handles: Iterable[tf.Tensor]) -> frozenset[Record]:
    """What the next step of a run depends on, if it reads these variables as well."""
    things = [*alive(run.reading.updated), *read_by(traces, run), *having(traces, handles)]
    return traces.records(things) | run.reading.came | {*run.reading.found}


def runs_behind(traces: Traces, run: Record, read: Iterable[Thing]) -> frozenset[Record]:
    """The runs that have made what the steps of a run read, also of models that are gone since.

    Args:
        traces: of all things.
        run: whose steps they are.
        read: what `read_by` gives for it.
    """
    run.reading.behind |= frozenset().union(*map(traces.runs_of, read))
    return run.reading.behind


def handles_without_record(traces: Traces, run: Record) -> list[tf.Tensor]:
    """Those of variables of which nothing is on record, without what is added to gradients."""
    known = [thing for thing in known_only_to(traces, run) if traces.records([thing])]
    kept = [variable for thing in known for variable in values_kept_in(thing)]
    recorded = {id(handle_of(variable)) for variable in kept}
    watched = {id(handle) for handle in alive(run.reading.handles)} - recorded
    return [each for each in run.reading.handles_of_others() if id(each) in watched]


def until_now(traces: Traces) -> Steps:
    """The steps of each run so far."""
    return {run: run.updated_at for run in [*traces.runs]}


def at_last_looks(traces: Traces) -> Steps:
    """The steps of each run when what it reads was last looked at."""
    return {run: run.reading.looked_at for run in [*traces.runs]}


def tell(traces: Traces, late: frozenset[Record] = frozenset(), since: Steps | None = None) -> None:
    """Notes for each run what was added to what it reads, or will be by a step of others.

    A run whose variables are gone takes no step any more: it only gives on what it has read.

    Args:
        traces: of all things.
        late: records that steps so far may depend on already, where what they read does.
        since: steps of each run after which they may; None where there are no such records.
    """
    since = since or {}
    grown = True
    while grown:
        grown = False
        for run in [*traces.runs]:
            reading, read = run.reading, read_by(traces, run)
            behind = runs_behind(traces, run, read)
            there = traces.records(read) | reading.came
            there = there.union(*(other.due() for other in behind))
            updated = [traces.records([thing]) for thing in alive(reading.updated)]
            known = frozenset.intersection(*updated) if updated else frozenset()
            for record in there - known - {run}:
                at = since.get(run, 0) if record in late else run.updated_at
                if updated or run.steps > at:
                    grown |= reading.find(record, at)
            giving = [other for other in behind - {run} if other.reading.has_found()]
            if updated and giving:
                known |= there | {run, *reading.found}
                for other in giving:
                    grown |= reading.find_later(other, run.updated_at, known)

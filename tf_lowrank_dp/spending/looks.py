"""Looks at the values of variables on which something was spent: whose are they?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import tensorflow as tf

from tf_lowrank_dp._tensorflow import value_behind
from tf_lowrank_dp.spending import readers
from tf_lowrank_dp.spending.digest import digests
from tf_lowrank_dp.spending.marks import (
    compare,
    expect,
    is_of_others,
    mark,
    mark_of,
    renew,
    unmark,
    was_changed,
)
from tf_lowrank_dp.spending.present import present_value
from tf_lowrank_dp.spending.record import UNKNOWN, Record, merged, steps_of
from tf_lowrank_dp.spending.trace import Thing, Trace
from tf_lowrank_dp.spending.traces import Traces


def note_values(traces: Traces, variables: Iterable[Thing]) -> None:
    """Takes the values of these variables as functions of what is on record for them."""
    for variable, trace, digest in _looked_at(traces.known(variables)):
        trace.note(digest)
        renew(variable, trace)


def by_others(traces: Traces, variables: Iterable[Thing]) -> list[Thing]:
    """Those whose values are neither what private steps left nor any that were seen.

    Their values are noted.
    """
    return [variable for variable, _ in _of_others(traces.known(variables))]


def look_at_gone(traces: Traces, run: Record) -> None:
    """Looks at the last values of what a run has read and is gone, as `by_others` does.

    Whoever has read it is told.
    """
    gone, run.reading.gone = run.reading.gone, []
    since = readers.at_last_looks(traces)
    values = [(value_behind(handle), trace) for handle, trace in gone]
    with tf.init_scope():
        changed = {id(trace) for _, trace in _of_others(values)}
    for each in [*traces.runs] if changed else []:
        if each is run or not changed.isdisjoint(id(trace) for _, trace in each.reading.gone):
            each.reading.came |= {UNKNOWN}
    if changed:
        readers.tell(traces, frozenset({UNKNOWN}), since)


def _of_others(known: list[tuple[Thing, Trace]]) -> list[tuple[Thing, Trace]]:
    """Those that `by_others` finds, with their traces; a value may stand for its variable."""
    found = []
    for variable, trace, digest in _looked_at(known):
        is_known = digest in trace.seen and not was_changed(trace)
        if not is_known and is_of_others(variable, trace):
            found.append((variable, trace))
        trace.note(digest)
        renew(variable, trace)
    return found


def expect_values(traces: Traces, variables: Iterable[Thing]) -> None:
    """Has graphs compare with the values now, which were looked at, where something was spent."""
    for variable, trace in _spent_on(traces.known(variables)):
        expect(variable, trace)


def remember_values(traces: Traces, variables: Sequence[Thing]) -> None:
    """Knows these values if they are put back later, and what a graph has left there no longer."""
    for variable, digest in zip(variables, digests(variables), strict=True):
        traces[variable].know(digest)
        unmark(traces[variable])


def compare_values(traces: Traces, variables: Sequence[Thing]) -> list[tf.Operation]:
    """Has a graph note, at this place, what others have changed."""
    known = traces.known(variables)
    with tf.init_scope():
        for _, trace in known:
            mark_of(trace)
        expect_values(traces, variables)
    return [compare(variable, trace) for variable, trace in known]


def mark_values(traces: Traces, variables: Iterable[Thing]) -> None:
    """Has a graph note, at this place, what an update has left."""
    for variable, trace in traces.known(variables):
        mark(variable, trace)


def hold_values(known: list[tuple[Thing, Trace]]) -> None:
    """Keeps the values that a step has just left, without reading them."""
    steps = {runs: steps_of(runs) for runs in {trace.runs for _, trace in known}}
    for variable, trace in known:
        trace.held = present_value(variable), steps[trace.runs]


def let_go(variable: Thing, trace: Trace) -> bool:
    """Whether a variable has the bits that were held, which are held no longer then."""
    if trace.held is None:
        return False
    value, _ = trace.held
    if not np.array_equal(_bits(present_value(variable)), _bits(value)):
        return False
    trace.held = None
    return True


def _bits(value: tf.Tensor) -> np.ndarray:
    return np.ascontiguousarray(value.numpy()).reshape(-1).view(np.uint8)


def _note_held(traces: list[Trace]) -> None:
    """Knows the values that were held, as of when that was."""
    held = [(trace, *trace.held) for trace in traces if trace.held is not None]
    found = digests([value for _, value, _ in held])
    for (trace, _, steps), digest in zip(held, found, strict=True):
        trace.note(digest, steps)
        trace.held = None


def _looked_at(known: list[tuple[Thing, Trace]]) -> Iterator[tuple[Thing, Trace, bytes]]:
    """Variables on which something was spent, as far as is known, with digests of their values."""
    _note_held([trace for _, trace in known])
    known = _spent_on(known)
    for (variable, trace), digest in zip(known, digests([v for v, _ in known]), strict=True):
        yield variable, trace, digest


def _spent_on(known: list[tuple[Thing, Trace]]) -> list[tuple[Thing, Trace]]:
    """Those on which something was spent, as far as is known."""
    ledgers = {records: merged(records) for records in {trace.records for _, trace in known}}
    return [
        (variable, trace)
        for variable, trace in known
        if ledgers[trace.records].num_steps and not ledgers[trace.records].prior_spend_unknown
    ]

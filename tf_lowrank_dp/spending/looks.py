"""Looks at the values of variables on which something was spent: whose are they?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tf_lowrank_dp.spending.digest import digests
from tf_lowrank_dp.spending.marks import is_of_others
from tf_lowrank_dp.spending.record import merged
from tf_lowrank_dp.spending.trace import Thing, Trace
from tf_lowrank_dp.spending.traces import Traces


def note_values(traces: Traces, variables: Iterable[Thing]) -> None:
    """Takes the values of these variables as functions of what is on record for them."""
    for _, trace, digest in _looked_at([(v, traces[v]) for v in variables if v in traces]):
        trace.note(digest)


def by_others(traces: Traces, variables: Iterable[Thing]) -> list[Thing]:
    """Those whose values are neither what private steps left nor any that were seen.

    Variables that are watched are not looked at.  Values of the others are noted.
    """
    known = [(v, traces[v]) for v in variables if v in traces]
    found = []
    for variable, trace, digest in _looked_at([each for each in known if not each[1].watched]):
        if digest not in trace.seen and is_of_others(variable, trace):
            found.append(variable)
        trace.note(digest)
    return found


def unseen(traces: Traces, variables: Iterable[Thing]) -> list[Thing]:
    """Those whose values were never seen before."""
    looked_at = _looked_at([(v, traces[v]) for v in variables if v in traces])
    return [variable for variable, trace, digest in looked_at if digest not in trace.seen]


def _looked_at(known: list[tuple[Thing, Trace]]) -> Iterator[tuple[Thing, Trace, bytes]]:
    """Variables on which something was spent, as far as is known, with digests of their values."""
    ledgers = {records: merged(records) for records in {trace.records for _, trace in known}}
    known = [
        (variable, trace)
        for variable, trace in known
        if ledgers[trace.records].num_steps and not ledgers[trace.records].prior_spend_unknown
    ]
    for (variable, trace), digest in zip(known, digests([v for v, _ in known]), strict=True):
        yield variable, trace, digest

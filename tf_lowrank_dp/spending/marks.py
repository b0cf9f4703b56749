"""What the last update of a graph has left in a variable, as the graph itself has noted it."""

from __future__ import annotations

from collections.abc import Iterable

import tensorflow as tf

from tf_lowrank_dp.spending.digest import checksum
from tf_lowrank_dp.spending.record import Record
from tf_lowrank_dp.spending.trace import Thing, Trace


def mark(variable: Thing, trace: Trace) -> None:
    """Notes, at this place of a graph, releases and the checksum of the value now."""
    counters = [run.counter for run in trace.runs if run.counter is not None]
    if not counters:
        return
    if trace.mark is None:
        with tf.init_scope():
            trace.mark = tf.Variable([-1, 0], dtype=tf.int64, trainable=False)
    value = checksum(tf.convert_to_tensor(variable))
    trace.mark.assign(tf.stack([tf.add_n(counters), value]))


def is_of_others(variable: Thing, trace: Trace) -> bool:
    """Whether a value that nobody has seen before is none that a private step has left."""
    steps = steps_of(trace.runs)
    if trace.mark is not None:
        marked_at, left = trace.mark.numpy()
        if marked_at == steps:
            return int(checksum(tf.convert_to_tensor(variable))) != left
    return trace.seen_at == steps


def steps_of(runs: Iterable[Record]) -> int:
    """Releases of several runs together."""
    return sum(run.steps for run in runs)

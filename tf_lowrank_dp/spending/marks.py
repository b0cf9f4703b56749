"""What the last update of a graph has left in a variable, as the graph itself has noted it."""

from __future__ import annotations

import tensorflow as tf

from tf_lowrank_dp.spending.digest import checksum
from tf_lowrank_dp.spending.trace import Thing, Trace


def mark(variable: Thing, trace: Trace) -> None:
    """Notes, at this place of a graph, the checksum of the value now."""
    if trace.mark is None:
        with tf.init_scope():
            trace.mark = tf.Variable([0, 0], dtype=tf.int64, trainable=False)
    value = checksum(tf.convert_to_tensor(variable))
    trace.mark.assign(tf.stack([tf.constant(1, tf.int64), value]))


def forget(trace: Trace) -> None:
    """Any value that it has now is on record: others have come."""
    trace.seen_at = None
    unmark(trace)


def unmark(trace: Trace) -> None:
    """What a graph has left there is no longer its value."""
    if trace.mark is not None:
        trace.mark.assign([0, 0])


def is_of_others(variable: Thing, trace: Trace) -> bool:
    """Whether a value that nobody has seen before is none that a private step has left.

    Steps of `fit` and of custom loops in eager mode are seen when they are taken; those in a graph
    leave a mark.
    """
    if trace.mark is not None:
        is_marked, left = trace.mark.numpy()
        if is_marked:
            return int(checksum(tf.convert_to_tensor(variable))) != left
    return trace.seen_at == trace.steps

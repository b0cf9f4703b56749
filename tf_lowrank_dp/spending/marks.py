"""What the last update of a graph has left in a variable, as the graph itself has noted it.

A mark is int64 `(2,)`: one of the states below, and a checksum of the value.
"""

from __future__ import annotations

import tensorflow as tf

from tf_lowrank_dp.spending.digest import checksum
from tf_lowrank_dp.spending.trace import Thing, Trace

_NONE, _LEFT, _CHANGED = 0, 1, 2  # the last: by others, before a later update


def mark(variable: Thing, trace: Trace) -> None:
    """Notes, at this place of a graph, the checksum of the value now."""
    state = tf.maximum(mark_of(trace)[0], _LEFT)
    mark_of(trace).assign(tf.stack([state, _checksum(variable)]))


def compare(variable: Thing, trace: Trace) -> None:
    """Notes, at this place of a graph, before an update, whether others have changed the value."""
    state, left = tf.unstack(mark_of(trace))
    changed = (state != _NONE) & (_checksum(variable) != left)
    mark_of(trace).assign(
        tf.stack([tf.where(changed, tf.constant(_CHANGED, tf.int64), state), left])
    )


def renew(variable: Thing, trace: Trace) -> None:
    """Takes the value that it has now, which was looked at, for the one that was left there."""
    if trace.mark is not None and trace.mark.numpy()[0] != _NONE:
        expect(variable, trace)


def expect(variable: Thing, trace: Trace) -> None:
    """Has the next update of a graph compare with the value that it has now."""
    if trace.mark is not None:
        trace.mark.assign([_LEFT, _checksum(variable).numpy()])


def forget(trace: Trace) -> None:
    """Any value that it has now is on record: others have come."""
    trace.seen_at = None
    unmark(trace)


def unmark(trace: Trace) -> None:
    """What a graph has left there is no longer its value."""
    if trace.mark is not None:
        trace.mark.assign([_NONE, 0])


def was_changed(trace: Trace) -> bool:
    """Whether a graph has noted a change by others, before an update that may have read it."""
    return trace.mark is not None and trace.mark.numpy()[0] == _CHANGED


def is_of_others(variable: Thing, trace: Trace) -> bool:
    """Whether a value that nobody has seen before is none that a private step has left.

    Steps of `fit` and of custom loops in eager mode are seen when they are taken; those in a graph
    leave a mark.
    """
    if trace.mark is not None:
        state, left = trace.mark.numpy()
        if state != _NONE:
            return bool(state == _CHANGED) or _checksum(variable).numpy() != left
    return trace.seen_at == trace.steps


def mark_of(trace: Trace) -> tf.Variable:
    """The mark of a trace, made if there was none."""
    if trace.mark is None:
        with tf.init_scope():
            trace.mark = tf.Variable([_NONE, 0], dtype=tf.int64, trainable=False)
    return trace.mark


def _checksum(variable: Thing) -> tf.Tensor:
    return checksum(tf.convert_to_tensor(variable))

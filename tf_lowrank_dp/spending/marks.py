"""What the last update of a graph has left in a variable, as the graph itself has noted it.

A mark is int64 `(2,)`: one of the states below, and a checksum of the value.
"""

from __future__ import annotations

import functools
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import tensorflow as tf

from tf_lowrank_dp.spending.digest import checksum
from tf_lowrank_dp.spending.present import present_value
from tf_lowrank_dp.spending.trace import Thing, Trace

# Nothing; a value; one by others before a later update; a value, and any that a file has brought.
_NONE, _LEFT, _CHANGED, _ANY = 0, 1, 2, -1


def mark(variable: Thing, trace: Trace) -> None:
    """Notes, at this place of a graph, the checksum of the value now."""
    state = tf.maximum(mark_of(trace)[0], _LEFT)
    mark_of(trace).assign(tf.stack([state, _checksum(variable)]))


def compare(variable: Thing, trace: Trace) -> tf.Operation:
    """Notes, at this place of a graph, whether others have changed the value, and what it is now.

    Before a release, which reads it, and before an update.
    """
    state, left = tf.unstack(mark_of(trace))
    now = _checksum(variable)
    changed = (state > _NONE) & (now != left)
    state = tf.where(changed, tf.constant(_CHANGED, tf.int64), tf.maximum(state, _LEFT))
    return mark_of(trace).assign(tf.stack([state, now]), read_value=False)


def renew(variable: Thing, trace: Trace) -> None:
    """Takes the value that it has now, which was looked at, for the one that was left there."""
    if trace.mark is not None and _now(trace.mark)[0] != _NONE:
        expect(variable, trace)


def expect(variable: Thing, trace: Trace) -> None:
    """Has the next update of a graph compare with the value that it has now."""
    if trace.mark is not None:
        trace.mark.assign([_LEFT, checksum(present_value(variable)).numpy()])


def forget(trace: Trace) -> None:
    """Any value that it has at the next look is on record: others have come."""
    trace.seen_at = None
    if trace.mark is not None and _now(trace.mark)[0] != _NONE:
        trace.mark.assign([_ANY, 0])


def unmark(trace: Trace) -> None:
    """What a graph has left there is no longer its value."""
    if trace.mark is not None:
        trace.mark.assign([_NONE, 0])


def state_of(trace: Trace) -> tf.Tensor | None:
    """What the mark says now, for `put_back`; None where there is none."""
    return None if trace.mark is None else tf.identity(present_value(trace.mark))


def put_back(trace: Trace, state: tf.Tensor | None) -> None:
    """Has the mark say what it said when the value was the one that was given back."""
    if trace.mark is not None and state is not None:
        trace.mark.assign(state)


def was_changed(trace: Trace) -> bool:
    """Whether a graph has noted a change by others, before an update that may have read it."""
    return trace.mark is not None and _now(trace.mark)[0] == _CHANGED


def is_of_others(variable: Thing, trace: Trace) -> bool:
    """Whether a value that nobody has seen before is none that a private step has left.

    Steps of `fit` and of custom loops in eager mode are seen when they are taken; those in a graph
    leave a mark.
    """
    if trace.mark is not None:
        state, left = _now(trace.mark)
        if state > _NONE:
            return bool(state == _CHANGED) or checksum(present_value(variable)).numpy() != left
    return trace.seen_at == trace.steps


def mark_of(trace: Trace) -> tf.Variable:
    """The mark of a trace, made if there was none.

    It is made in another thread, as TensorFlow lets the second trace of a function make none.
    """
    if trace.mark is None:
        new = functools.partial(tf.Variable, [_NONE, 0], dtype=tf.int64, trainable=False)
        with ThreadPoolExecutor(1) as thread:
            trace.mark = thread.submit(new).result()
    return trace.mark


def _now(mark: tf.Variable) -> np.ndarray:
    return present_value(mark).numpy()


def _checksum(variable: Thing) -> tf.Tensor:
    return checksum(tf.convert_to_tensor(variable))

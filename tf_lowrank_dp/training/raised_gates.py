"""Variables that a traced model reads and nobody trains, with values that they may have later.

A callback may raise the weight of a term from 0, a step counter opens it after a warm-up, a flag
switches it on: no new trace is made, so nobody looks again.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import tensorflow as tf
from tensorflow.types.experimental import ConcreteFunction

_MOST = 4096  # elements: weights of terms and of layers' outputs, not those of frozen layers
_COUNTED = (101, 10_000, 999_999)  # values of a counter, odd and even, one after the other
_SCALES = (1.0, 1e3, -1.0)  # of single floating-point values, beside these


def with_raised_gates(traced: ConcreteFunction, generator: np.random.Generator) -> Iterator[None]:
    """Yields while a function reads other values of the variables that it captures.

    Floating-point ones between 0.5 and 1.5; then single ones a thousandfold and negative as well,
    beside counters at 101, 10,000 and 999,999 and flags exchanged.

    Args:
        traced: the function.  Its variables are left as they are.
        generator: draws the values.
    """
    present = list(traced.captured_inputs)
    read = {id(variable.handle): variable for variable in traced.graph.variables}
    found = [read[id(handle)] for handle in present if id(handle) in read]
    weights = [v for v in found if v.dtype.is_floating and 0 < _elements(v) <= _MOST]
    alone = [v for v in found if _elements(v) == 1]
    switches = [v for v in alone if v.dtype.is_integer or v.dtype.is_bool]
    raised = {id(v.handle): _between(v, generator) for v in weights}
    singles = {id(v.handle) for v in weights if _elements(v) == 1}
    rounds = [raised] if weights else []
    later = zip(_COUNTED, _SCALES, strict=True) if switches else [(0, s) for s in _SCALES[1:]]
    for count, scale in later if switches or singles else ():
        scaled = {k: scale * v if k in singles else v for k, v in raised.items()}
        rounds.append(scaled | {id(v.handle): _switched(v, count) for v in switches})
    try:
        for values in rounds:
            held = {key: tf.Variable(value) for key, value in values.items()}
            traced.set_external_captures(
                [held[id(old)].handle if id(old) in held else old for old in present]
            )
            yield
    finally:
        traced.set_external_captures(present)


def _elements(variable: tf.Variable) -> int:
    """Of those that grow it is not known: 0."""
    return variable.shape.num_elements() or 0


def _between(variable: tf.Variable, generator: np.random.Generator) -> tf.Tensor:
    return tf.cast(generator.uniform(0.5, 1.5, variable.shape), variable.dtype)


def _switched(variable: tf.Variable, count: int) -> tf.Tensor:
    if variable.dtype.is_bool:
        return tf.logical_not(variable)
    return tf.cast(tf.fill(variable.shape, min(count, variable.dtype.max)), variable.dtype)

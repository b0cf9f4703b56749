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
_LATE = 100  # of a counter


def with_raised_gates(traced: ConcreteFunction, generator: np.random.Generator) -> Iterator[None]:
    """Yields while a function reads other values of the variables that it captures.

    Floating-point ones between 0.5 and 1.5; then these beside counters at 100 and flags exchanged.

    Args:
        traced: the function.  Its variables are left as they are.
        generator: draws the values.
    """
    present = list(traced.captured_inputs)
    read = {id(variable.handle): variable for variable in traced.graph.variables}
    found = [read[id(handle)] for handle in present if id(handle) in read]
    weights = [v for v in found if v.dtype.is_floating and 0 < v.shape.num_elements() <= _MOST]
    switches = [v for v in found if v.shape.rank == 0 and (v.dtype.is_integer or v.dtype.is_bool)]
    raised = {id(v.handle): tf.Variable(_between(v, generator)) for v in weights}
    later = {id(v.handle): tf.Variable(_switched(v)) for v in switches}
    try:
        for values in [raised, raised | later] if switches else [raised] if weights else []:
            traced.set_external_captures(
                [values[id(old)].handle if id(old) in values else old for old in present]
            )
            yield
    finally:
        traced.set_external_captures(present)


def _between(variable: tf.Variable, generator: np.random.Generator) -> tf.Tensor:
    return tf.cast(generator.uniform(0.5, 1.5, variable.shape), variable.dtype)


def _switched(variable: tf.Variable) -> tf.Tensor:
    if variable.dtype.is_bool:
        return tf.logical_not(variable)
    return tf.cast(_LATE, variable.dtype)

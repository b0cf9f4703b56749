"""The end of `fit`: what an inner optimizer makes of weights when Keras has it finalize them."""

from __future__ import annotations

from collections.abc import Sequence

import keras
import tensorflow as tf

from tf_lowrank_dp._keras.compiled import trained_by
from tf_lowrank_dp._tensorflow import nodes_of
from tf_lowrank_dp.spending import SPENDING
from tf_lowrank_dp.tracing.writes import hands_to_python


def finalize(inner: keras.optimizers.Optimizer, variables: Sequence[keras.Variable]) -> None:
    """Has an inner optimizer finalize variables, by their averages for example.

    Guarantee: what it makes of them, and of its own variables, is known, where they are those that
    it trains.  What it reads besides, such as a private teacher or arrays, or computes in Python,
    is not: then they count as changed by others, as do variables of other models.

    Args:
        inner: a Keras optimizer.
        variables: any; Keras gives it the trained ones of the model.
    """
    SPENDING.check(variables)
    function = tf.function(lambda: inner.finalize_variable_values(variables), autograph=False)
    try:
        traced = function.get_concrete_function()
    except Exception:  # Python that needs values, which Keras allows: it runs as it is
        inner.finalize_variable_values(variables)
        return
    traced()
    trained = {id(variable) for variable in trained_by(inner)}
    own = {id(v.value.handle) for v in (*variables, *inner.variables)}
    if (
        trained.issuperset(map(id, variables))
        and own.issuperset(map(id, traced.captured_inputs))
        and not _has_data(traced.graph)
    ):
        SPENDING.see(variables)


def _has_data(graph: tf.Graph) -> bool:
    """Whether a graph holds arrays of floating-point numbers, or asks Python for any."""
    return any(
        hands_to_python(node.op) or (node.op == "Const" and _is_array(node.attr["value"].tensor))
        for node in nodes_of(graph)
    )


def _is_array(constant: object) -> bool:
    value = tf.make_ndarray(constant)
    return value.size > 1 and tf.as_dtype(value.dtype).is_floating

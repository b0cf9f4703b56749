"""The end of `fit`: what an inner optimizer makes of weights when Keras has it finalize them."""

from __future__ import annotations

from collections.abc import Sequence

import keras
import tensorflow as tf

from tf_lowrank_dp.spending import SPENDING


def finalize(inner: keras.optimizers.Optimizer, variables: Sequence[keras.Variable]) -> None:
    """Has an inner optimizer finalize variables, by their averages for example.

    Guarantee: what it makes of them, and of its own variables, is known.  What it reads besides,
    such as a private teacher, or computes in Python, is not: then they count as changed by others.

    Args:
        inner: a Keras optimizer.
        variables: trained ones of the model.
    """
    SPENDING.check(variables)
    function = tf.function(lambda: inner.finalize_variable_values(variables), autograph=False)
    try:
        graph = function.get_concrete_function()
    except Exception:  # Python that needs values, which Keras allows: it runs as it is
        inner.finalize_variable_values(variables)
        return
    graph()
    own = {id(v.value.handle) for v in (*variables, *inner.variables)}
    if own.issuperset(map(id, graph.captured_inputs)):
        SPENDING.see(variables)

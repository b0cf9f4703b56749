"""Values that variables have now, read so that a graph which is being traced learns nothing of it.

`numpy` and `tf.convert_to_tensor` are no such reads, not even inside of `tf.init_scope`: TensorFlow
takes the variable for one of the graph's, and a graph with a variable that no longer exists, such
as one of another model, ends with an error when it is called.
"""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf


def present_value(variable: Any) -> tf.Tensor:
    """The value that a variable has now, as an eager tensor.

    Args:
        variable: of Keras or TensorFlow; or a tensor, which is given back.

    Example:

    >>> counter = tf.Variable(1)
    >>> traced = tf.function(lambda: int(present_value(counter))).get_concrete_function()
    >>> traced.variables
    ()
    """
    held = variable.value if isinstance(variable, keras.Variable) else variable
    with tf.init_scope():
        if not hasattr(held, "handle"):
            return tf.convert_to_tensor(held)
        return tf.raw_ops.ReadVariableOp(resource=held.handle, dtype=held.dtype)


def handle_of(thing: Any) -> tf.Tensor | None:
    """The handle by which graphs know a Keras variable; None for anything else."""
    return getattr(thing.value, "handle", None) if isinstance(thing, keras.Variable) else None

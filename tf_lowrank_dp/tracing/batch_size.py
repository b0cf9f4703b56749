"""Is a number computed from how many examples there are?

Sizes of batches are needed for the shapes of tensors, and every example's loss may depend on them
there.  As a number, in a quotient or a condition, the size is one of all examples together.
"""

from __future__ import annotations

import tensorflow as tf

from tf_lowrank_dp.tracing.axis_rules import LENGTHS
from tf_lowrank_dp.tracing.random_draws import is_random

_SHAPES = ("Shape", "ShapeN", "Size")
_SAME_KIND = """
Add AddV2 Sub Mul FloorDiv FloorMod Maximum Minimum Neg Prod Sum Max Min Pack ConcatV2 Identity
ExpandDims Squeeze Reshape Cast BroadcastArgs
""".split()


_LENGTHS = {**LENGTHS, **dict.fromkeys(["Conv2DBackpropInput", "Conv3DBackpropInputV2"], [0])}


def is_used_as_number(graph: tf.Graph) -> bool:
    """Whether the number of examples goes into anything but shapes, positions and lengths.

    Args:
        graph: traced with an unknown number of examples, first in each input.

    Example:

    >>> def used(function):
    ...     traced = tf.function(function).get_concrete_function(tf.TensorSpec([None, 2]))
    ...     return is_used_as_number(traced.graph)
    >>> used(lambda x: x / tf.cast(tf.shape(x)[0], tf.float32))
    True
    >>> used(lambda x: tf.reshape(x, [tf.shape(x)[0], 1, 2]))
    False
    """
    holding: set[int] = set()
    for op in graph.get_operations():
        if op.type in _SHAPES:
            holding |= {
                id(output)
                for tensor, output in zip(op.inputs, op.outputs, strict=True)
                if _has_unknown_first(tensor, everywhere=op.type == "Size")
            }
            continue
        slots = [index for index, tensor in enumerate(op.inputs) if id(tensor) in holding]
        if not slots or _leaves_it_out(op):
            continue
        if op.type in ("Slice", "StridedSlice", "GatherV2") and slots == [0]:
            holding |= {id(output) for output in op.outputs}
        elif op.type in _SAME_KIND and all(output.dtype.is_integer for output in op.outputs):
            if not set(slots) <= set(_LENGTHS.get(op.type, ())):
                holding |= {id(output) for output in op.outputs}
        elif not (is_random(op.type) or set(slots) <= set(_LENGTHS.get(op.type, ()))):
            return True
    return False


def _has_unknown_first(tensor: tf.Tensor, everywhere: bool) -> bool:
    shape = tensor.shape
    if shape.rank is None:
        return True
    return None in (list(shape) if everywhere else list(shape)[:1])


def _leaves_it_out(op: tf.Operation) -> bool:
    """Whether an entry or part of a shape is taken that is not the first."""
    if op.type == "StridedSlice":
        begin, length = tf.get_static_value(op.inputs[1]), op.inputs[0].shape.num_elements()
        if begin is None or len(begin) != 1 or not length or op.get_attr("begin_mask"):
            return False
        return begin[0] % length > 0
    if op.type == "GatherV2":
        indices = tf.get_static_value(op.inputs[1])
        return indices is not None and (indices > 0).all()
    return False

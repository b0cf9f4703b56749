"""`tf.vectorized_map` that can be trusted."""

from __future__ import annotations

import logging
from collections.abc import Callable

import tensorflow as tf

from tf_lowrank_dp._tensorflow import elements_stay_apart, nodes_of
from tf_lowrank_dp._types import Nested

_ROWS = 32  # of a part
_VARIANT, _STRING = tf.variant.as_datatype_enum, tf.string.as_datatype_enum
_BEYOND = {  # XLA wants constant sizes, or has no such operation
    *("Bincount", "DenseBincount", "RaggedBincount", "DynamicPartition", "DynamicStitch"),
    *("RandomShuffle", "StatelessShuffle"),
    *("ImageProjectiveTransformV2", "ImageProjectiveTransformV3"),
    # Vectorised, numbers beyond their tables would be those of other elements.
    *(f"SparseSegment{name}{with_}" for name in ("Sum", "Mean", "SqrtN")
      for with_ in ("", "Grad", "GradV2", "WithNumSegments")),
}  # fmt: skip


def vectorized_map(function: Callable, elements: Nested) -> Nested:
    """`tf.vectorized_map` that does not log each operation for which it takes a loop.

    Guarantee: whatever an element holds, it changes the results of no other (see
    `elements_stay_apart`).
    """
    elements_stay_apart()
    logger = tf.get_logger()
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        return tf.vectorized_map(function, elements)
    finally:
        logger.setLevel(level)


def compiled_vectorized_map(
    function: Callable, elements: Nested, read: list[tf.Tensor] | None = None
) -> Nested:
    """`tf.vectorized_map(function, elements)`, compiled by XLA.

    TensorFlow's CPU kernels give wrong numbers, silently, for some vectorised products of a batched
    and an unbatched operand (seen in 2.21 for `keras.ops.einsum("abc,cde->abde", x, kernel)`);
    XLA's are right.  As it compiles once for each size, elements whose number is not known are
    taken in parts of one size.  A function with loops of its own, counts or texts, which XLA
    cannot compile, some only when vectorised, is mapped to one element after the other.

    Args:
        function: maps one element to nested tensors.
        elements: nested tensors with a common first axis.
        read: gets what the function reads besides its element, the same for all.

    Returns:
        The results, stacked along the first axis.
    """

    @tf.function(jit_compile=True, autograph=False)
    def mapped(elements: Nested) -> Nested:
        return vectorized_map(function, elements)

    leaves = tf.nest.flatten(elements)
    known = [leaf.shape[0] for leaf in leaves if leaf.shape[0] is not None]
    size = known[0] if known else _ROWS
    specs = tf.nest.map_structure(lambda t: tf.TensorSpec([size, *t.shape[1:]], t.dtype), elements)
    trace = mapped.get_concrete_function(specs)
    results = trace.structured_outputs
    if read is not None:
        read += [outside for outside, _ in trace.graph.captures]
    if _is_beyond_xla(trace.graph):
        signature = tf.nest.map_structure(lambda t: tf.TensorSpec(t.shape[1:], t.dtype), results)
        return tf.map_fn(function, elements, fn_output_signature=signature)
    if known:
        return mapped(elements)
    rows = tf.shape(leaves[0])[0]
    count = -(-rows // _ROWS)

    def parts(leaf: tf.Tensor) -> tf.Tensor:
        missing = [[0, count * _ROWS - rows]] + [[0, 0]] * (leaf.shape.rank - 1)
        return tf.reshape(tf.pad(leaf, missing), tf.concat([[count, _ROWS], tf.shape(leaf)[1:]], 0))

    def joined(leaf: tf.Tensor) -> tf.Tensor:
        return tf.reshape(leaf, tf.concat([[-1], tf.shape(leaf)[2:]], 0))[:rows]

    split = tf.nest.map_structure(parts, elements)
    signature = tf.nest.map_structure(lambda t: tf.TensorSpec(t.shape, t.dtype), results)
    found = tf.map_fn(mapped, split, fn_output_signature=signature, parallel_iterations=1)
    return tf.nest.map_structure(joined, found)


def _is_beyond_xla(graph: tf.Graph) -> bool:
    """Whether it counts, holds texts, or vectorises loops, whose gradients keep lists of lists."""
    return any(
        node.op in _BEYOND
        or (node.op == "TensorListReserve" and node.attr["element_dtype"].type == _VARIANT)
        or any(attribute.type == _STRING for attribute in node.attr.values())
        for node in nodes_of(graph)
    )

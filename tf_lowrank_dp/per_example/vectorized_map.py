"""`tf.vectorized_map` that can be trusted."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from tf_lowrank_dp._types import Nested

_ROWS = 32  # of a part


def compiled_vectorized_map(function: Callable, elements: Nested) -> Nested:
    """`tf.vectorized_map(function, elements)`, compiled by XLA.

    TensorFlow's CPU kernels give wrong numbers, silently, for some vectorised products of a batched
    and an unbatched operand (seen in 2.21 for `keras.ops.einsum("abc,cde->abde", x, kernel)`);
    XLA's are right.  As it compiles once for each size, elements whose number is not known are
    taken in parts of one size.

    Args:
        function: maps one element to nested tensors.
        elements: nested tensors with a common first axis.

    Returns:
        The results, stacked along the first axis.
    """

    @tf.function(jit_compile=True, autograph=False)
    def mapped(elements: Nested) -> Nested:
        return tf.vectorized_map(function, elements)

    leaves = tf.nest.flatten(elements)
    if any(leaf.shape[0] is not None for leaf in leaves):
        return mapped(elements)
    rows = tf.shape(leaves[0])[0]
    count = -(-rows // _ROWS)

    def parts(leaf: tf.Tensor) -> tf.Tensor:
        missing = [[0, count * _ROWS - rows]] + [[0, 0]] * (leaf.shape.rank - 1)
        return tf.reshape(tf.pad(leaf, missing), tf.concat([[count, _ROWS], tf.shape(leaf)[1:]], 0))

    def joined(leaf: tf.Tensor) -> tf.Tensor:
        return tf.reshape(leaf, tf.concat([[-1], tf.shape(leaf)[2:]], 0))[:rows]

    split = tf.nest.map_structure(parts, elements)
    first = tf.nest.map_structure(lambda t: tf.TensorSpec([_ROWS, *t.shape[1:]], t.dtype), elements)
    results = mapped.get_concrete_function(first).structured_outputs
    signature = tf.nest.map_structure(lambda t: tf.TensorSpec(t.shape, t.dtype), results)
    found = tf.map_fn(mapped, split, fn_output_signature=signature, parallel_iterations=1)
    return tf.nest.map_structure(joined, found)

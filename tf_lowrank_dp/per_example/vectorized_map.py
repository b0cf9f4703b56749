"""`tf.vectorized_map` that can be trusted."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from tf_lowrank_dp._types import Nested


def compiled_vectorized_map(function: Callable, elements: Nested) -> Nested:
    """`tf.vectorized_map(function, elements)`, compiled by XLA.

    TensorFlow's CPU kernels give wrong numbers, silently, for some vectorised products of a batched
    and an unbatched operand (seen in 2.21 for `keras.ops.einsum("abc,cde->abde", x, kernel)`);
    XLA's are right.

    Args:
        function: maps one element to nested tensors.
        elements: nested tensors with a common first axis.

    Returns:
        The results, stacked along the first axis.
    """

    @tf.function(jit_compile=True, autograph=False)
    def mapped(elements: Nested) -> Nested:
        return tf.vectorized_map(function, elements)

    return mapped(elements)

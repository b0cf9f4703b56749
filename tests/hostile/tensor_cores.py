"""A machine whose products of float32 matrices are those of tensor cores, made of a CPU.

TensorFloat-32 keeps 10 bits behind the leading one.  Which of two numbers an operand becomes is the
kernel's business: here they take turns, so that no two products agree by chance.
"""

import contextlib
import itertools
from unittest import mock

import numpy as np
import tensorflow as tf
from tensorflow.python.ops import gen_linalg_ops, gen_math_ops, gen_nn_ops

from benchmarks.speed.gpu.export import as_with_a_gpu

DROPPED = 13  # bits of float32 that TensorFloat-32 lacks
OPERANDS = {
    (gen_math_ops, "mat_mul"): 2,
    (gen_math_ops, "batch_mat_mul"): 2,
    (gen_math_ops, "batch_mat_mul_v2"): 2,
    (gen_math_ops, "batch_mat_mul_v3"): 2,
    (gen_nn_ops, "conv2d"): 2,
    (gen_nn_ops, "conv3d"): 2,
}
"""Operations of TensorFlow whose first arguments are multiplied."""


def cut(values):
    """float32 towards zero."""
    return (np.asarray(values, np.float32).view(np.int32) & -(1 << DROPPED)).view(np.float32)


def _cut(tensor):
    bits = tf.bitwise.bitwise_and(tf.bitcast(tensor, tf.int32), -(1 << DROPPED))
    return tf.bitcast(bits, tf.float32)


def _nearest(tensor):
    bits = tf.bitcast(tensor, tf.int32) + (1 << (DROPPED - 1))
    rounded = tf.bitwise.bitwise_and(bits, -(1 << DROPPED))
    return tf.where(tf.math.is_finite(tensor), tf.bitcast(rounded, tf.float32), tensor)


@contextlib.contextmanager
def tensor_cores():
    """Context in which TensorFlow sees a GPU, and what is traced multiplies as tensor cores do."""
    ways = itertools.cycle([_cut, _nearest, _nearest, _cut, _nearest])

    def operand(tensor):
        tensor = tf.convert_to_tensor(tensor)
        # Within the kernel: the gradient of the product is that by its operands.
        way = tf.grad_pass_through(next(ways))
        return way(tensor) if tensor.dtype == tf.float32 else tensor

    def multiplied(original, count):
        def product(*args, **kwargs):
            rounded = [operand(argument) for argument in args[:count]]
            for name in ("x", "y", "a", "b", "input", "filter"):
                if name in kwargs:
                    kwargs[name] = operand(kwargs[name])
            return original(*rounded, *args[count:], **kwargs)

        return product

    def einsum(original):
        def product(inputs, *args, **kwargs):
            return original([operand(tensor) for tensor in inputs], *args, **kwargs)

        return product

    with contextlib.ExitStack() as stack:
        for (module, name), count in OPERANDS.items():
            original = getattr(module, name)
            stack.enter_context(mock.patch.object(module, name, multiplied(original, count)))
        original = gen_linalg_ops.einsum
        stack.enter_context(mock.patch.object(gen_linalg_ops, "einsum", einsum(original)))
        stack.enter_context(as_with_a_gpu())
        yield

"""Views of activations as `(b, t, features)`, the shape in which per-example algebra is written."""

from __future__ import annotations

import math

import tensorflow as tf

from tf_lowrank_dp.per_example.materialized import Materialized


def positions(tensor: tf.Tensor) -> tf.Tensor:
    """Joins the axes between the first and the last: `(b, ..., f)` to `(b, t, f)`.

    Example:

    >>> positions(tf.ones((4, 3, 2, 5))).shape, positions(tf.ones((4, 5))).shape
    (TensorShape([4, 6, 5]), TensorShape([4, 1, 5]))
    """
    if tensor.shape.rank == 3:
        return tensor
    each = tensor.shape[1:]
    if each.is_fully_defined() and math.prod(each):  # one constant shape: traced many times
        return tf.reshape(tensor, [-1, math.prod(each[:-1]), each[-1]])
    dynamic = tf.shape(tensor)
    return tf.reshape(tensor, [dynamic[0], tf.reduce_prod(dynamic[1:-1]), each[-1]])


def broadcast_gradient(d: tf.Tensor, shape: tuple[int, ...]) -> Materialized:
    """Per-example gradient of a variable that was broadcast (added) to a tensor.

    Args:
        d: gradient with respect to the sum, `(b, ...)`.
        shape: the variable's shape, aligned with the last axes of `d`, as in numpy broadcasting;
            it must not reach the example axis.

    Example:

    >>> broadcast_gradient(tf.ones((2, 7, 3)), (3,)).materialize().numpy().tolist()
    [[7.0, 7.0, 7.0], [7.0, 7.0, 7.0]]
    """
    d = tf.cast(d, tf.float32)
    aligned = (1,) * (d.shape.rank - len(shape)) + tuple(shape)
    summed = [axis for axis in range(1, d.shape.rank) if aligned[axis] == 1]
    d = tf.reduce_sum(d, axis=summed) if summed else d
    return Materialized(tf.reshape(d, [-1, *shape]) if d.shape[1:] != tuple(shape) else d)


def with_examples_of(d: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
    """Repeats an input that all examples share, `(1, ...)`, once for each example of `d (b, ...)`.

    Layers are called on tensors without examples as well, such as the numbers of the positions.

    Example:

    >>> with_examples_of(d=tf.ones((6, 2)), x=tf.ones((1, 4))).shape
    TensorShape([6, 4])
    """
    if x.shape[0] != 1 or d.shape[0] == 1:
        return x
    return tf.broadcast_to(x, tf.concat([tf.shape(d)[:1], tf.shape(x)[1:]], 0))


def shared_by_examples(x: tf.Tensor, rank: int) -> tf.Tensor:
    """An input without an axis of examples, of fewer than `rank` axes, gets one of length 1.

    Example:

    >>> shared_by_examples(tf.range(4), rank=2).shape
    TensorShape([1, 4])
    """
    return x[None] if x.shape.rank < rank else x

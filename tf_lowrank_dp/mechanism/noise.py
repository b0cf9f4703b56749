"""Gaussian noise from a counter-based generator."""

from __future__ import annotations

import math
from collections.abc import Sequence

import tensorflow as tf

from tf_lowrank_dp.mechanism.threefry import threefry, words
from tf_lowrank_dp.tracing.secret_stream import SecretStream

_AT_ONCE = 2**22  # numbers: bounds the memory of intermediate results
_BLOCK = 2**11  # pairs: draws are rounded up, so that small models share what is compiled


class NoiseGenerator(SecretStream):
    """Standard normal tensors, fresh at every draw.

    Formal guarantee: those of `SecretStream`, and each element of a draw has a counter range of its
    own, so no number is used twice.

    Threefry is not a cryptographic generator and normals are rounded to float32: attacks on either
    are outside the guarantee.  Tails reach 7.5 deviations, see `normals_of_bits`.
    """

    def normal(self, shapes: Sequence[tuple[int, ...]]) -> list[tf.Tensor]:
        """Independent standard normal float32 tensors, one for each shape."""
        key, draw = self._key.read_value()[0], self.next_draw()
        sizes = [math.prod(shape) for shape in shapes]
        tensors, used, first = [], 0, 0
        while first < len(sizes):
            last = first + 1
            while last < len(sizes) and sum(sizes[first : last + 1]) <= _AT_ONCE:
                last += 1
            size = sum(sizes[first:last])
            pairs = -(-size // (2 * _BLOCK)) * _BLOCK
            flat = _normals(key, draw, tf.constant(used, tf.uint32), pairs)[:size]
            parts = tf.split(flat, sizes[first:last])
            tensors += [tf.reshape(t, s) for t, s in zip(parts, shapes[first:last], strict=True)]
            used, first = used + pairs, last
        return tensors


@tf.function(jit_compile=True, autograph=False)
def _normals(key: tf.Tensor, draw: tf.Tensor, used: tf.Tensor, pairs: int) -> tf.Tensor:
    """Standard normal numbers, float32 `(2 pairs,)`.

    The counter is the number of the pair within the draw, counted from the lower half of the number
    of the draw, and that half itself; the other half changes the key.  So no two pairs of one
    secret key have key and counter in common.  Counters that began at 0 would be constants, which
    TensorFlow writes into a step that is compiled whole: 4 bytes for each pair.

    XLA makes two loops of it, of the bits and of the numbers; stacked, the bits are not computed
    anew for cosine and sine.  All arguments are unsigned, as functions have their int32 arguments
    in the host's memory, on a GPU too.

    Args:
        key: uint64, of the stream.
        draw: uint64, of this draw alone.
        used: uint32, pairs of this draw that others have; with these at most 2^32.
        pairs: how many.
    """
    (first, second), (low, high) = words(key), words(draw)
    blocks = tf.range(0, pairs, _BLOCK), tf.range(_BLOCK)
    begin, within = (tf.bitcast(numbers, tf.uint32) for numbers in blocks)
    number = (begin + used + low)[:, None] + within
    bits = threefry((first, second ^ high), (number, low))
    return tf.reshape(tf.stack(normals_of_bits(tf.stack(bits))), [-1])


def normals_of_bits(bits: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Standard normal numbers from random bits, by Box and Muller's method.

    `r = sqrt(-2 ln u)` and an angle give two numbers.  `u` has 40 bits: 32 of the first integer
    and the low 8 of the second, whose other 24 are the angle, as many as float32 holds.  The sign
    of the first integer tells whether the others are `u`, below a half, or `1 - u`: neither end is
    rounded, so `r` lies between `2^-20` and `sqrt(82 ln 2) = 7.5`, and no number is zero.

    TensorFlow's own kernel makes `u` of 23 bits and ends at 5.7.  A record spread over `p` numbers
    would then, with a probability of up to `sqrt(p) pdf(5.7) / z = 4e-8 sqrt(p) / z` a step, move
    some noisy sum to where its neighbour's can never be, and no delta accounts for that.  Here
    it is `2e-13 sqrt(p) / z`.

    Args:
        bits: uint32 `(2, n)`, independent and uniform over all values.

    Returns:
        Cosines and sines times the radius, float32 `(n,)` each.
    """
    first, second = tf.unstack(tf.bitcast(bits, tf.int32))
    low = tf.cast(tf.bitwise.bitwise_and(second, 255), tf.float32)
    bits_of_u = tf.cast(first, tf.float32) + (low * 2.0**-8 + 2.0**-9)
    half = tf.abs(bits_of_u) * 2.0**-32
    radius = tf.sqrt(-2.0 * _log_either(half, first < 0))
    cosine, sine = _on_circle(tf.bitwise.right_shift(second, 8))
    return radius * cosine, radius * sine


def _log_either(half: tf.Tensor, as_it_is: tf.Tensor) -> tf.Tensor:
    """`log(half)`, or `log(1 - half)`, both to float32's relative precision.

    One logarithm for both: `log(1 - h)` is that of the rounded `1 - h`, times what `h` is of the
    rounded distance to 1 (Kahan).  With XLA's `log1p` beside `log` all numbers would take a
    third longer.

    Args:
        half: float32, more than 0 and at most a half.
        as_it_is: bool, where `log(half)` is asked for.
    """
    logarithm = tf.math.log(tf.where(as_it_is, half, 1.0 - half))
    distance = 1.0 - (1.0 - half)
    other = tf.where(distance > 0.0, logarithm * (half / distance), -half)
    return tf.where(as_it_is, logarithm, other)


def _on_circle(steps: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Cosine and sine of `(steps + 1/2) 2 pi / 2^24 - pi / 4`, within 2e-7.

    Two bits choose the quarter of the circle; the others the angle in it, at most `pi / 4` from its
    middle, where a few terms of the series suffice.  XLA's own functions, made for any angle, take
    three times as long.

    Args:
        steps: int32; the low 24 bits count.
    """
    quarter = tf.bitwise.bitwise_and(tf.bitwise.right_shift(steps, 22), 3)
    within = tf.cast(tf.bitwise.bitwise_and(steps, 2**22 - 1), tf.float32)
    angle = (within + (0.5 - 2.0**21)) * (math.pi * 2.0**-23)
    square = angle * angle
    sine = angle * (1 - square / 6 * (1 - square / 20 * (1 - square / 42 * (1 - square / 72))))
    cosine = 1 - square / 2 * (1 - square / 12 * (1 - square / 30 * (1 - square / 56)))
    odd = tf.bitwise.bitwise_and(quarter, 1) == 1
    sign = tf.where(quarter >= 2, -1.0, 1.0)
    return tf.where(odd, -sine, cosine) * sign, tf.where(odd, cosine, sine) * sign

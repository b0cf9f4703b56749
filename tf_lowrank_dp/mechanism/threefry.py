"""Random bits from a key and a counter: Threefry-2x32 with 20 rounds (Salmon et al. 2011).

Additions, rotations and exclusive ors, which XLA makes one vectorised loop of on any device.
"""

from __future__ import annotations

import functools

import tensorflow as tf

Words = tuple[tf.Tensor, tf.Tensor]

_PARITY = 0x1BD11BDA
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def threefry(key: Words, counter: Words) -> Words:
    """64 random bits for each counter.

    Formal guarantee: under one key it is a permutation, so different counters give different bits.

    Args:
        key: two uint32, scalars.
        counter: two uint32 of shapes that broadcast.

    Returns:
        Two uint32 of the broadcast shape.

    Example:

    >>> zero = tf.zeros((), tf.uint32)
    >>> [hex(word.numpy()) for word in threefry((zero, zero), (zero, zero))]
    ['0x6b200159', '0x99ba4efe']
    """
    keys = (*key, key[0] ^ key[1] ^ _word(_PARITY))
    distances = {n: (_word(n), _word(32 - n)) for each in _ROTATIONS for n in each}
    first, second = counter[0] + keys[0], counter[1] + keys[1]
    for injection in range(1, 6):
        for distance in _ROTATIONS[(injection - 1) % 2]:
            first += second
            second = _rotated(second, *distances[distance]) ^ first
        first += keys[injection % 3]
        second += keys[(injection + 1) % 3] + _word(injection)
    return first, second


def words(number: tf.Tensor) -> Words:
    """The two uint32 of a uint64, the lower one first."""
    low, high = tf.unstack(tf.bitcast(number, tf.int32), axis=-1)  # of which GPUs have kernels
    return tf.bitcast(low, tf.uint32), tf.bitcast(high, tf.uint32)


def _rotated(word: tf.Tensor, left: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
    return tf.bitwise.left_shift(word, left) | tf.bitwise.right_shift(word, right)


_word = functools.partial(tf.constant, dtype=tf.uint32)

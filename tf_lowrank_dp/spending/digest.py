"""Digests that tell whether the values of variables have changed, or are those of a file.

The former are compared within one process only, and keyed anew for each.
"""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import tensorflow as tf

from tf_lowrank_dp.spending.present import present_value

_KEY = os.urandom(16)
FIXED_KEY = bytes(16)
"""For digests in files, beside the values themselves."""
_ON_HOST = 1 << 18  # values; XLA takes longer to compile than BLAKE2 to read so few
_ON_HOST_IN_FILES = 1 << 16  # part of the format
_WORTH_THREADS = 1 << 19  # values; to start two takes as long as BLAKE2 takes for these
_UNROLLED = 8  # sums side by side, for vector instructions; twice as many do not fit in registers


def digests(variables: Sequence, key: bytes = _KEY) -> list[bytes]:
    """A digest of the bits of each variable, in their order.

    Large variables are read on their device, once, by one loop of XLA that mixes each 32-bit word
    with its position and the key and adds the results up in two lanes: 64 bits.  Nobody who
    does not know the key can choose values that collide; others collide once in 2^64.  Variables
    of up to 262,144 values are read on the host by BLAKE2; of up to 65,536 for those in files.

    Args:
        variables: Keras or TensorFlow variables of any shape and dtype.
        key: 16 bytes; by default those of this process, which nobody knows.

    Returns:
        16 bytes each for small variables, 8 for large ones.

    Example:

    >>> one, two = digests([tf.Variable([1.0, 2.0]), tf.Variable([2.0, 1.0])])
    >>> one == two
    False
    """
    values = [present_value(variable) for variable in variables]
    digest = functools.partial(_digest, key=key)
    if sum(value.shape.num_elements() for value in values) < _WORTH_THREADS:
        with tf.init_scope():  # a step may be traced
            return list(map(digest, values))
    with ThreadPoolExecutor() as threads:  # XLA's loops have one each, and no graph is traced there
        return list(threads.map(digest, values))


def checksum(value: tf.Tensor) -> tf.Tensor:
    """A sum over the bits of a tensor, int64, as a graph computes it beside each of its updates.

    Each word is mixed with its place and the key of this process, so that other signs, scales and
    places are noticed as other values are: another value has the same sum once in 2^32.
    """
    words = _words(value)
    places = tf.cast(tf.range(words.shape[0]), tf.uint32)
    lane, _ = _mixed(words, places, tf.constant(np.frombuffer(_KEY[:8], np.uint32)))
    return tf.cast(tf.reduce_sum(lane), tf.int64)


def _digest(value: tf.Tensor, key: bytes) -> bytes:
    if value.shape.num_elements() > (_ON_HOST_IN_FILES if key == FIXED_KEY else _ON_HOST):
        return _lanes(value, tf.constant(np.frombuffer(key[:8], np.uint32))).numpy().tobytes()
    array = np.ascontiguousarray(value.numpy())
    return hashlib.blake2b(array.tobytes(), key=key, digest_size=16).digest()


@tf.function(jit_compile=True, autograph=False)
def _lanes(value: tf.Tensor, key: tf.Tensor) -> tf.Tensor:
    """Two sums of mixed words, uint32 `(2,)`, of a tensor of more than `_UNROLLED` words."""
    words = _words(value)
    size = words.shape[0] // _UNROLLED
    index_type = tf.int32 if words.shape[0] < 1 << 31 else tf.int64
    positions = tf.cast(tf.range(words.shape[0], dtype=index_type), tf.uint32)
    rest = slice(_UNROLLED * size, None)
    sums = _mixed(words[rest], positions[rest], key)
    totals = [tf.reduce_sum(lane) for lane in sums]
    columns: Sequence[tf.Tensor] = []
    for index in range(_UNROLLED):
        part = slice(index * size, (index + 1) * size)
        lanes = _mixed(words[part], positions[part], key)
        columns = [a + b for a, b in zip(columns, lanes, strict=True)] if columns else lanes
    return tf.stack([a + tf.reduce_sum(b) for a, b in zip(totals, columns, strict=True)])


def _words(value: tf.Tensor) -> tf.Tensor:
    """The bits of a tensor as uint32 `(words,)`; small types are widened."""
    value = tf.reshape(value, [-1])
    if value.dtype == tf.bool:
        return tf.cast(value, tf.uint32)
    kind = {1: tf.uint8, 2: tf.uint16}.get(value.dtype.size, tf.uint32)
    return tf.cast(tf.reshape(tf.bitcast(value, kind), [-1]), tf.uint32)


def _mixed(words: tf.Tensor, positions: tf.Tensor, key: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Words mixed with their positions and the key, in two ways: multiply, shift, exclusive or."""
    lane = (words ^ key[0]) + positions * np.uint32(0x9E3779B1)
    lane = _folded(lane * np.uint32(0x7FEB352D), 15)
    lane = _folded(lane * np.uint32(0x846CA68B) + positions, 16)
    return lane, _folded((lane + key[1]) * np.uint32(0x21F0AAAD), 15)


def _folded(words: tf.Tensor, bits: int) -> tf.Tensor:
    return words ^ tf.bitwise.right_shift(words, tf.constant(bits, tf.uint32))

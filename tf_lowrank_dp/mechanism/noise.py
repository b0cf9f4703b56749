"""Gaussian noise from a counter-based generator."""

from __future__ import annotations

import os
import secrets
import weakref
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

_GENERATORS: weakref.WeakSet[NoiseGenerator] = weakref.WeakSet()
_PHILOX = 1  # tf.random.Algorithm.PHILOX; XLA's default on CPU is 40 times slower


class NoiseGenerator:
    """Standard normal tensors, fresh at every draw.

    Formal guarantees:

    * the key comes from the operating system's entropy when the generator is made, and again
      after `rekey`, a copy, or a fork of the process; with an explicit `seed` (tests,
      reproducibility) it does not and the run is not private;
    * no two draws under one key use the same counters: the counter only grows, is never saved
      or restored, and each element of a draw has a counter range of its own;
    * key and counter appear in no config, checkpoint, log or repr.

    Philox is not a cryptographic generator and normals are rounded to float32: attacks on either
    are outside the guarantee.

    Args:
        seed: integer key for a reproducible, hence not private, run.
    """

    def __init__(self, seed: int | None = None):
        self._seed = seed
        with tf.init_scope():
            self._key = tf.Variable(tf.zeros([1], tf.uint64), trainable=False)
            self._draws = tf.Variable(0, dtype=tf.int64, trainable=False)
        self.rekey()
        _GENERATORS.add(self)

    def rekey(self) -> None:
        """Takes a fresh key from the operating system (keeps it where a `seed` was given)."""
        key = secrets.randbits(64) if self._seed is None else self._seed % 2**64
        self._key.assign(np.array([key], np.uint64))

    def normal(self, shapes: Sequence[tuple[int, ...]]) -> list[tf.Tensor]:
        """Independent standard normal float32 tensors, one for each shape."""
        draw = tf.cast(self._draws.assign_add(1), tf.uint64)
        tensors, offset = [], 0
        for shape in shapes:
            counter = tf.stack([tf.constant(offset, tf.uint64), draw])
            tensors.append(
                tf.raw_ops.StatelessRandomNormalV2(
                    shape=tf.constant(shape, tf.int32), key=self._key, counter=counter, alg=_PHILOX
                )
            )
            offset += int(np.prod(shape, dtype=np.int64)) + 256
        return tensors

    def __repr__(self) -> str:
        return f"NoiseGenerator(seeded={self._seed is not None})"

    def __deepcopy__(self, memo) -> NoiseGenerator:
        return NoiseGenerator(self._seed)

    def __reduce__(self):
        return NoiseGenerator, (self._seed,)


def _rekey_all() -> None:
    for generator in list(_GENERATORS):
        generator.rekey()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_rekey_all)

"""A key that nobody knows and a counter that only grows."""

from __future__ import annotations

import hashlib
import os
import secrets
import weakref

import numpy as np
import tensorflow as tf

PHILOX = 1  # tf.random.Algorithm.PHILOX; XLA's default on CPU is 40 times slower
_STREAMS: weakref.WeakSet[SecretStream] = weakref.WeakSet()


class SecretStream:
    """Keys and counters for counter-based generators; no two draws get the same pair.

    Formal guarantees:

    * the key has 64 bits of the operating system's entropy, taken when the stream is made, and
      again after `rekey`, a copy, or a fork of the process; with an explicit `seed` (tests,
      reproducibility) it follows from that and the run is not private;
    * no two draws under one key use the same counters: the counter only grows, one draw at a time
      in loops and threads as well, and is never saved or restored;
    * key and counter appear in no config, checkpoint, log or repr.

    Args:
        seed: integer for a reproducible, hence not private, run.
        purpose: tells the keys of streams with the same seed apart.
    """

    def __init__(self, seed: int | None = None, purpose: str = "noise"):
        self._seed = None if seed is None else int(seed)
        self._purpose = purpose
        with tf.init_scope():
            self._key = tf.Variable(tf.zeros([1], tf.uint64), trainable=False)
            self._draws = tf.Variable(tf.zeros([3], tf.int64), trainable=False)
        self.rekey()
        _STREAMS.add(self)

    def rekey(self) -> None:
        """Takes a fresh key from the operating system (keeps it where a `seed` was given)."""
        key = secrets.randbits(64) if self._seed is None else self._seeded_key()
        self._key.assign(np.array([key], np.uint64))

    def key_and_counter(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Philox's key, uint64 `(1,)`, and counter, uint64 `(2,)`, of a new draw.

        The counter's first number, 0 here, counts the blocks within the draw.
        """
        return self._key.read_value(), tf.stack([tf.constant(0, tf.uint64), self.next_draw()])

    def owns(self, resource: tf.Tensor) -> bool:
        """Whether a resource is the counter of this stream."""
        return resource is self._draws.handle

    def next_draw(self) -> tf.Tensor:
        """A uint64 number that no other draw gets: read and advanced as one operation."""
        one = tf.constant(1, tf.uint64)
        state = tf.raw_ops.RngReadAndSkip(resource=self._draws.handle, alg=PHILOX, delta=one)
        return tf.bitcast(state[0], tf.uint64)

    def _seeded_key(self) -> int:
        digest = hashlib.sha256(f"{self._purpose} {self._seed}".encode()).digest()
        return int.from_bytes(digest[:8], "little")

    def __repr__(self) -> str:
        return f"{type(self).__name__}(seeded={self._seed is not None})"

    def __deepcopy__(self, memo: dict) -> SecretStream:
        return type(self)(self._seed, self._purpose)

    def __reduce__(self) -> tuple:
        return type(self), (self._seed, self._purpose)


def _rekey_all() -> None:
    for stream in list(_STREAMS):
        stream.rekey()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_rekey_all)

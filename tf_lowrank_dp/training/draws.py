"""Each release of a custom loop takes a draw of its own, drawn as it is accounted."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import tensorflow as tf

from tf_lowrank_dp.accounting import Sampling
from tf_lowrank_dp.sampling import DRAW, PRESENCE

# Draws that had a release by any trainer, by the identity of their presence.
_RELEASED: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()

_USED = (
    "Expected a batch of its own for each call: a release is accounted as that of an independent "
    "draw. Received: a batch that had its release, by this or another trainer. Take the next batch "
    "of the sampler, for each of several models, do not cache its batches, and take them in their "
    "order; for larger models pass make_private(model, microbatch_size=...)."
)
_OTHER = (
    "Expected {0.kind} batches of {0.batch_size} examples at a rate of {0.sampling_rate}, as the "
    "trainer was told. Received: a batch of a PoissonSampler of other numbers, whose releases "
    "would be accounted wrongly. Take batches of the sampler that the trainer was made with."
)


class Draws:
    """Which draws one trainer has released, and what they must be draws of.

    Formal guarantee: of batches that say in `draw` which they are, none is released twice by one
    trainer, in graphs as well, and none of another size or rate; of others, no array twice by any.

    Args:
        sampling: as it is accounted.
    """

    def __init__(self, sampling: Sampling):
        self._sampling = sampling
        self._last = tf.Variable([-1, -1], trainable=False, dtype=tf.int64, name="last_draw")

    def check(self, batch: dict) -> None:
        """Refuses, in eager mode, a batch of another sampling, or one that had its release.

        Raises:
            RuntimeError: see there.
        """
        presence = batch[PRESENCE]
        if _RELEASED.get(id(presence)) is presence:
            raise RuntimeError(_USED)
        if DRAW not in batch:
            return
        examples, size, *number = np.asarray(batch[DRAW]).tolist()
        if [examples, size] != self._stated:
            raise RuntimeError(_OTHER.format(self._sampling))
        if number <= self._last.numpy().tolist():
            raise RuntimeError(_USED)

    def released(self, batch: dict) -> None:
        """Takes note, in eager mode, of a batch that is released."""
        _RELEASED[id(batch[PRESENCE])] = batch[PRESENCE]
        if DRAW in batch:
            self._last.assign(batch[DRAW][2:])

    def in_graph(self, batch: dict) -> list[tf.Operation]:
        """What fails in a graph where `check` would, and takes note of the batch."""
        if DRAW not in batch:
            return []
        draw = tf.convert_to_tensor(batch[DRAW])
        after = (draw[2] > self._last[0]) | ((draw[2] == self._last[0]) & (draw[3] > self._last[1]))
        stated = tf.constant(self._stated, tf.int64)
        checks = [
            tf.debugging.assert_equal(draw[:2], stated, _OTHER.format(self._sampling)),
            tf.debugging.assert_equal(after, True, _USED),
        ]
        with tf.control_dependencies(checks):
            return [self._last.assign(draw[2:])]

    @property
    def _stated(self) -> list[int]:
        """What batches say that they are drawn from; nothing that a `PoissonSampler` draws."""
        stated = self._sampling
        if stated.sampling_rate is None:
            return [-1, -1]
        examples = stated.num_examples or round(stated.batch_size / stated.sampling_rate)
        return [examples, stated.batch_size]

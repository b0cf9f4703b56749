"""Each release of a custom loop takes a draw of its own, drawn as it is accounted."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_lowrank_dp.accounting import Sampling
from tf_lowrank_dp.sampling import DRAW, PRESENCE
from tf_lowrank_dp.sampling.draw import PROCESS

Check = tuple[tf.Tensor, str]
"""Whether something holds, bool `()`, and the sentence if it does not."""

# Draws that had a release by any trainer, by the identity of their presence.
_RELEASED: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()

_USED = (
    "Expected a batch of its own for each call: a release is accounted as that of an independent "
    "draw. Received: a batch that had its release, by this or another trainer, or one that was "
    "drawn before it. Take the next batch of the sampler, for each of several models, do not cache "
    "its batches, and take them in their order; for larger models pass "
    "make_private(model, microbatch_size=...)."
)
_OTHER = (
    "Expected {0.kind} batches of {0.batch_size} examples at a rate of {0.sampling_rate}, as the "
    "trainer was told. Received: a batch of a PoissonSampler of other numbers, whose releases "
    "would be accounted wrongly. Take batches of the sampler that the trainer was made with."
)
_ELSEWHERE = (
    "Expected a batch that was drawn in this process. Received: one of another, which may have had "
    "its release there, such as one of a cache in a file. Take batches of the sampler as they are."
)
_ROWS = (
    "Expected the rows that were drawn. Received: a batch with more or fewer, such as several "
    "views of its rows, or several draws joined, in which one record would count several times. "
    "Put all views of a record into one row, and state a larger batch_size in the sampler."
)
_UNKNOWN = (
    "Expected batches of the sampler, which say in 'draw' which they are. Received: one without. "
    "Keep it where you change a batch, {**batch, 'x': ...}; or make the trainer with "
    "tfdp.accounting.Sampling, by which you state how your batches are drawn."
)


class Draws:
    """Which draws a model has released in custom loops, and what they must be draws of.

    Formal guarantee: of the batches of a sampler, none is released twice on one model, in graphs
    as well; none of another process, size or rate is, and none with another number of rows than
    were drawn.  Of other batches, no array is released twice, by any trainer, in eager mode.

    Args:
        sampling: as it is accounted.
        of_sampler: whether batches have to say which draws they are.
        last: int64 `(2,)`, the newest draw that the model has released.
    """

    def __init__(self, sampling: Sampling, of_sampler: bool, last: tf.Variable):
        self._sampling, self._of_sampler, self._last = sampling, of_sampler, last

    def refuse(self, batch: dict) -> None:
        """Refuses what is known before any number is: arrays that had their release.

        Raises:
            RuntimeError: see there.
        """
        if DRAW not in batch and self._of_sampler:
            raise RuntimeError(_UNKNOWN)
        presence = batch[PRESENCE]
        if tf.executing_eagerly() and _RELEASED.get(id(presence)) is presence:
            raise RuntimeError(_USED)

    def checks(self, batch: dict) -> list[Check]:
        """What has to hold of a batch that says which draw it is."""
        if DRAW not in batch:
            return []
        draw = tf.convert_to_tensor(batch[DRAW])
        *of, process, iteration, number, rows = tf.unstack(draw)
        examples, size = (tf.constant(n, tf.int64) for n in self._stated)
        newer = (iteration > self._last[0]) | (
            (iteration == self._last[0]) & (number > self._last[1])
        )
        return [
            ((of[0] == examples) & (of[1] == size), _OTHER.format(self._sampling)),
            (process == PROCESS, _ELSEWHERE),
            (rows == tf.shape(batch[PRESENCE], tf.int64)[0], _ROWS),
            (newer, _USED),
        ]

    def released(self, batch: dict) -> list[tf.Operation]:
        """Takes note of a batch; returns what does it in a graph."""
        if tf.executing_eagerly():
            _RELEASED[id(batch[PRESENCE])] = batch[PRESENCE]
        return [self._last.assign(batch[DRAW][3:5])] if DRAW in batch else []

    @property
    def _stated(self) -> list[int]:
        """What batches say that they are drawn from; nothing that a `PoissonSampler` draws."""
        stated = self._sampling
        if stated.sampling_rate is None:
            return [-1, -1]
        examples = stated.num_examples or round(stated.batch_size / stated.sampling_rate)
        return [examples, stated.batch_size]


def refuse_at_once(checks: Sequence[Check]) -> None:
    """Raises, in eager mode, the sentence of a check that does not hold.

    Raises:
        RuntimeError: with it.
    """
    for holds, sentence in checks:
        if not holds:
            raise RuntimeError(sentence)


def refuse_in_graph(checks: Sequence[Check]) -> list[tf.Operation]:
    """What fails in a graph where a check does not hold; nothing where XLA compiles it."""
    return [tf.debugging.assert_equal(holds, True, sentence) for holds, sentence in checks]


def withheld(tensors: Sequence[tf.Tensor], checks: Sequence[Check]) -> list[tf.Tensor]:
    """The tensors, or NaN instead of all where a check does not hold: XLA drops what would fail."""
    holds = tf.reduce_all([holds for holds, _ in checks]) if checks else tf.constant(True)
    return [tf.where(holds, tensor, float("nan")) for tensor in tensors]

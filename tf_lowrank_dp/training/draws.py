"""Each release of a custom loop takes a draw of its own, drawn as it is accounted."""

from __future__ import annotations

import functools
import math
import threading
import weakref
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_lowrank_dp.accounting import Sampling
from tf_lowrank_dp.sampling import DRAW, PRESENCE
from tf_lowrank_dp.sampling.draw import this_process

Check = tuple[tf.Tensor, str]
"""Whether something holds, bool `()`, and the sentence if it does not."""

# Arrays of batches that had a release by any trainer, by their identity.
_RELEASED: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
_LOCK = threading.Lock()
_SLOTS = 4096  # iterations of samplers that may be read side by side

_USED = (
    "Expected a batch of its own for each call: a release is accounted as that of an independent "
    "draw. Received: a batch that had its release, by this or another trainer, or one that was "
    "drawn before it. Take the next batch of the sampler, for each of several models, do not cache "
    "its batches, and take them in their order; of a buffer that you fill anew pass a copy; for "
    "larger models pass make_private(model, microbatch_size=...)."
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
_SEEDED = (
    "Expected batches whose draws nobody can repeat. Received: one of a PoissonSampler with a "
    "seed, which the trainer was not told of, so that no statement would say it. Make the trainer "
    "with this sampler, PrivateTrainer(model, sampler), or leave out its seed."
)
_ROWS = (
    "Expected the rows that were drawn. Received: a batch with more or fewer, such as several "
    "views of its rows, or several draws joined, in which one record would count several times. "
    "Put all views of a record into one row, and state a larger batch_size in the sampler."
)
_UNALIKE = (
    "Expected arrays of as many rows as `presence` has. Received: a batch with more or fewer in "
    "one, so that rows would be of other examples, or of none. Change the rows of all arrays "
    "alike; put several views of a record into one row."
)
_UNKNOWN = (
    "Expected batches of the sampler, which say in 'draw' which they are. Received: one without. "
    "Keep it where you change a batch, {**batch, 'x': ...}; or make the trainer with "
    "tfdp.accounting.Sampling, by which you state how your batches are drawn."
)


class Draws:
    """Which draws have been released in custom loops, and what they must be draws of.

    Formal guarantee: of the batches of a sampler, none is released twice in this process, on one
    model or on several, in graphs as well; none of another process, size or rate is, none of a seed
    that the trainer does not know, and none with another number of rows than were drawn.  Of any
    batch, none is released whose arrays have other numbers of rows than its presence.  (Two
    graphs that take one batch at the same moment, in two threads, may both release it.)  Of other
    batches, none is released twice with the same arrays, by any trainer, in eager mode: all but
    presence, or presence and another.  In passes over shuffled data, none of a pass in one run.

    Args:
        sampling: as it is accounted.
        of_sampler: whether batches have to say which draws they are.
        seeded: whether the ledger says that draws can be repeated.
        of_pass: arrays of the present pass that had their release.
    """

    def __init__(
        self,
        sampling: Sampling,
        of_sampler: bool,
        seeded: bool,
        of_pass: weakref.WeakValueDictionary,
    ):
        self._sampling, self._of_sampler, self._seeded = sampling, of_sampler, seeded
        # A pass over shuffled data counts for each model that learns from it: it needs no draw.
        self._had = of_pass if sampling.kind == "shuffle" else _RELEASED

    def refuse(self, batch: dict) -> None:
        """Refuses what is known before any number is: arrays that had their release.

        Raises:
            RuntimeError: see there.
        """
        if DRAW not in batch and self._of_sampler:
            raise RuntimeError(_UNKNOWN)
        if not tf.executing_eagerly() or self._sampling.sampling_rate == 1.0:
            return  # a full batch is the same at each step
        had = [self._had_release(array) for array in _arrays(batch)]
        presence_had = self._had_release(batch[PRESENCE])
        if (presence_had and (any(had) or not had)) or (had and all(had)):
            raise RuntimeError(_USED)

    def checks(self, batch: dict) -> list[Check]:
        """What has to hold of a batch: of its rows, and of the draw that it says it is."""
        present = tf.shape(batch[PRESENCE], tf.int64)[0]
        checks = [(tf.shape(leaf, tf.int64)[0] == present, _UNALIKE) for leaf in _arrays(batch)]
        if DRAW not in batch:
            return checks
        draw = tf.convert_to_tensor(batch[DRAW])
        *of, seeded, process, iteration, number, rows = tf.unstack(draw)
        examples, size = (tf.constant(n, tf.int64) for n in self._stated)
        last = tf.gather(released_draws(), iteration % _SLOTS)
        newer = (iteration > last[0]) | ((iteration == last[0]) & (number > last[1]))
        return [
            *checks,
            ((of[0] == examples) & (of[1] == size), _OTHER.format(self._sampling)),
            (process == this_process(), _ELSEWHERE),
            ((seeded == 0) | self._seeded, _SEEDED),
            (rows == present, _ROWS),
            (newer, _USED),
        ]

    def released(self, batch: dict, checks: Sequence[Check]) -> list[tf.Operation]:
        """Takes note of a batch of which the checks hold; returns what does it in a graph."""
        if tf.executing_eagerly():
            arrays = [batch[PRESENCE], *_arrays(batch)]
            kept = [array for array in arrays if type(array).__weakrefoffset__]
            self._had.update({id(array): array for array in kept})
        if DRAW not in batch:
            return []
        draw = tf.convert_to_tensor(batch[DRAW])[4:6]
        slot = draw[0] % _SLOTS
        # Where XLA drops errors, a batch that is refused must not move the memory back.
        kept = tf.where(all_hold(checks), draw, tf.gather(released_draws(), slot))
        return [released_draws().scatter_nd_update([[slot]], [kept])]

    def take(self, batch: dict) -> None:
        """Takes note of a batch in eager mode, unless it had its release: by another thread, say.

        Raises:
            RuntimeError: it had.
        """
        with _LOCK:
            self.refuse(batch)
            checks = self.checks(batch)
            refuse(checks)
            self.released(batch, checks)

    def _had_release(self, array: Any) -> bool:
        return self._had.get(id(array)) is array

    @property
    def _stated(self) -> list[int]:
        """What batches say that they are drawn from; nothing that a `PoissonSampler` draws."""
        rate, size = self._sampling.sampling_rate, self._sampling.batch_size
        examples = self._sampling.num_examples
        if rate is None or (examples and not math.isclose(rate, size / examples, rel_tol=1e-9)):
            return [-1, -1]
        return [examples or round(size / rate), size]


@functools.cache
def released_draws() -> tf.Variable:
    """Int64 `(slots, 2)`: iterations of samplers, and the newest draw of each with a release."""
    with tf.init_scope():
        return tf.Variable(tf.fill([_SLOTS, 2], tf.constant(-1, tf.int64)), trainable=False)


def _arrays(batch: dict) -> list:
    """All of a batch but its presence and its numbers."""
    rest = {key: part for key, part in batch.items() if key not in (PRESENCE, DRAW)}
    return tf.nest.flatten(rest)


def all_hold(checks: Sequence[Check]) -> tf.Tensor:
    """Whether all checks hold, boolean."""
    return tf.reduce_all([holds for holds, _ in checks]) if checks else tf.constant(True)


def refuse(checks: Sequence[Check]) -> list[tf.Operation]:
    """Raises, in eager mode, the sentence of a check that does not hold.

    Returns:
        What fails in a graph where one does not hold; nothing where XLA compiles it.

    Raises:
        RuntimeError: with the sentence.
    """
    if not tf.executing_eagerly():
        return [tf.debugging.assert_equal(holds, True, sentence) for holds, sentence in checks]
    for holds, sentence in checks:
        if not holds:
            raise RuntimeError(sentence)
    return []


def withheld(tensors: Sequence[tf.Tensor], checks: Sequence[Check]) -> list[tf.Tensor]:
    """The tensors, or NaN instead of all where a check does not hold: XLA drops what would fail."""
    holds = all_hold(checks)
    return [tf.where(holds, tensor, float("nan")) for tensor in tensors]

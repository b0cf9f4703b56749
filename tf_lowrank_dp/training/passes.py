"""Passes over shuffled data in a custom loop: they count as a whole, their batches once."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator

import tensorflow as tf

from tf_lowrank_dp.accounting import Sampling
from tf_lowrank_dp.training.draws import Check

_OUTSIDE = (
    "Expected a batch of trainer.one_pass(batches) for each call: a pass over shuffled data counts "
    "as it is begun, and each of its batches once. Received: one outside of a pass, or another "
    "view of a batch that had its release. Write `for batch in trainer.one_pass(batches)`, and put "
    "all views of an example into one batch."
)


class Passes:
    """The passes of one run, whichever trainers go through them.

    Formal guarantee: whatever is left out or walked side by side, in eager mode and in graphs, the
    releases counted are at least the batches of a pass times the passes that were begun, and no
    example has more releases than passes were begun.

    Args:
        sampling: as it is accounted; of other kinds than "shuffle" nothing is asked.
        steps: counter of the run's releases.

    Attributes:
        had: arrays of the present pass that had their release, by their identity.
    """

    def __init__(self, sampling: Sampling, steps: tf.Variable):
        self._sampling, self._steps = sampling, steps
        self.had: weakref.WeakValueDictionary = weakref.WeakValueDictionary()
        self._present: object | None = None
        self._begun = 0
        self._allowed = tf.Variable(0, dtype=tf.int64, trainable=False)

    def begin(self, batches: Iterable[dict]) -> Iterator[dict]:
        """See `PrivateTrainer.one_pass`."""
        length = self._sampling.steps_per_pass
        if length is None:
            raise ValueError(
                "Expected a trainer for shuffled data, Sampling.shuffle(...). Received: "
                f"{self._sampling.kind} sampling, which has no passes. Take batches from the "
                "sampler."
            )
        steps = self._steps
        # What was left out of passes before: of the last one, and of those without a release.
        steps.assign(tf.maximum(steps + -steps % length, self._begun * length))
        begun = self._present = object()
        self.had.clear()  # the next pass may take the same arrays again
        self._begun += 1
        try:
            for number, batch in enumerate(batches):
                if self._present is not begun:
                    raise RuntimeError(
                        "Expected one pass over shuffled data after the other. Received: another "
                        "batch of a pass after a later one had begun. Finish a pass before the "
                        "next; for several views of an example put them into one batch."
                    )
                if number == length:
                    raise ValueError(
                        f"Expected at most {length} batches, those of a pass. Received: more. Pass "
                        "one pass over the data, or state steps_per_pass in Sampling.shuffle."
                    )
                self._allowed.assign(steps + 1)
                yield batch
        finally:
            if self._present is begun:
                self._present = None
                self._allowed.assign(steps)

    def checks(self) -> list[Check]:
        """Whether the present batch of a pass has had no release."""
        if self._sampling.kind != "shuffle":
            return []
        return [(self._steps < self._allowed, _OUTSIDE)]

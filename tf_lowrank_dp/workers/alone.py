"""What training asks of the processes that train one model, and the answers of one alone."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TypeAlias

import tensorflow as tf

from tf_lowrank_dp._types import Nested

Sums: TypeAlias = list[list[tf.Tensor]]
Needed: TypeAlias = Sequence[Sequence[tf.Tensor | None]]
"""For each tensor of the sums zeros and ones that broadcast to it; None for all of it."""


class Workers:
    """The processes that train one model together; this class: one process, alone.

    Alone nothing is exchanged, and no collective operation is in any graph.

    Attributes:
        count: number of processes.
        index: of this one, from 0.

    Example:

    >>> Workers().alone, Workers().is_chief, Workers().gather("text")
    (True, True, ['text'])
    """

    count = 1
    index = 0

    @property
    def alone(self) -> bool:
        """Whether there is one process only."""
        return self.count == 1

    @property
    def is_chief(self) -> bool:
        """Whether this process draws the noise, chooses subspaces and writes files."""
        return self.index == 0

    @property
    def share(self) -> float:
        """The part of the rows that this process draws from, on average."""
        return 1.0 / self.count

    def added(
        self, sums: Sequence[Sequence[tf.Tensor]], sources: int, needed: Needed | None = None
    ) -> Sums:
        """The sums over all workers, the same bits on each of them.

        Args:
            sums: of this worker, in blocks.
            sources: how many times noise was added to them, here.
            needed: which numbers are sent, the same on all workers; others become zeros.
        """
        del sources, needed
        return [list(block) for block in sums]

    def of_chief(self, structure: Nested, purpose: str = "subspace") -> Nested:
        """The chief's tensors on every worker.

        Args:
            structure: tensors in lists, tuples, dicts, dataclasses, or in objects that are made
                again of their `tensors`; of the same shapes on all workers.
            purpose: what they are for; in one program, one name for each place.
        """
        del purpose
        return structure

    def gather(self, text: str) -> list[str]:
        """The texts of all workers, in their order."""
        return [text]

    def gather_numbers(self, *numbers: int) -> list[tuple[int, ...]]:
        """The same few integers of all workers, in their order."""
        return [numbers]

    def together(self) -> contextlib.AbstractContextManager:
        """Inside, what ends this worker's training by an error ends that of the others."""
        return contextlib.nullcontext()

    def __repr__(self) -> str:
        return f"<worker {self.index} of {self.count}>"


ALONE = Workers()

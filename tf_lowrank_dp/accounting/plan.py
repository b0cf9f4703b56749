"""A table of what a privacy budget asks for, before anything is trained."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tf_lowrank_dp import _validate
from tf_lowrank_dp.accounting.calibration import calibrate_noise_multiplier
from tf_lowrank_dp.accounting.sampling import steps_per_epoch


class PlanRow(NamedTuple):
    """One way to spend the budget with Poisson sampling.

    Attributes:
        batch_size: expected number of examples of a batch.
        epochs: number of epochs.
        steps: number of steps.
        noise_multiplier: the smallest that stays within the budget.

    Example:

    >>> PlanRow(batch_size=1_000, epochs=15, steps=900, noise_multiplier=1.0).noise
    0.001
    """

    batch_size: int
    epochs: int
    steps: int
    noise_multiplier: float

    @property
    def noise(self) -> float:
        """Deviation of the noise in each coordinate of a step's mean gradient, clip norm 1."""
        return self.noise_multiplier / self.batch_size

    @property
    def signal_to_noise(self) -> float:
        """The sum of all steps' gradients over that of their noise, for a gradient of norm 1.

        Signal adds up, noise by its square, so it is `sqrt(steps) / noise`; by coordinate.
        """
        return math.sqrt(self.steps) / self.noise


def plan(
    num_examples: int,
    epsilon: float,
    delta: float,
    *,
    batch_sizes: Iterable[int],
    epochs: Iterable[int],
    accountant: str = "pld",
) -> Iterator[PlanRow]:
    """Yields a row for each batch size that is no larger than the data, and each number of epochs.

    Args:
        num_examples: number of examples.
        epsilon: target epsilon, above 0.
        delta: target delta, in (0, 1).
        batch_sizes: expected numbers of examples of a batch.
        epochs: numbers of epochs.
        accountant: "pld" or "rdp".

    Raises:
        ValueError: an argument is out of its range.

    Example:

    >>> rows = plan(60_000, 3.0, 1e-5, batch_sizes=[600], epochs=[10], accountant="rdp")
    >>> [(row.steps, round(row.noise_multiplier, 2)) for row in rows]
    [(1000, 0.86)]
    """
    num_examples = _validate.integer_at_least(1, num_examples=num_examples)
    epochs = tuple(epochs)
    for batch_size in batch_sizes:
        if batch_size > num_examples:
            continue
        for count in epochs:
            noise_multiplier = calibrate_noise_multiplier(
                epsilon, delta, batch_size, num_examples, epochs=count, accountant=accountant
            )
            steps = count * steps_per_epoch(num_examples, batch_size)
            yield PlanRow(batch_size, count, steps, noise_multiplier)

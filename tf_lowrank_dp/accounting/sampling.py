"""How logical batches were drawn: the public facts from which the accountant computes."""

from __future__ import annotations

import dataclasses
from typing import Literal, TypeAlias, cast

import dp_accounting

from tf_lowrank_dp import _validate

KINDS = ("poisson", "shuffle")

Unit: TypeAlias = Literal["example", "user"]
"""What neighbouring data sets differ by one of."""

DrawnBy: TypeAlias = Literal["library", "user"]
"""Who has drawn batches."""


def steps_per_epoch(num_examples: int, batch_size: int) -> int:
    """The number of steps of an epoch: num_examples / batch_size, rounded up.

    This is the only place where the rule is written down. Under Poisson sampling an epoch is just
    this number of draws; it is not a pass over the data.

    Args:
        num_examples: number of examples, at least 1.
        batch_size: expected number of examples of a batch, at most `num_examples`.

    Raises:
        ValueError: one of them is no positive integer, or a batch exceeds the data.

    Example:

    >>> steps_per_epoch(num_examples=60_000, batch_size=1_000), steps_per_epoch(10, 4)
    (60, 3)
    """
    num_examples = _validate.integer_at_least(1, num_examples=num_examples)
    batch_size = _validate.integer_at_least(1, batch_size=batch_size)
    _check_batch_size(batch_size, num_examples)
    return -(-num_examples // batch_size)


@dataclasses.dataclass(frozen=True)
class Sampling:
    """How logical batches were drawn. All fields are public, the number of examples included.

    Use `Sampling.poisson` or `Sampling.shuffle` to make one.

    Formal guarantees, if batches are drawn as stated:
        * Poisson: each example is in each batch independently with probability `sampling_rate`; a
          step is a Poisson-sampled Gaussian mechanism, for neighbours by adding or removing one
          example.
        * Shuffle: each example is in at most one batch of a pass, chosen independently of its
          value; a pass is one Gaussian mechanism without amplification, for neighbours by replacing
          one example. Adding an example would shift others between batches.
        * A pass that was begun counts as a whole pass.

    The last line is about steps in a row. A run that goes back to the beginning of the data before
    a pass is complete needs a ledger entry of its own for each such beginning.

    Attributes:
        kind: "poisson" or "shuffle".
        num_examples: number of examples, or None if it is not known.
        batch_size: expected number of examples of a batch.
        sampling_rate: Poisson: probability in (0, 1] that a batch includes an example. Else None.
        steps_per_pass: shuffle: number of batches of a pass over the data. Else None.
        unit: what is drawn and clipped as one, "example" or "user": then `num_examples` and
            `batch_size` are numbers of users, each with all of its rows.
        shards: number of workers that each drew from rows of their own; 1 where all rows were
            known to each. That no row is in two shards is what was stated.
        drawn_by: "library" for the draws of a `PoissonSampler`, which `fit` makes of arrays and
            `Records`; "user" for any other batches, of which nobody verifies what was stated.

    Example:

    >>> sampling = Sampling.poisson(num_examples=60_000, batch_size=600)
    >>> sampling.sampling_rate
    0.01
    >>> sampling.neighboring_relation.name
    'ADD_OR_REMOVE_ONE'
    """

    kind: Literal["poisson", "shuffle"]
    num_examples: int | None
    batch_size: int
    sampling_rate: float | None = None
    steps_per_pass: int | None = None
    unit: Unit = "example"
    shards: int = 1
    drawn_by: DrawnBy = "user"

    def __post_init__(self) -> None:
        _validate.one_of(KINDS, kind=self.kind)
        _validate.one_of(("example", "user"), unit=self.unit)
        _validate.one_of(("library", "user"), drawn_by=self.drawn_by)
        self._set("batch_size", _validate.integer_at_least(1, batch_size=self.batch_size))
        self._set("shards", _validate.integer_at_least(1, shards=self.shards))
        if self.num_examples is not None:
            self._set("num_examples", _validate.integer_at_least(1, num_examples=self.num_examples))
            _check_batch_size(self.batch_size, self.num_examples)
        if self.kind == "poisson":
            self._check_poisson()
        else:
            self._check_shuffle()

    @classmethod
    def poisson(
        cls,
        num_examples: int | None = None,
        batch_size: int | None = None,
        sampling_rate: float | None = None,
        unit: Unit = "example",
        shards: int = 1,
        drawn_by: DrawnBy = "user",
    ) -> Sampling:
        """Poisson sampling: a coin for each example and each batch.

        Args:
            num_examples: number of examples; may be None if `sampling_rate` is given.
            batch_size: expected number of examples of a batch, required.
            sampling_rate: probability in (0, 1] that a batch includes an example; by default
                batch_size / num_examples.
            unit: "example", or "user" where users are drawn.
            shards: number of workers that each drew from rows of their own.
            drawn_by: "library" where a `PoissonSampler` draws.

        Raises:
            ValueError: a value is missing or out of its range, or the three contradict each other.

        Example:

        >>> Sampling.poisson(batch_size=64, sampling_rate=0.01).sampling_rate
        0.01
        """
        # Without a batch size: `__post_init__` refuses.
        size = cast(int, batch_size)
        return cls(
            "poisson",
            num_examples,
            size,
            sampling_rate,
            unit=unit,
            shards=shards,
            drawn_by=drawn_by,
        )

    @classmethod
    def shuffle(
        cls, batch_size: int, steps_per_pass: int, num_examples: int | None = None
    ) -> Sampling:
        """Sampling by passes: each example is in at most one batch of a pass.

        Args:
            batch_size: expected number of examples of a batch.
            steps_per_pass: number of batches of a pass over the data.
            num_examples: number of examples, or None if it is not known.

        Raises:
            ValueError: a value is missing or out of its range.

        Example:

        >>> Sampling.shuffle(batch_size=100, steps_per_pass=60).passes(steps=61)
        2
        """
        return cls("shuffle", num_examples, batch_size, steps_per_pass=steps_per_pass)

    @property
    def neighboring_relation(self) -> dp_accounting.NeighboringRelation:
        """Poisson: ADD_OR_REMOVE_ONE. Shuffle: REPLACE_ONE."""
        if self.kind == "poisson":
            return dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
        return dp_accounting.NeighboringRelation.REPLACE_ONE

    def passes(self, steps: int) -> int:
        """How many mechanisms `steps` steps are: each step, or each pass that was begun.

        Args:
            steps: number of steps in a row, at least 0.

        Raises:
            ValueError: `steps` is no integer of at least 0.

        Example:

        >>> Sampling.poisson(num_examples=10, batch_size=2).passes(steps=7)
        7
        """
        steps = _validate.integer_at_least(0, steps=steps)
        return steps if self.steps_per_pass is None else -(-steps // self.steps_per_pass)

    def event(self, gaussian: dp_accounting.GaussianDpEvent, steps: int) -> dp_accounting.DpEvent:
        """The event of `steps` steps whose release is `gaussian`, in any step.

        The noise multiplier of `gaussian` is standard deviation / l2_norm_clip. The event holds for
        `neighboring_relation`. Under REPLACE_ONE a sum of clipped vectors moves by up to
        2 l2_norm_clip, which `dp_accounting.pld.PLDAccountant` takes into account and
        `dp_accounting.rdp.RdpAccountant` does not: compute with
        `tf_lowrank_dp.accounting.PrivacyLedger.epsilon`, which knows both.

        Args:
            gaussian: the release of one step.
            steps: number of steps in a row, at least 0.

        Returns:
            Poisson: `steps` Poisson-sampled Gaussians (plain Gaussians with a rate of 1).
            Shuffle: one Gaussian for each pass that was begun.

        Raises:
            ValueError: `steps` is no integer of at least 0.

        Example:

        >>> gaussian = dp_accounting.GaussianDpEvent(noise_multiplier=1.1)
        >>> Sampling.shuffle(batch_size=100, steps_per_pass=60).event(gaussian, steps=61)
        SelfComposedDpEvent(event=GaussianDpEvent(noise_multiplier=1.1), count=2)
        """
        count = self.passes(steps)
        if count == 0:
            return dp_accounting.NoOpDpEvent()
        if self.sampling_rate is not None and self.sampling_rate < 1:
            sampled = dp_accounting.PoissonSampledDpEvent(self.sampling_rate, gaussian)
            return dp_accounting.SelfComposedDpEvent(sampled, count)
        return dp_accounting.SelfComposedDpEvent(gaussian, count)

    def _check_poisson(self) -> None:
        """Completes and checks the sampling rate."""
        if self.steps_per_pass is not None:
            raise _validate.error(
                "to be None with Poisson sampling",
                "Leave it out: Poisson sampling knows no passes.",
                steps_per_pass=self.steps_per_pass,
            )
        if self.sampling_rate is None:
            if self.num_examples is None:
                raise _validate.error(
                    "to be given if `num_examples` is not",
                    "Pass one of them: epsilon depends on the rate.",
                    sampling_rate=None,
                )
            self._set("sampling_rate", self.batch_size / self.num_examples)
            return
        self._set("sampling_rate", _validate.probability(sampling_rate=self.sampling_rate))
        if self.num_examples is not None:
            # Half an example is the rounding of a batch size derived from the rate.
            expected = self.sampling_rate * self.num_examples
            if abs(expected - self.batch_size) > 0.5 and (expected > 0.5 or self.batch_size > 1):
                raise _validate.error(
                    f"to be about batch_size / num_examples = {self.batch_size}"
                    f" / {self.num_examples}",
                    "Leave out one of the three.",
                    sampling_rate=self.sampling_rate,
                )

    def _check_shuffle(self) -> None:
        """Checks the number of steps of a pass."""
        if self.sampling_rate is not None:
            raise _validate.error(
                "to be None with shuffled passes",
                "Leave it out, or use `Sampling.poisson`.",
                sampling_rate=self.sampling_rate,
            )
        steps_per_pass = _validate.integer_at_least(1, steps_per_pass=self.steps_per_pass)
        if self.num_examples is not None and steps_per_pass > self.num_examples:
            raise _validate.error(
                f"to be at most the number of examples, {self.num_examples}",
                "Pass the number of batches of one pass over the data.",
                steps_per_pass=steps_per_pass,
            )
        self._set("steps_per_pass", steps_per_pass)

    def _set(self, name: str, value: int | float) -> None:
        """Stores a checked value during construction."""
        object.__setattr__(self, name, value)


def _check_batch_size(batch_size: int, num_examples: int) -> None:
    """Raises if a batch would be larger than the data."""
    if batch_size > num_examples:
        raise _validate.error(
            f"to be at most the number of examples, {num_examples}",
            "Pass a smaller batch_size.",
            batch_size=batch_size,
        )

"""One training run in the ledger, and what a history of runs amounts to."""

from __future__ import annotations

import collections
import dataclasses
import math
import uuid
from collections.abc import Iterable
from typing import TypeAlias

import dp_accounting

from tf_lowrank_dp import _validate
from tf_lowrank_dp.accounting.composition import Mechanism, OtherMechanism
from tf_lowrank_dp.accounting.release_entry import ReleaseEntry
from tf_lowrank_dp.accounting.sampling import DrawnBy, Sampling, Unit


@dataclasses.dataclass(frozen=True)
class LedgerEntry:
    """One training run: `steps` releases with the same noise and the same sampling, in a row.

    Attributes:
        sampling: how the batches were drawn.
        noise_multiplier: standard deviation / l2_norm_clip of the whole release of a step, at
            least 0. Zero means no noise and thus no privacy.
        steps: number of releases so far, at least 0.
        mechanism: name of the algorithm, for reports.
        l2_norm_clip: the clip norm, for reports. Epsilon does not depend on it.
        seeded: whether sampling or noise follow a given seed, so that no guarantee holds.
        entry_id: identifies the run, so that merging ledgers does not count it twice. A new run
            needs a new id, also one that continues a copied or a reloaded model.

    Example:

    >>> sampling = Sampling.poisson(num_examples=60_000, batch_size=600)
    >>> LedgerEntry(sampling, noise_multiplier=1.1, steps=100).mechanism
    'DP-SGD'
    """

    sampling: Sampling
    noise_multiplier: float
    steps: int = 0
    mechanism: str = "DP-SGD"
    l2_norm_clip: float | None = None
    seeded: bool = False
    entry_id: str = dataclasses.field(default_factory=lambda: uuid.uuid4().hex)

    def __post_init__(self) -> None:
        if not isinstance(self.sampling, Sampling):
            raise _validate.error(
                "to be a `Sampling`",
                "Make one with `Sampling.poisson` or `Sampling.shuffle`.",
                sampling=self.sampling,
            )
        noise_multiplier = _validate.non_negative(noise_multiplier=self.noise_multiplier)
        object.__setattr__(self, "noise_multiplier", noise_multiplier)
        object.__setattr__(self, "steps", _validate.integer_at_least(0, steps=self.steps))
        if self.l2_norm_clip is not None:
            l2_norm_clip = _validate.positive_or_infinite(l2_norm_clip=self.l2_norm_clip)
            object.__setattr__(self, "l2_norm_clip", l2_norm_clip)
            if math.isinf(l2_norm_clip) and noise_multiplier > 0:
                raise _validate.error(
                    "to be finite, because it is multiplied by a noise multiplier above 0",
                    "Pass a finite clip norm, or noise_multiplier=0.",
                    l2_norm_clip=l2_norm_clip,
                )
        for name in ("mechanism", "entry_id"):
            value = getattr(self, name)
            if not isinstance(value, str) or not value:
                raise _validate.error("to be a non-empty string", "Pass a name.", **{name: value})

    @property
    def is_released(self) -> bool:
        """Whether there is a release that epsilon has to count."""
        return self.steps > 0

    @property
    def num_examples(self) -> int | None:
        """Number of examples, if it is known."""
        return self.sampling.num_examples

    @property
    def unit(self) -> Unit:
        """What the guarantee is for, "example" or "user"."""
        return self.sampling.unit

    @property
    def drawn_by(self) -> DrawnBy:
        """Who has drawn the batches."""
        return self.sampling.drawn_by

    @property
    def neighboring_relation(self) -> dp_accounting.NeighboringRelation:
        """That of the sampling."""
        return self.sampling.neighboring_relation

    @property
    def mechanisms(self) -> list[Mechanism | OtherMechanism]:
        """What was released."""
        rate = 1.0 if self.sampling.sampling_rate is None else self.sampling.sampling_rate
        return [Mechanism(rate, self.noise_multiplier, self.sampling.passes(self.steps))]


Entry: TypeAlias = LedgerEntry | ReleaseEntry


def neighboring_relation(entries: Iterable[Entry]) -> dp_accounting.NeighboringRelation:
    """The relation for a whole history: REPLACE_ONE if any entry with steps needs it.

    Args:
        entries: the history.

    Example:

    >>> entry = LedgerEntry(Sampling.shuffle(10, 6), noise_multiplier=8.0, steps=6)
    >>> neighboring_relation([entry]).name
    'REPLACE_ONE'
    """
    relations = {entry.neighboring_relation for entry in entries if entry.is_released}
    if dp_accounting.NeighboringRelation.REPLACE_ONE in relations:
        return dp_accounting.NeighboringRelation.REPLACE_ONE
    return dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE


def units(entries: Iterable[Entry]) -> set[Unit]:
    """What the guarantees of a history are for; no epsilon holds where they are several.

    Neighbours by a user differ by any number of examples; and an example more or less changes what
    its user contributes to a step, which is not adding or removing it.

    Args:
        entries: the history.
    """
    return {entry.unit for entry in entries if entry.is_released}


def mechanisms_of(entries: Iterable[Entry]) -> tuple[Mechanism | OtherMechanism, ...]:
    """What was released, equal mechanisms together, in an order that is always the same.

    Args:
        entries: runs with noise, and other releases.

    Example:

    >>> entry = LedgerEntry(Sampling.shuffle(10, 6), noise_multiplier=8.0, steps=7)
    >>> mechanisms_of([entry])
    (Mechanism(sampling_rate=1.0, noise_multiplier=8.0, count=2),)
    """
    counts: collections.Counter[Mechanism | OtherMechanism] = collections.Counter()
    for mechanism in (part for entry in entries for part in entry.mechanisms):
        counts[mechanism._replace(count=1)] += mechanism.count
    grouped = [mechanism._replace(count=count) for mechanism, count in counts.items() if count]
    return tuple(sorted(grouped, key=lambda mechanism: (len(mechanism), mechanism)))

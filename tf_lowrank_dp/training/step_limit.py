"""How many steps a budget allows a run, known before they are taken."""

from __future__ import annotations

import dataclasses
from typing import Protocol

from tf_lowrank_dp.accounting import LedgerEntry, PrivacyLedger, max_steps


class CountedRun(Protocol):
    """What is asked of a run: its releases so far, those of others, all of them, its entry."""

    entry: LedgerEntry

    @property
    def steps(self) -> int: ...

    @property
    def other_steps(self) -> int: ...

    @property
    def ledger(self) -> PrivacyLedger: ...


@dataclasses.dataclass
class StepLimit:
    """The steps of one run that stay within a target, found as far ahead as they are wanted.

    Formal guarantee: after `left(run, wanted)` more steps, epsilon of all that the run depends on
    is at most the target, whatever other runs have added, unless it was exceeded before.

    Attributes:
        epsilon: the target.
        delta: its delta.
        accountant: "pld" or "rdp".
        planned: how many more steps are looked for at once, at least.
        allowed: releases of the run that are known to fit; None where nothing is known.
        is_final: whether one more is known not to fit, or was not planned for.
        other_steps: of the run, when `allowed` was found; a negative number before that.
    """

    epsilon: float
    delta: float
    accountant: str
    planned: int = 1
    allowed: int | None = None
    is_final: bool = False
    other_steps: int = -1

    def left(self, run: CountedRun, wanted: int) -> int:
        """How many of `wanted` more steps fit."""
        taken, others = run.steps, run.other_steps
        if others != self.other_steps:  # weights were loaded, or trained by another model
            self.allowed, self.is_final, self.other_steps = None, False, others
        known = taken if self.allowed is None else self.allowed
        if taken + wanted > known and not self.is_final:
            limit = max(wanted, self.planned, taken)
            target = self.epsilon, self.delta, run.entry, run.ledger, self.accountant
            further = max_steps(*target, limit=limit)
            self.allowed, self.is_final = taken + further, further < limit
            known = self.allowed
        return max(0, min(wanted, known - taken))

"""Epsilon as it grew over the steps of a history."""

from __future__ import annotations

import dataclasses

from tf_lowrank_dp import _validate
from tf_lowrank_dp.accounting.ledger import PrivacyLedger

# Quick bounds of each accountant's epsilon, at most a thousandth above it.
_METHODS = {"pld": "coarse_pld", "rdp": "rdp"}


def epsilon_curve(
    ledger: PrivacyLedger, delta: float, *, accountant: str = "pld", points: int = 20
) -> list[tuple[int, float]]:
    """Epsilon after some of the steps of a ledger, its entries one after the other.

    Args:
        ledger: what was released.
        delta: in (0, 1).
        accountant: "pld" or "rdp".
        points: the number of values for each entry, fewer where it has fewer steps.

    Returns:
        Pairs of a number of steps and an upper bound of epsilon after them, from (0, 0.0).

    Raises:
        ValueError: an argument is out of its range.

    Example:

    >>> from tf_lowrank_dp.accounting import LedgerEntry, Sampling
    >>> ledger = PrivacyLedger([LedgerEntry(Sampling.poisson(60_000, 600), 1.1, steps=100)])
    >>> [steps for steps, _ in epsilon_curve(ledger, 1e-5, accountant="rdp", points=4)]
    [0, 25, 50, 75, 100]
    """
    method = _METHODS[_validate.one_of(tuple(_METHODS), accountant=accountant)]
    points = _validate.integer_at_least(1, points=points)
    curve, before = [(0, 0.0)], PrivacyLedger()
    for entry in ledger.entries:
        parts = sorted({-(-entry.steps * k // points) for k in range(1, points + 1)} - {0})
        for steps in parts:
            part = dataclasses.replace(entry, steps=steps)
            curve.append((before.num_steps + steps, before.epsilon_by(method, delta, [part])))
        before.append(entry)
    return curve

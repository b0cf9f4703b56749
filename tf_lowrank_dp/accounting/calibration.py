"""How much noise, or how many steps, a privacy budget allows."""

from __future__ import annotations

import dataclasses
import functools
import math

import numpy as np

from tf_lowrank_dp import _validate
from tf_lowrank_dp.accounting import composition
from tf_lowrank_dp.accounting.ledger import PrivacyLedger
from tf_lowrank_dp.accounting.ledger_entry import LedgerEntry
from tf_lowrank_dp.accounting.planned import planned_sampling, planned_steps
from tf_lowrank_dp.accounting.sampling import Sampling
from tf_lowrank_dp.accounting.search import largest, smallest
from tf_lowrank_dp.errors import PrivacyBudgetExceededError

MAX_STEPS = 10**7

# Searches go through faster methods first; each begins where the one before it ended. The number
# is the tolerance of noise multipliers, and the relative size of the first step in a number of
# steps. "coarse_pld" is a bound, never below "pld", and wastes less than the tolerance.
_NOISE_SEARCH = {
    "pld": {"rough": 0.05, "coarsest_pld": 0.01, "coarse_pld": 1e-3},
    "rdp": {"rough": 0.05, "rdp": 1e-3},
}
_BOUND = {"pld": "coarse_pld", "rdp": "rdp"}  # of the accountant's epsilon, and quick
_ROUNDED = 1e-8  # delta below which Fourier transforms round: coarse losses are no bound then
_ROUGHLY = 8  # the rough epsilon is that many times too large at most, or a step is tried in vain
_STEPS_SEARCH = {
    "pld": {"rough": 1.0, "coarsest_pld": 0.1, "coarse_pld": 0.01, "pld": 5e-4},
    "rdp": {"rough": 1.0, "rdp": 0.01},
}
_MIN_NOISE_MULTIPLIER = 1e-4
_MAX_NOISE_MULTIPLIER = 1e6


def calibrate_noise_multiplier(
    epsilon: float,
    delta: float,
    batch_size: int,
    num_examples: int | None,
    epochs: int | None = None,
    steps: int | None = None,
    *,
    accountant: str = "pld",
    spent: PrivacyLedger | None = None,
    sampling: Sampling | None = None,
) -> float:
    """The smallest noise multiplier that keeps training within a privacy budget.

    Formal guarantees:
        * Epsilon of what was spent and of the planned steps together, at the returned value, is at
          most the target. A bound that is never below it is recomputed at the returned value
          before that is returned.
        * The value is a float32 number, rounded up: casting it to float32 does not lower it.
        * It exceeds the smallest possible value by at most about 0.1 %.

    Args:
        epsilon: target epsilon, above 0.
        delta: target delta, in (0, 1), should be below 1 / number of examples.
        batch_size: expected number of examples of a batch.
        num_examples: number of examples. It may be None if `sampling` is given.
        epochs: number of epochs of `steps_per_epoch(num_examples, batch_size)` steps each (of
            `sampling.steps_per_pass` steps with shuffled passes). Either this or `steps`.
        steps: number of steps.
        accountant: "pld" or "rdp".
        spent: what was released before, if anything.
        sampling: how batches will be drawn; Poisson sampling by default.

    Returns:
        The noise multiplier: standard deviation / l2_norm_clip.

    Raises:
        ValueError: an argument is missing, contradicts another one or is out of its range.
        PrivacyBudgetExceededError: the budget is spent, or what is left is too little for the
            planned steps with any noise multiplier up to a million.

    Example:

    >>> z = calibrate_noise_multiplier(
    ...     3.0, 1e-5, batch_size=1_000, num_examples=60_000, epochs=15, accountant="rdp"
    ... )
    >>> round(z, 2)
    1.06
    """
    epsilon = _validate.positive(epsilon=epsilon)
    delta = _validate.below_one(delta=delta)
    sampling = planned_sampling(batch_size, num_examples, sampling)
    steps = planned_steps(epochs, steps, sampling)
    spent = PrivacyLedger() if spent is None else spent
    already = spent.epsilon(delta, accountant=accountant)
    if already >= epsilon:
        raise PrivacyBudgetExceededError(
            f"Expected a spend below the target epsilon={epsilon} at delta={delta}. "
            f"Received: epsilon={already} is already spent. Raise the target, or train a new model."
        )

    def planned(noise_multiplier: float) -> list[LedgerEntry]:
        value = _float32_at_least(noise_multiplier)
        return [LedgerEntry(sampling, value, steps, entry_id="planned")]

    def epsilon_at(noise_multiplier: float, method: str) -> float:
        return spent.epsilon_by(method, delta, planned(noise_multiplier))

    found: tuple[float, float] | None = (1.0, -1.0)
    searches = _NOISE_SEARCH[accountant]
    bound = _bound(accountant, delta)
    for method, tolerance in {**searches, bound: searches.get(bound, 1e-3)}.items():
        start, slope = found or (1.0, -1.0)
        found = smallest(
            functools.partial(epsilon_at, method=method),
            epsilon,
            start=start,
            slope=slope,
            lowest=_MIN_NOISE_MULTIPLIER,
            highest=_MAX_NOISE_MULTIPLIER,
            tolerance=tolerance,
        )
    if found is None:
        raise PrivacyBudgetExceededError(
            f"Expected room for {steps} steps within the target epsilon={epsilon} at delta={delta}."
            f" Received: epsilon={already} is already spent, and no noise multiplier up to "
            f"{_MAX_NOISE_MULTIPLIER:g} is enough for the rest. Raise the target, or plan less."
        )
    noise_multiplier = _float32_at_least(found[0])
    if epsilon_at(noise_multiplier, bound) > epsilon:
        raise RuntimeError(
            f"Expected epsilon of at most {epsilon} at the calibrated value. Received: more, at "
            f"noise_multiplier={noise_multiplier}. Please report this as a bug."
        )
    return noise_multiplier


def max_steps(
    epsilon: float,
    delta: float,
    entry: LedgerEntry,
    spent: PrivacyLedger | None = None,
    accountant: str = "pld",
    *,
    limit: int = MAX_STEPS,
) -> int:
    """The largest number of further steps of a run that stays within a privacy budget.

    Formal guarantee: epsilon of what was spent and of the returned number of further steps together
    is at most the target, unless it was exceeded before, when 0 is returned.

    Args:
        epsilon: target epsilon, above 0.
        delta: target delta, in (0, 1).
        entry: the run. Its `steps` are ignored. If `spent` holds the same run, the further steps
            continue it.
        spent: what was released before, if anything.
        accountant: "pld" or "rdp".
        limit: the most that is wanted, such as the planned number of steps, at most `MAX_STEPS`,
            ten million. The search is faster the smaller it is: a million steps take seconds each
            time their epsilon is computed.

    Returns:
        The number of further steps, at most `limit`.

    Raises:
        ValueError: an argument is out of its range.

    Example:

    >>> run = LedgerEntry(Sampling.shuffle(batch_size=10, steps_per_pass=6), noise_multiplier=8.0)
    >>> max_steps(2.0, 1e-5, run)
    24
    """
    epsilon = _validate.positive(epsilon=epsilon)
    delta = _validate.below_one(delta=delta)
    accountant = _validate.one_of(composition.ACCOUNTANTS, accountant=accountant)
    limit = min(_validate.integer_at_least(1, limit=limit), MAX_STEPS)
    spent = PrivacyLedger() if spent is None else spent

    def fits(steps: int, method: str) -> bool:
        further = [dataclasses.replace(entry, steps=steps)]
        return spent.epsilon_by(method, delta, further) <= epsilon

    further = [dataclasses.replace(entry, steps=limit)]
    if spent.epsilon_by("rough", delta, further) <= _ROUGHLY * epsilon and fits(
        limit, _bound(accountant, delta)
    ):
        return limit
    steps, least = 1, 0
    for method, first_step in _STEPS_SEARCH[accountant].items():
        steps = largest(
            functools.partial(fits, method=method),
            least=least,
            start=steps,
            first_step=first_step,
            limit=limit,
        )
        least = steps if method == _bound(accountant, delta) else 0
    return steps


def _bound(accountant: str, delta: float) -> str:
    """The quickest method whose epsilon is never below that of the accountant."""
    return accountant if delta < _ROUNDED else _BOUND[accountant]


def _float32_at_least(value: float) -> float:
    """The smallest float32 number that is not below `value`, as a float."""
    rounded = np.float32(value)
    if float(rounded) < value:
        rounded = np.nextafter(rounded, np.float32(math.inf))
    return float(rounded)

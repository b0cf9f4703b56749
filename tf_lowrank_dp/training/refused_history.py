"""What is refused before it counts, as no epsilon could be stated with it."""

from __future__ import annotations

from tf_lowrank_dp.accounting import LedgerEntry, PrivacyLedger, ReleaseEntry, Sampling
from tf_lowrank_dp.accounting.composition import has_search
from tf_lowrank_dp.accounting.ledger_entry import mechanisms_of

_ANY_DELTA, _ANY_NOISE = 1e-3, 1.0  # whether there is an epsilon does not depend on them


def refuse_history(ledger: PrivacyLedger, sampling: Sampling, accountant: str) -> None:
    """Refuses a run of which no epsilon could be stated, before its first step.

    Args:
        ledger: what was spent on the model.
        sampling: of the run that shall begin.
        accountant: by which its epsilon will be found, "pld" or "rdp"; a private search in the
            ledger is accounted for by "rdp" whatever was asked for.

    Raises:
        ValueError: steps by users after steps by examples, or the other way round; or there is no
            bound by Renyi differential privacy where it is needed.
    """
    received = {entry.unit for entry in ledger.entries if entry.is_released} - {sampling.unit}
    if received:
        raise ValueError(
            "Expected one unit of privacy for all that was spent on a model. Received: steps by "
            f"{sampling.unit}, after releases by {received.pop()}, so that no epsilon would hold "
            "for either. Train with unit_ids in all calls of fit or in none."
        )
    if accountant == "rdp" or has_search(mechanisms_of(ledger.entries)):
        ledger.epsilon_by("rdp", _ANY_DELTA, extra=[LedgerEntry(sampling, _ANY_NOISE, steps=1)])


def refuse_without_epsilon(ledger: PrivacyLedger) -> None:
    """Tries whether `dp_accounting` can tell the epsilon of releases, before they count.

    Raises:
        ValueError: it cannot.
    """
    try:
        ledger.epsilon(_ANY_DELTA)
    except (ArithmeticError, TypeError, ValueError) as error:
        events = [entry.event for entry in ledger.entries if isinstance(entry, ReleaseEntry)]
        raise ValueError(
            f"Expected an event whose epsilon dp_accounting can compute. Received: {events}, of "
            f"which it says: {error} Correct its numbers, or pass a bound of it."
        ) from error

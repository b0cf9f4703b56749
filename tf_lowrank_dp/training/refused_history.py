"""Runs that cannot follow what was spent before: no epsilon could be stated for both together."""

from __future__ import annotations

from tf_lowrank_dp.accounting import LedgerEntry, PrivacyLedger, Sampling
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

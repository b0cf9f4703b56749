"""What is refused before it counts, as no epsilon could be stated with it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import dp_accounting
import tensorflow as tf

from tf_lowrank_dp.accounting import LedgerEntry, PrivacyLedger, ReleaseEntry, Sampling
from tf_lowrank_dp.accounting.composition import OtherMechanism, has_search
from tf_lowrank_dp.accounting.ledger_entry import (
    Entry,
    mechanisms_of,
    neighboring_relation,
    units,
)
from tf_lowrank_dp.spending import SPENDING, merged
from tf_lowrank_dp.training.state import Run, things_of

_ANY_DELTA, _ANY_NOISE = 1e-3, 1.0  # whether there is an epsilon does not depend on them


def refuse_history(
    ledger: PrivacyLedger,
    sampling: Sampling,
    accountant: str,
    before: PrivacyLedger | None = None,
) -> None:
    """Refuses steps of which no epsilon could be stated, before they are taken.

    Args:
        ledger: what was spent on the model, and on what the steps read.
        sampling: of the run that takes them.
        accountant: by which its epsilon will be found, "pld" or "rdp"; a private search in the
            ledger is accounted for by "rdp" whatever was asked for.
        before: what was spent on the model alone; None where that is `ledger`.

    Raises:
        ValueError: steps by users after steps by examples, or the other way round; shuffled
            passes beside releases that have an epsilon for adding or removing one only; or there
            is no bound by Renyi differential privacy where it is needed.
    """
    received = units(ledger.entries) - {sampling.unit}
    if received:
        raise ValueError(
            "Expected one unit of privacy for all that was spent on a model and on those that it "
            f"learns from. Received: steps by {sampling.unit}, after releases by "
            f"{received.pop()}, so that no epsilon would hold for either. Train with unit_ids in "
            "all calls of fit or in none; a model that has learnt from one of the other unit goes "
            "on without it once it is compiled with a new optimizer."
        )
    step = LedgerEntry(sampling, _ANY_NOISE, steps=1)
    before = ledger if before is None else before
    if _beside_passes([*ledger.entries, step]) and not _beside_passes(before.entries):
        raise ValueError(
            "Expected Poisson samples, of models that it learns from as well. Received: shuffled "
            "passes, whose epsilon is for replacing one, in a history with a private search or "
            "another release that has none for it. Leave sampling out: fit draws from arrays, "
            "tfdp.Records and tfdp.PoissonSampler."
        )
    if accountant == "rdp" or has_search(mechanisms_of(ledger.entries)):
        ledger.epsilon_by("rdp", _ANY_DELTA, extra=[step])


def refuse_next_step(run: Run, handles: Iterable[tf.Tensor] = ()) -> None:
    """Refuses a step of which no epsilon could be stated, for what it reads by now.

    Args:
        run: about to take it.
        handles: of further variables that it is going to read.

    Raises:
        ValueError: see `refuse_history`.
    """
    records = SPENDING.ahead(run.record, [*handles])
    ledger, before = merged(records), SPENDING.ledger(things_of(run.engine.model))
    for record in records:
        if record.trained_in is not None:  # in `fit`, which counts with its first step, to come yet
            entries = record.ledger.entries
            ledger.merge(PrivacyLedger(dataclasses.replace(e, steps=e.steps or 1) for e in entries))
    refuse_history(ledger, run.sampling, run.optimizer.accountant, before)


def refuse_release(ledger: PrivacyLedger, release: PrivacyLedger) -> None:
    """Refuses releases that have no epsilon, or would leave none to what was spent before.

    Args:
        ledger: what was spent on the model.
        release: what shall be recorded for it.

    Raises:
        ValueError: as said.
    """
    refuse_without_epsilon(release)
    joined = PrivacyLedger(ledger.entries)
    joined.merge(release)
    before, together = ledger.entries, joined.entries
    if len(units(together)) > len(units(before)) == 1:
        raise ValueError(
            "Expected one unit of privacy for all that was spent on a model. Received: a release "
            f"by {units(release.entries).pop()}, after releases by {units(before).pop()}, so that "
            "no epsilon would hold for either. Record it with the other unit if that is so: "
            "unit='user' says that each row that went into it was all of one user."
        )
    if _beside_passes(together) and not _beside_passes(before):
        raise ValueError(
            "Expected Gaussians beside shuffled passes, whose epsilon is for replacing one. "
            f"Received: {_events(release)}. Record a GaussianDpEvent that bounds it, or train on "
            "Poisson samples."
        )
    if has_search(mechanisms_of(together)):
        refuse_without_epsilon(joined)  # as some events are beside a search


def refuse_without_epsilon(ledger: PrivacyLedger) -> None:
    """Tries whether `dp_accounting` can tell the epsilon of releases, before they count.

    Raises:
        ValueError: it cannot.
    """
    try:
        ledger.epsilon(_ANY_DELTA)
    except (ArithmeticError, TypeError, ValueError) as error:
        raise ValueError(
            f"Expected an event whose epsilon dp_accounting can compute. Received: "
            f"{_events(ledger)}, of which it says: {error} Correct its numbers, or pass a bound of "
            "it."
        ) from error


def _events(ledger: PrivacyLedger) -> list[dp_accounting.DpEvent]:
    return [entry.event for entry in ledger.entries if isinstance(entry, ReleaseEntry)]


def _beside_passes(entries: Iterable[Entry]) -> bool:
    """Whether there are shuffled passes, and others than Gaussians, which have no epsilon there."""
    entries = tuple(entries)
    replace_one = dp_accounting.NeighboringRelation.REPLACE_ONE
    others = any(isinstance(m, OtherMechanism) for m in mechanisms_of(entries))
    return others and neighboring_relation(entries) is replace_one

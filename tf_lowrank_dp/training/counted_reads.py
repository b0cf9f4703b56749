"""What the steps of a run read counts for them, unless no epsilon could be stated then."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import tensorflow as tf

from tf_lowrank_dp.accounting import PrivacyLedger
from tf_lowrank_dp.spending import SPENDING, merged
from tf_lowrank_dp.training.refused_history import refuse_history
from tf_lowrank_dp.training.state import Run, things_of


def count_reads(run: Run, handles: Iterable[tf.Tensor], added: bool = False) -> None:
    """Counts what is spent on variables, now or later, for the run whose steps read them.

    Args:
        run: which has begun.
        handles: of variables of other models, such as a teacher.
        added: whether what is computed of them is added to released gradients.

    Raises:
        ValueError: see `refuse_next_step`.  Nothing counts then.
    """
    handles = [*handles]
    refuse_next_step(run, handles)
    SPENDING.read(run.record, handles, added=added)


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
        if not (record.is_loaded or record.is_over):  # it counts with its first step, to come yet
            entries = record.ledger.entries
            ledger.merge(PrivacyLedger(dataclasses.replace(e, steps=e.steps or 1) for e in entries))
    refuse_history(ledger, run.sampling, run.optimizer.accountant, before)

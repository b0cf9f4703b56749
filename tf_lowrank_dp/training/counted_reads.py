"""What the steps of a run read counts for them, and is looked at before they are taken."""

from __future__ import annotations

from collections.abc import Iterable

import tensorflow as tf

from tf_lowrank_dp.spending import SPENDING
from tf_lowrank_dp.training.budget import allow_in_graphs, check_budget
from tf_lowrank_dp.training.refused_history import refuse_next_step
from tf_lowrank_dp.training.state import Run


def count_reads(run: Run, handles: Iterable[tf.Tensor], added: bool = False) -> None:
    """Counts what is spent on variables, now or later, for the run whose steps read them.

    Guarantee: what a graph is found to read, while it is traced, is within the budget, and in the
    ledger's file, before its first step.

    Args:
        run: which has begun.
        handles: of variables, such as a teacher's; those of its model and optimizer count as long
            as they are.
        added: whether what is computed of them is added to released gradients.

    Raises:
        PrivacyBudgetExceededError: the step that is traced would overspend with that.
        ValueError: see `refuse_next_step`.  Nothing counts then.
    """
    handles = [*handles]
    others = run.record.reading.of_others(handles)
    if others:
        refuse_next_step(run, others)
    SPENDING.read(run.record, handles, added=added)
    if others:
        check_again(run)


def check_again(run: Run) -> None:
    """Looks at the budget of the steps that are about to be taken, if something is new since.

    Raises:
        PrivacyBudgetExceededError: they would overspend.
        ValueError: see `refuse_next_step`.
    """
    if run.version == SPENDING.version:
        return
    if run.look_again is None:
        check_budget(run.engine.model)
    else:
        run.look_again()
    allow_in_graphs(run)

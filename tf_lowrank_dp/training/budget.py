"""Before each step: it stays within the budget, and the ledger's file is ahead of it."""

from __future__ import annotations

import dataclasses

import keras
import tensorflow as tf

from tf_lowrank_dp.accounting import LedgerEntry, LedgerFile, PrivacyLedger
from tf_lowrank_dp.errors import PrivacyBudgetExceededError
from tf_lowrank_dp.spending import SPENDING, file_of
from tf_lowrank_dp.training.draws import Check
from tf_lowrank_dp.training.refused_history import refuse_next_step
from tf_lowrank_dp.training.start_run import begin
from tf_lowrank_dp.training.state import Run, find_run, look, note_in_file, state_of
from tf_lowrank_dp.training.step_limit import StepLimit
from tf_lowrank_dp.training.train_step import private_optimizer

_NOT_NOTED = (
    "Expected a step that the ledger's file holds before it is taken. Received: one in a graph, "
    "which cannot write to it. Call trainer.check_budget() before each step of a tf.function, or "
    "trainer.check_budget(n) before n of them."
)
_FURTHER = 4  # times the steps planned: how far a graph knows what a budget allows
_NOTED_AHEAD = 64  # a ledger file is at most this fraction of the steps taken ahead of them


def check_budget(model: keras.Model, steps: int = 1, left: int | None = None) -> None:
    """Raises before steps that would overspend; others are noted in the ledger's file, if any.

    Args:
        model: private, with a run.
        steps: how many steps are about to be taken.
        left: how many steps there are until training may end; the file is not ahead of them.

    Raises:
        PrivacyBudgetExceededError: with the target and what it would become.
        ValueError: no epsilon could be stated after them.
        OSError: the file cannot be written.
    """
    with tf.init_scope():  # where a loop is traced as well
        _check_budget(model, steps, left)


def budget_in_graph(model: keras.Model) -> list[Check]:
    """Whether a step of a graph is one that the budget allows, and the ledger's file holds.

    Args:
        model: private, with a run; the graph that is traced trains it.
    """
    run, checks = state_of(model).run, []
    assert run is not None
    if file_of(model) is not None:
        checks.append((run.engine.steps < run.noted_steps, _NOT_NOTED))
    if run.limit is None:
        return checks
    allow_in_graphs(run)
    message = (
        f"Expected at most {run.limit.allowed} steps, which the budget allows this run. "
        "Received: another one. Stop here, compile with a larger epsilon, or plan more steps: "
        "PrivateTrainer(model, sampler, steps=...)."
    )
    return [*checks, (run.engine.steps < run.allowed_in_graphs, message)]


def tell_graphs(model: keras.Model) -> None:
    """Tells the graphs that train a model what its budget allows, after others have added to it.

    Args:
        model: for which something was recorded, by a call that names it.
    """
    run = find_run(model)
    if run is not None and run.limit is not None:
        run.others = SPENDING.ahead(run.record) - {run.record}  # counts when a step reads it
        allow_in_graphs(run)


def allow_in_graphs(run: Run) -> None:
    """Tells the graphs that train a model how many releases its budget allows them now."""
    if run.limit is None:
        return
    run.limit.left(run, _FURTHER * run.limit.planned)
    with tf.init_scope():
        run.allowed_in_graphs.assign(run.limit.allowed)


def _check_budget(model: keras.Model, steps: int, left: int | None) -> None:
    private_optimizer(model)
    run = state_of(model).run
    assert run is not None
    SPENDING.tellers.ask()
    if run.version != SPENDING.version:
        look(model)
        refuse_next_step(run)
        begin(run, model)
        note_in_file(model)
    if run.limit is not None and run.limit.left(run, steps) < steps:
        raise PrivacyBudgetExceededError(_overspending(run, run.limit, steps))
    file = file_of(model)
    if file is not None:
        _note_ahead(run, file, steps, left)


def _note_ahead(run: Run, file: LedgerFile, steps: int, left: int | None) -> None:
    """Writes the steps that come to the ledger's file, unless it is that far ahead already.

    Nor where another run has spent since on what this one depends on.
    Many steps are noted at once when many were taken, so that writing costs less and less a step.
    """
    taken, noted, others = run.steps, int(run.noted_steps.numpy()), run.other_steps
    if taken + steps <= noted and others == run.noted_others:
        return
    allowed = None if run.limit is None else run.limit.allowed
    ends = [end for end in (left, allowed and allowed - taken) if end]
    ahead = max(steps, noted - taken, min([taken // _NOTED_AHEAD, *ends]))
    entry = dataclasses.replace(run.entry, steps=taken + ahead)
    ledger = run.ledger
    unknown = ledger.prior_spend_unknown
    file.add(PrivacyLedger([*ledger.entries, entry], prior_spend_unknown=unknown))
    run.noted_steps.assign(entry.steps)
    run.noted_others = others


def _overspending(run: Run, limit: StepLimit, steps: int) -> str:
    more = [_more(run, steps)]
    would_be = run.ledger.epsilon(limit.delta, accountant=limit.accountant, extra=more)
    return (
        f"Expected epsilon to stay within {limit.epsilon} at delta {limit.delta}, which "
        f"allows this run {limit.allowed} steps. Received: step {run.steps + steps}, after "
        f"which epsilon would be {would_be:.4f}. Stop here, or compile with a larger epsilon; "
        "plan ahead with planned_steps= when training in several fits."
    )


def _more(run: Run, steps: int) -> LedgerEntry:
    return LedgerEntry(
        sampling=run.sampling,
        noise_multiplier=run.entry.noise_multiplier,
        steps=steps,
        mechanism=run.entry.mechanism,
        l2_norm_clip=run.entry.l2_norm_clip,
    )

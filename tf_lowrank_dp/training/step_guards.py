"""The callbacks around those of a user: no step of `fit` is taken that would overspend."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import keras

from tf_lowrank_dp._types import Logs
from tf_lowrank_dp.spending import SPENDING
from tf_lowrank_dp.training.budget import check_budget
from tf_lowrank_dp.training.running_fit import allow_execution, check_run
from tf_lowrank_dp.training.state import find_run, state_of
from tf_lowrank_dp.training.watched_weights import act_between_steps, tell_changes


class BudgetGuard(keras.callbacks.Callback):
    """Stops the steps that would overspend, and notes the others in the ledger's file.

    It is called before all other callbacks, so it sees what the steps of an epoch have left.

    Guarantee: where data begin anew with each epoch, a pass over shuffled data counts as a whole,
    wherever a callback has ended the epoch.

    Args:
        steps_per_epoch: as Keras takes them.
        new_passes: whether data begin anew with each epoch.
        others: the callbacks that may change weights between two steps of an epoch.

    Attributes:
        holds: whether the weights are held as the last step has left them.
    """

    def __init__(
        self,
        steps_per_epoch: int,
        new_passes: bool,
        others: Sequence[keras.callbacks.Callback] = (),
    ):
        super().__init__()
        self._steps_per_epoch, self._new_passes = steps_per_epoch, new_passes
        self._others, self.holds = others, False

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        check_run(self.model)
        run = state_of(self.model).run
        assert run is not None
        length = run.sampling.steps_per_pass
        if self._new_passes and length is not None:
            run.engine.steps.assign_add(-run.engine.steps % length)

    def on_train_batch_begin(self, batch: int, logs: Logs = None) -> None:
        # Where data end, the last execution is cut short; where a step is taken, one is left.
        left = max(1, self._steps_per_epoch - batch)
        check_run(self.model)
        check_budget(self.model, min(self.model.steps_per_execution, left), left)

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        self.holds = act_between_steps(self._others)  # which may have changed since the last step
        if self.holds:
            SPENDING.hold(self.model.weights)

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        tell_changes(self.model)


class StepGuard(keras.callbacks.Callback):
    """Allows a step of this `fit`, when no other callback comes before it.

    Guarantee: what callbacks have spent after the budgets were looked at is within them as well, as
    is what the execution is found to read when it is traced.

    Args:
        guard: before all other callbacks.
        budgets: the other callbacks that have looked at a budget.
    """

    def __init__(self, guard: BudgetGuard, budgets: Sequence[keras.callbacks.Callback]):
        super().__init__()
        self._guard, self._budgets = guard, [guard, *budgets]
        self._spent, self._is_first = (-1, -1), True

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        self._is_first = True

    def on_train_batch_begin(self, batch: int, logs: Logs = None) -> None:
        run = find_run(self.model)
        reads = run is not None and bool(run.record.reading.handles_of_others())
        held = self._guard.holds and (reads or not SPENDING.let_go(self.model.weights))
        if self._is_first or held:
            tell_changes(self.model)
        self._is_first = False
        if run is not None:
            run.look_again = functools.partial(self._look, batch, logs)
            if self._spent != (SPENDING.version, run.other_steps):
                run.look_again()
            self._spent = SPENDING.version, run.other_steps
        allow_execution(self.model)

    def _look(self, batch: int, logs: Logs) -> None:
        for budget in self._budgets:
            budget.on_train_batch_begin(batch, logs)

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        tell_changes(self.model)  # before Keras puts averages in their place

"""Keras callbacks."""

from __future__ import annotations

import math

import keras

from tf_lowrank_dp import _validate
from tf_lowrank_dp._types import Logs
from tf_lowrank_dp.errors import PrivacyBudgetExceededError
from tf_lowrank_dp.training.report import accountant_of, delta_of, privacy_spent
from tf_lowrank_dp.training.state import Run, find_state
from tf_lowrank_dp.training.step_limit import StepLimit


class PrivacyBudget(keras.callbacks.Callback):
    """Shows epsilon in the progress bar and history, and stops before a budget is exceeded.

    How many steps the budget allows is computed when `fit` begins, and again when something else
    was spent on the model meanwhile.

    Args:
        epsilon: training stops, without an error, before the execution of steps that would exceed
            this value; a `fit` in which the first one would raises `PrivacyBudgetExceededError`.
            None only shows epsilon.  An optimizer compiled with `epsilon` never exceeds its own
            target, with or without this callback.
        delta: delta of the guarantee; the optimizer's if None.
        every: number of batches between two values of epsilon shown inside an epoch; None shows
            it at its end.  Each composes the accountant anew, which takes about a second.

    Attributes:
        steps_per_epoch: steps of an epoch as `fit` takes them, which sets it: the last execution of
            an epoch may have fewer than `steps_per_execution`.

    Example:

    >>> import tf_lowrank_dp as tfdp
    >>> callback = tfdp.PrivacyBudget(epsilon=3.0, delta=1e-5)
    """

    def __init__(
        self, epsilon: float | None = None, delta: float | None = None, every: int | None = None
    ):
        super().__init__()
        if epsilon is not None:
            _validate.positive(epsilon=epsilon)
        if every is not None:
            _validate.integer_at_least(1, every=every)
        self.epsilon = math.inf if epsilon is None else epsilon
        self.delta = delta
        self.every = every
        self.steps_per_epoch: int | None = None
        self._spent = 0.0
        self._limit: StepLimit | None = None

    def on_train_begin(self, logs: Logs = None) -> None:
        planned = (self.params.get("epochs") or 1) * (self.params.get("steps") or 1)
        delta, accountant = delta_of(self.model, self.delta), accountant_of(self.model)
        self._limit = StepLimit(self.epsilon, delta, accountant, planned=planned)
        if self.every is not None:
            self._spent = privacy_spent(self.model, self.delta)
        self._refuse_if_spent(0)

    def on_train_batch_begin(self, batch: int, logs: Logs = None) -> None:
        self._refuse_if_spent(batch)  # a callback may have trained on, or spent, since then

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        ended = self.steps_per_epoch is not None and batch + 1 >= self.steps_per_epoch
        if not self._has_room(0 if ended else batch + 1):
            self.model.stop_training = True
        if self.every is None:
            return
        if (batch + 1) % self.every == 0:
            self._spent = privacy_spent(self.model, self.delta)
        if logs is not None:
            logs["epsilon"] = self._spent

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        self._spent = privacy_spent(self.model, self.delta)
        if logs is not None:
            logs["epsilon"] = self._spent

    def _refuse_if_spent(self, batch: int) -> None:
        if not self._has_room(batch):
            raise PrivacyBudgetExceededError(
                f"Expected room for another step within the budget epsilon={self.epsilon}. "
                f"Received: epsilon={privacy_spent(self.model, self.delta)} is already spent. "
                "Raise the budget, or train a new model."
            )

    def _has_room(self, batch: int) -> bool:
        """Whether the execution of steps that begins with this batch stays within the budget."""
        state = find_state(self.model)
        run: Run | None = None if state is None else state.run
        if run is None or self._limit is None or math.isinf(self.epsilon):
            return True
        wanted = self.model.steps_per_execution
        if self.steps_per_epoch is not None:
            wanted = min(wanted, self.steps_per_epoch - batch % self.steps_per_epoch)
        return self._limit.left(run, wanted) == wanted

"""Keras callbacks."""

from __future__ import annotations

import math

import keras

from tf_lowrank_dp import _validate
from tf_lowrank_dp._types import Logs
from tf_lowrank_dp.errors import PrivacyBudgetExceededError
from tf_lowrank_dp.training.report import privacy_spent


class PrivacyBudget(keras.callbacks.Callback):
    """Shows epsilon in the progress bar and history, and stops training at a budget.

    Args:
        epsilon: training stops, without an error, after the epoch (or the check inside one) that
            reaches this value; a `fit` that starts at or above it raises
            `PrivacyBudgetExceededError`.  None only shows it.  An optimizer compiled with
            `epsilon` never exceeds its own target, with or without this callback.
        delta: delta of the guarantee; the optimizer's if None.
        every: number of batches between two checks inside an epoch; None checks at its end.
            Each check composes the accountant anew, which takes about a second.

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
        self._spent = 0.0

    def on_train_begin(self, logs: Logs = None) -> None:
        self._check()
        if self._spent >= self.epsilon:
            raise PrivacyBudgetExceededError(
                f"Expected a spend below the budget epsilon={self.epsilon}. Received: epsilon="
                f"{self._spent} is already spent. Raise the budget, or train a new model."
            )

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        if self.every is not None and (batch + 1) % self.every == 0:
            self._check()
        if self.every is not None and logs is not None:
            logs["epsilon"] = self._spent

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        self._check()
        if logs is not None:
            logs["epsilon"] = self._spent

    def _check(self) -> None:
        self._spent = privacy_spent(self.model, self.delta)
        if self._spent >= self.epsilon:
            self.model.stop_training = True

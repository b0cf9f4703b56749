"""A callback that records something before training and at regular steps."""

from __future__ import annotations

import abc

import keras

from tf_lowrank_dp import _validate
from tf_lowrank_dp._types import Logs


class PeriodicCallback(keras.callbacks.Callback, abc.ABC):
    """Calls `record` before the first step and then as `every` says.

    Args:
        every: number of steps between two records; None for the end of each epoch.
    """

    def __init__(self, every: int | None):
        super().__init__()
        if every is not None:
            _validate.integer_at_least(1, every=every)
        self.every = every

    @abc.abstractmethod
    def record(self) -> None:
        """Records now; custom training loops call it after `set_model(model)`."""

    @property
    @abc.abstractmethod
    def recorded_steps(self) -> list[int]:
        """Number of updates of the weights before each record."""

    def on_train_begin(self, logs: Logs = None) -> None:
        if self.step() not in self.recorded_steps[-1:]:
            self.record()

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        if self.every is not None:
            if self.step() // self.every > self.recorded_steps[-1] // self.every:
                self.record()

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        if self.every is None:
            self.record()

    def step(self) -> int:
        """Number of updates of the weights so far."""
        return int(self.model.optimizer.iterations)

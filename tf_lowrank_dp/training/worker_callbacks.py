"""What keeps several workers in step in Keras' loop: one set of logs and files, one end."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np

from tf_lowrank_dp._types import Logs
from tf_lowrank_dp.spending.digest import FIXED_KEY, digests
from tf_lowrank_dp.training.agreement import share_ledgers
from tf_lowrank_dp.training.state import state_of
from tf_lowrank_dp.workers import Workers

_WRITERS = (
    "BackupAndRestore CSVLogger ModelCheckpoint OrbaxCheckpoint RemoteMonitor TensorBoard"
).split()


def ended_together(fit: Callable) -> Callable:
    """A training function of a model that, when it fails on one worker, ends on the others too."""

    @functools.wraps(fit)
    def ended(model: keras.Model, *args: Any, **kwargs: Any) -> Any:
        with state_of(model).workers.together():
            return fit(model, *args, **kwargs)

    return ended


def in_step(
    workers: Workers, callbacks: Sequence[keras.callbacks.Callback]
) -> list[keras.callbacks.Callback]:
    """The callbacks of one of several workers, with those that keep it in step with the others.

    Args:
        workers: one or several.
        callbacks: of the user.  Those of Keras that write files are the chief's.
    """
    if workers.alone:
        return list(callbacks)
    writers = tuple(getattr(keras.callbacks, n) for n in _WRITERS if hasattr(keras.callbacks, n))
    own = [c for c in callbacks if workers.is_chief or not isinstance(c, writers)]
    return [_LogsOfChief(workers), *own, _InStep(workers)]


class _LogsOfChief(keras.callbacks.Callback):
    """Shows all callbacks the chief's logs of an epoch, and all workers what all have spent."""

    def __init__(self, workers: Workers):
        super().__init__()
        self._workers = workers

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        share_ledgers(self.model, self._workers)  # before the chief's callbacks save
        chiefs = self._workers.gather(json.dumps(logs or {}, default=float))[0]
        if logs is not None:
            logs.clear()
            logs.update(json.loads(chiefs))


class _InStep(keras.callbacks.Callback):
    """After all other callbacks: all stop if one does, and their weights are the same."""

    def __init__(self, workers: Workers):
        super().__init__()
        self._workers = workers

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        self._exchange("step", batch)

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        variables = [*self.model.weights, *self.model.optimizer.variables]
        joined = b"".join(digests(variables, FIXED_KEY))
        short = np.frombuffer(hashlib.blake2b(joined, digest_size=8).digest(), np.int32)
        self._exchange("epoch", epoch, *short.tolist())

    def _exchange(self, what: str, number: int, *values: int) -> None:
        """Compares numbers with those of the others, and stops if one of them stops."""
        stops, *found = zip(
            *self._workers.gather_numbers(int(self.model.stop_training), number, *values),
            strict=True,
        )
        if any(len(set(same)) > 1 for same in found):
            raise RuntimeError(
                f"Expected the same step and the same weights on all workers. Received: at {what} "
                f"{number}, other ones on some, {found}. Whatever a callback changes, let it "
                "change on all of them alike. Start again where the chief has saved."
            )
        if any(stops):
            self.model.stop_training = True

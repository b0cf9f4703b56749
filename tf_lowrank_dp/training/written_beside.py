"""Variables that the steps of `fit` read and nobody trains, which a callback writes: it is warned.

A bank of features, centres of classes or a threshold that a callback computes of private data goes
into the next steps and into files without clip or noise, and nobody can see what it was made of.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import keras

from tf_lowrank_dp._keras.class_names import is_stock
from tf_lowrank_dp._tensorflow import value_behind
from tf_lowrank_dp._types import Logs
from tf_lowrank_dp.spending import SPENDING
from tf_lowrank_dp.spending.digest import digests
from tf_lowrank_dp.training.state import find_run


class WrittenBeside(keras.callbacks.Callback):
    """Warns where others have written a variable that private steps read, and no step updates.

    Guarantee: `fit` warns once, after the epoch in which that was, of any such variable of more
    than one value on which nothing is on record; of one value are the weights of terms that
    schedules change.  What is on record is told as unknown instead.

    It comes behind all other callbacks.

    Args:
        callbacks: all others, stock ones of which write nothing but what is on record.
    """

    def __init__(self, callbacks: Sequence[keras.callbacks.Callback]):
        super().__init__()
        self._callbacks = callbacks
        self._values: dict[int, bytes] = {}

    def on_train_begin(self, logs: Logs = None) -> None:
        self._values = self._digests()

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        self._compare()

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        self._compare()

    def _compare(self) -> None:
        before, self._values = self._values, self._digests()
        if any(before.get(key, value) != value for key, value in self._values.items()):
            warnings.warn(
                "Expected variables that the steps read and nobody trains to stay as they are. "
                "Received: others, which a callback has written. If that was computed of private "
                "data, it is in the next steps and in files without clip or noise, which no "
                "epsilon says: leave it out. Of released weights compute it in "
                "tfdp.post_processing(model). Of public data it may be anything.",
                stacklevel=2,
            )
            self._callbacks = ()  # once is enough

    def _digests(self) -> dict[int, bytes]:
        """By `id` of their handles; none where no callback has code of its own."""
        run = find_run(self.model)
        if run is None or all(map(_is_stock, self._callbacks)):
            return {}
        untrained = self.model.non_trainable_weights
        own = [v.value.handle for v in untrained if not SPENDING.ledger([v]).num_steps]
        handles = {id(each): each for each in [*own, *SPENDING.reads_of_others(run.record)]}
        values = {key: value_behind(each) for key, each in handles.items()}
        read = {k: v for k, v in values.items() if v is not None and v.shape.num_elements() > 1}
        return dict(zip(read, digests([*read.values()]), strict=True))


def _is_stock(callback: keras.callbacks.Callback) -> bool:
    calls = isinstance(callback, keras.callbacks.LambdaCallback)
    return is_stock(type(callback)) and not calls

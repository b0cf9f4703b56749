"""Which trainer released which gradients: they belong in the ledger of the model they update."""

from __future__ import annotations

import weakref
from collections.abc import Sequence

import tensorflow as tf

from tf_lowrank_dp.training.draws import Check
from tf_lowrank_dp.training.state import Run

_OWNERS: weakref.WeakValueDictionary[int, Run] = weakref.WeakValueDictionary()
_TENSORS: weakref.WeakValueDictionary[int, tf.Tensor] = weakref.WeakValueDictionary()

_NONE = (
    "Expected gradients that this trainer has released since its last update, or what was made of "
    "them. Received: others, which would not be in the ledger of this model. Call "
    "trainer.gradients of the trainer that applies them."
)


class HandedOut:
    """The gradients of one trainer, and whether there were any since the last update.

    Formal guarantee: no gradients of another trainer are applied as they are, and none at all
    where this one has released nothing since it applied some.  What is computed of gradients of
    several trainers is not known.

    Args:
        run: that the trainer counts.
    """

    def __init__(self, run: Run):
        assert run.record.updates is not None  # it is no ledger of a file
        self._run, self._updates = run, run.record.updates

    def add(self, gradients: list[tf.Tensor]) -> list[tf.Tensor]:
        """Notes gradients as those of this trainer; gives them back."""
        for gradient in gradients:
            _TENSORS[id(gradient)] = gradient
            _OWNERS[id(gradient)] = self._run
        return gradients

    def refuse_others(self, gradients: Sequence[tf.Tensor]) -> None:
        """Refuses gradients as another trainer has released them.

        Raises:
            RuntimeError: they are.
        """
        if any(_is_released(each) and not self.holds(each) for each in gradients):
            raise RuntimeError(_NONE)

    def holds(self, gradient: tf.Tensor) -> bool:
        """Whether this trainer has released a tensor."""
        return _is_released(gradient) and _OWNERS.get(id(gradient)) is self._run

    def check(self) -> Check:
        """Whether this trainer has released anything since the last update."""
        return self._run.engine.steps > self._updates, _NONE

    def applied(self) -> None:
        """Takes note of an update."""
        self._updates.assign(self._run.engine.steps)


def _is_released(tensor: tf.Tensor) -> bool:
    """Whether any trainer has released it, as it is."""
    return _TENSORS.get(id(tensor)) is tensor

"""Penalties in a `compute_loss` of one's own: they count where it asks for `self.losses`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import keras
import tensorflow as tf

from tf_lowrank_dp.errors import UnsupportedModelError

_SUMS = ("AddV2", "Add", "AddN", "Sum", "Pack", "Identity", "Cast", "Reshape")


@contextlib.contextmanager
def stand_ins_of_penalties(model: keras.Model) -> Iterator[list[tf.Tensor]]:
    """Context in which weight regularisers give zeros, which tell whether anybody asks for them.

    Yields:
        A list of these zeros, as Keras takes them.
    """
    variables = [v for v in model.trainable_variables if v.regularizer is not None]
    originals = [variable.regularizer for variable in variables]
    found: list[tf.Tensor] = []

    def stand_in(value: tf.Tensor) -> tf.Tensor:
        found.append(tf.identity(tf.zeros((), keras.config.floatx())))
        return found[-1]

    try:
        for variable in variables:
            variable.regularizer = stand_in
        yield found
    finally:
        for variable, regularizer in zip(variables, originals, strict=True):
            variable.regularizer = regularizer


def is_made_of(loss: tf.Tensor, penalties: Sequence[tf.Tensor], what: str) -> bool:
    """Whether a loss has penalties among its terms, as they are.

    Args:
        loss: a tensor of a graph.
        penalties: tensors that stand in for them.
        what: the loss, for messages.

    Raises:
        UnsupportedModelError: they are changed on the way.
    """
    names = {tensor.name for tensor in penalties}
    if not names & _reached(loss, ()):
        return False
    if names & _reached(loss, names, _SUMS):
        return True
    raise UnsupportedModelError(
        f"Expected {what} in which penalties of self.losses are added up as they are. Received: "
        "some that are multiplied, or changed otherwise. Give the regularisers their factors, "
        "such as keras.regularizers.L2(0.1 * factor), and add sum(self.losses)."
    )


def _reached(
    loss: tf.Tensor, end_at: Sequence[str] | set[str], through: Sequence[str] = ()
) -> set[str]:
    """Names of the tensors from which one is computed, through operations of these types or all."""
    waiting, seen = [loss], set()
    while waiting:
        tensor = waiting.pop()
        if tensor.name in seen:
            continue
        seen.add(tensor.name)
        if tensor.name not in end_at and (not through or tensor.op.type in through):
            waiting.extend(tensor.op.inputs)
    return seen

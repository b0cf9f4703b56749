"""Penalties in a `compute_loss` of one's own: they count where it asks for `self.losses`."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Sequence

import keras
import tensorflow as tf

from tf_lowrank_dp.errors import UnsupportedModelError

_SUMS = ("AddV2", "Add", "AddN", "Sum", "Pack", "Identity", "Cast", "Reshape")


@contextlib.contextmanager
def stand_ins_of_penalties(model: keras.Model) -> Iterator[list[list[tf.Tensor]]]:
    """Context in which weight regularisers give zeros, which tell whether anybody asks for them.

    Yields:
        For each variable with a regulariser a list of these zeros, one for each time it was asked.
    """
    variables = [v for v in model.trainable_variables if v.regularizer is not None]
    originals = [variable.regularizer for variable in variables]
    stand_ins = [_StandIn() for _ in variables]
    try:
        for variable, stand_in in zip(variables, stand_ins, strict=True):
            variable.regularizer = stand_in
        yield [stand_in.given for stand_in in stand_ins]
    finally:
        for variable, regularizer in zip(variables, originals, strict=True):
            variable.regularizer = regularizer


class _StandIn(keras.regularizers.Regularizer):
    """Gives zeros, and keeps them."""

    def __init__(self) -> None:
        self.given: list[tf.Tensor] = []

    def __call__(self, value: tf.Tensor) -> tf.Tensor:
        self.given.append(tf.identity(tf.zeros((), keras.config.floatx())))
        return self.given[-1]


def is_made_of(loss: tf.Tensor, penalties: Sequence[Sequence[tf.Tensor]], what: str) -> bool:
    """Whether a loss has all penalties among its terms, each once and as it is.

    Args:
        loss: a tensor of a graph.
        penalties: for each the tensors that stand in for it.
        what: the loss, for messages.

    Raises:
        UnsupportedModelError: some are left out, added twice, or changed on the way.
    """
    names = [{tensor.name for tensor in each} for each in penalties]
    if not _reached(loss) & set().union(*names):
        return False
    terms = _terms(loss, set().union(*names), {})
    if all(sum(terms[name] for name in each) == 1 for each in names) and not terms[_CHANGED]:
        return True
    raise UnsupportedModelError(
        f"Expected {what} in which all penalties of self.losses are added up as they are, or none. "
        "Received: some that are left out, multiplied, or changed otherwise. Give the regularisers "
        "their factors, such as keras.regularizers.L2(0.1 * factor), and add sum(self.losses)."
    )


_CHANGED = ""


def _terms(tensor: tf.Tensor, names: set[str], known: dict[str, Counter]) -> Counter:
    """How often each named tensor is a term of a sum; under `_CHANGED` what is none, and not free.

    Args:
        tensor: the sum.
        names: of the tensors that are looked for.
        known: results so far, by name.
    """
    if tensor.name not in known:
        if tensor.name in names:
            known[tensor.name] = Counter([tensor.name])
        elif tensor.op.type in _SUMS:
            parts = [_terms(each, names, known) for each in tensor.op.inputs]
            known[tensor.name] = sum(parts, Counter())
        else:
            known[tensor.name] = Counter([_CHANGED] if _reached(tensor) & names else [])
    return known[tensor.name]


def _reached(loss: tf.Tensor) -> set[str]:
    """Names of the tensors from which one is computed."""
    waiting, seen = [loss], set()
    while waiting:
        tensor = waiting.pop()
        if tensor.name not in seen:
            seen.add(tensor.name)
            waiting.extend(tensor.op.inputs)
    return seen

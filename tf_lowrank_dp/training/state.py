"""What a private model knows about itself: its ledger and the run that trains it."""

from __future__ import annotations

import dataclasses
import hashlib
import weakref

import keras
import numpy as np
import tensorflow as tf

from tf_lowrank_dp.accounting import LedgerEntry, PrivacyLedger, Sampling
from tf_lowrank_dp.errors import NotPrivateError
from tf_lowrank_dp.mechanism.engine import PrivateGradients
from tf_lowrank_dp.optimizers.base import DPOptimizer
from tf_lowrank_dp.training.compiled_loss import CompiledLoss

_ATTRIBUTE = "_privacy_state"
# Ledgers outlive conversion: make_standard and back keeps what was spent.
_LEDGERS: weakref.WeakKeyDictionary[keras.Model, PrivacyLedger] = weakref.WeakKeyDictionary()
# Counters of all releases by the entries of these ledgers: who keeps an old run may still use it.
_COUNTERS: weakref.WeakKeyDictionary[keras.Model, dict[str, tf.Variable]] = (
    weakref.WeakKeyDictionary()
)
# Digests of the weights with which private models became ordinary ones.
_LEFT_WITH: weakref.WeakKeyDictionary[keras.Model, bytes] = weakref.WeakKeyDictionary()


@dataclasses.dataclass
class Run:
    """One optimizer, sampler and noise level at work on a model.

    Attributes:
        engine: computes private gradients and counts its releases.
        optimizer: the optimizer that the run belongs to.
        settings: the optimizer's arguments when the run began.
        variables: the trainable variables when the run began.
        sampling: how the batches are drawn.
        entry: the run's line in the ledger.
        loss: per-example losses of the model, or None in a custom loop.
        allowed_steps: number of releases the budget was calibrated for; None without a budget.
        other_steps: releases of other runs that `allowed_steps` takes into account.
        noted_steps: releases of the run that the ledger's file holds, ahead of those taken.
    """

    engine: PrivateGradients
    optimizer: DPOptimizer
    settings: dict
    variables: list
    sampling: Sampling
    entry: LedgerEntry
    loss: CompiledLoss | None
    allowed_steps: int | None
    other_steps: int
    noted_steps: int = 0

    @property
    def steps(self) -> int:
        """Number of releases so far."""
        return int(self.engine.steps.numpy())


@dataclasses.dataclass
class PrivateState:
    """Kept on the model from `make_private` to `make_standard`.

    Attributes:
        ledger: of the model.
        counters: the releases of every run that the model has had, by the id of its entry.
        microbatch_size: see `make_private`.
        run: the present run.
    """

    ledger: PrivacyLedger
    counters: dict[str, tf.Variable]
    microbatch_size: int | None
    run: Run | None = None

    def sync(self) -> None:
        """Writes the counts of releases into the ledger."""
        _count(self.ledger, self.counters)


def ledger_of(model: keras.Model) -> PrivacyLedger:
    """The ledger of a model, private at present or not; up to date.

    If the weights of a model that was private have changed since `make_standard`, by ordinary
    training or any other way, it says that what was spent is not known.
    """
    ledger = _LEDGERS.setdefault(model, PrivacyLedger())
    _count(ledger, counters_of(model))
    if model in _LEFT_WITH and _LEFT_WITH[model] != _digest(model):
        ledger.mark_prior_spend_unknown()
    return ledger


def counters_of(model: keras.Model) -> dict[str, tf.Variable]:
    """Counters of the releases of all runs that the model has had, by the ids of their entries."""
    return _COUNTERS.setdefault(model, {})


def _count(ledger: PrivacyLedger, counters: dict[str, tf.Variable]) -> None:
    if not tf.inside_function():
        for entry_id, counter in counters.items():
            ledger.update_steps(entry_id, int(counter.numpy()))


def find_state(model: keras.Model) -> PrivateState | None:
    """The state of a private model, None for an ordinary one."""
    return model.__dict__.get(_ATTRIBUTE)


def state_of(model: keras.Model) -> PrivateState:
    """The state of a private model.

    Raises:
        NotPrivateError: the model was not made private.
    """
    state = find_state(model)
    if state is None:
        raise NotPrivateError(
            f"Expected a private model. Received: '{model.name}', which was not converted. Call "
            "tfdp.make_private(model) first."
        )
    return state


def attach_state(model: keras.Model, state: PrivateState) -> None:
    """Puts the state on the model, past Keras' attribute tracking: it is not part of the model."""
    object.__setattr__(model, _ATTRIBUTE, state)
    _LEFT_WITH.pop(model, None)


def detach_state(model: keras.Model) -> None:
    """Takes the state off; the ledger stays known, and what the weights were if any was spent."""
    model.__dict__.pop(_ATTRIBUTE, None)
    if ledger_of(model).num_steps:
        _LEFT_WITH[model] = _digest(model)


def _digest(model: keras.Model) -> bytes:
    """SHA-256 of the weights."""
    digest = hashlib.sha256()
    for variable in model.weights:
        digest.update(np.ascontiguousarray(keras.ops.convert_to_numpy(variable)).tobytes())
    return digest.digest()

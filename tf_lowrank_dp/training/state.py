"""What a private model knows about itself: the run that trains it, and what was spent on it."""

from __future__ import annotations

import dataclasses
import threading
import warnings
from collections.abc import Callable, Sequence

import keras
import tensorflow as tf

from tf_lowrank_dp._keras.layers import layers_of
from tf_lowrank_dp.accounting import LedgerEntry, PrivacyLedger, Sampling
from tf_lowrank_dp.errors import NotPrivateError
from tf_lowrank_dp.mechanism.engine import PrivateGradients
from tf_lowrank_dp.optimizers.base import DPOptimizer
from tf_lowrank_dp.optimizers.ledger_in_file import link, look_at_values
from tf_lowrank_dp.spending import SPENDING, Record, file_of, merged
from tf_lowrank_dp.training.compiled_loss import CompiledLoss
from tf_lowrank_dp.training.judged_graphs import JudgedGraphs
from tf_lowrank_dp.training.passes import Passes
from tf_lowrank_dp.training.step_limit import StepLimit
from tf_lowrank_dp.workers import ALONE, Workers

_ATTRIBUTE = "_privacy_state"


def _counter() -> tf.Variable:
    with tf.init_scope():
        return tf.Variable(0, dtype=tf.int64, trainable=False)


@dataclasses.dataclass(eq=False)
class Run:
    """One optimizer, sampler and noise level at work on a model.

    Attributes:
        engine: computes private gradients and counts its releases.
        optimizer: the optimizer that the run belongs to.
        settings: the optimizer's arguments when the run began.
        variables: the trainable variables when the run began.
        sampling: how the batches are drawn.
        entry: the run's line in the ledger, without its steps.
        record: the same with its steps, as variables keep it.
        loss: per-example losses of the model, or None in a custom loop.
        judged: the graphs that were looked at, None before that.
        limit: the steps that the optimizer's target allows; None without one.
        passes: over shuffled data, in a custom loop.
        public_reads: handles of variables that gradients of public data read, by their `id`.
        others: other records that the model depends on.
        version: of `SPENDING`, when `others` were found.
        noted_steps: int64 variable, releases of the run that the ledger's file holds, ahead of
            those taken.
        noted_others: steps of other runs that the file holds; -1 for nothing.
        rows_per_unit: number of rows of each unit of a batch.
        look_again: at all budgets of the execution that `fit` is about to take; None elsewhere.
        allowed_in_graphs: int64 variable, releases that the budget of a custom loop's graphs
            allows; none when another run has taken its place.
        lock: held while a custom loop checks a step and releases it, by any of its trainers.
    """

    engine: PrivateGradients
    optimizer: DPOptimizer
    settings: dict
    variables: list
    sampling: Sampling
    entry: LedgerEntry
    record: Record
    loss: CompiledLoss | None
    limit: StepLimit | None
    passes: Passes
    public_reads: dict[int, tf.Tensor]
    judged: JudgedGraphs | None = None
    others: frozenset[Record] = frozenset()
    version: int = -1
    noted_steps: tf.Variable = dataclasses.field(default_factory=_counter)
    noted_others: int = -1
    rows_per_unit: int = 1
    look_again: Callable[[], None] | None = None
    allowed_in_graphs: tf.Variable = dataclasses.field(default_factory=_counter)
    lock: threading.RLock = dataclasses.field(default_factory=threading.RLock)

    @property
    def steps(self) -> int:
        """Number of releases so far."""
        return self.record.steps

    @property
    def other_steps(self) -> int:
        """Grows whenever another run spends on what this one depends on, or others come to it."""
        ledgers = [record.ledger for record in self.others]
        return sum(
            each.num_steps + len(each.entries) + each.prior_spend_unknown for each in ledgers
        )

    @property
    def ledger(self) -> PrivacyLedger:
        """What was spent on all that the run updates, by other runs as well."""
        return merged(self.others | {self.record})


@dataclasses.dataclass
class PrivateState:
    """Kept on the model from `make_private` to `make_standard`.

    Attributes:
        microbatch_size: see `make_private`.
        run: the present run.
        workers: see `make_private`.
    """

    microbatch_size: int | None
    run: Run | None = None
    workers: Workers = ALONE


def things_of(model: keras.Model) -> list:
    """All that keeps records for a model: itself, its layers, weights, and optimizer's state."""
    optimizer = getattr(model, "optimizer", None)
    of_optimizer = [] if optimizer is None else [optimizer, *optimizer.variables]
    return [*layers_of(model), *model.weights, *of_optimizer]


def look(model: keras.Model) -> bool:
    """Tells the owner of the ledgers what the model consists of now, and has its values checked.

    Guarantee: its ledger's file, if it has one, holds what is found, in what it reads as well.

    Returns:
        Whether others than private steps are found to have changed some.
    """
    SPENDING.recognise(model.weights)
    for each in layers_of(model):  # models that it holds may be compiled privately as well
        optimizer = getattr(each, "optimizer", None) if isinstance(each, keras.Model) else None
        if isinstance(optimizer, DPOptimizer):
            link(optimizer, each)
    found = look_at_values(model)
    tell_file(model)
    return found


def note_in_file(model: keras.Model) -> None:
    """Writes what was spent on a model to its ledger's file, if it has one."""
    file = file_of(model)
    if file is not None:
        file.add(SPENDING.ledger(things_of(model)))


def tell_file(model: keras.Model) -> None:
    """Does as `note_in_file`; a full disk, where no step is about to be taken, is warned of."""
    try:
        note_in_file(model)
    except (OSError, RuntimeError) as error:
        warnings.warn(
            "Expected to write what is known of a model to its ledger's file. Received: "
            f"'{model.name}', of which the file lacks something until that is done, before the "
            f"next step is taken: {error}",
            stacklevel=2,
        )


def ledger_of(model: keras.Model) -> PrivacyLedger:
    """What was spent on a model, private or not, now: on any variable or layer that it holds."""
    look(model)
    return SPENDING.ledger(things_of(model))


def ledger_with(model: keras.Model, handles: Sequence[tf.Tensor]) -> PrivacyLedger:
    """As `ledger_of`, with what was spent on variables that its steps are going to read.

    Args:
        model: private or not, which was looked at.
        handles: of any variables.
    """
    return merged(SPENDING.records(things_of(model)) | SPENDING.ahead(Record(), handles))


def refuse_other_variables(model: keras.Model, run: Run) -> None:
    """Refuses a step on other variables than those of the run, whose ledger they would not have.

    Raises:
        RuntimeError: a layer was frozen or unfrozen since the run began.
    """
    if [id(v) for v in model.trainable_variables] != [id(v) for v in run.variables]:
        raise RuntimeError(
            "Expected the trainable variables with which training began. Received: "
            f"'{model.name}' with others, as a layer was frozen or unfrozen since. Call fit once "
            "for each stage, or make a new PrivateTrainer."
        )


def find_state(model: keras.Model) -> PrivateState | None:
    """The state of a private model, None for an ordinary one."""
    return model.__dict__.get(_ATTRIBUTE)


def find_run(model: keras.Model) -> Run | None:
    """The present run of a private model, if there is one; None for an ordinary one."""
    state = find_state(model)
    return None if state is None else state.run


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


def detach_state(model: keras.Model) -> None:
    """Takes the state off; what was spent stays with the variables."""
    model.__dict__.pop(_ATTRIBUTE, None)

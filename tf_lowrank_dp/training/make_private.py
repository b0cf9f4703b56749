"""Conversion of a model, and back."""

from __future__ import annotations

import os
import types
from collections.abc import Callable
from typing import Any

import keras

from tf_lowrank_dp import _validate
from tf_lowrank_dp._keras.compiled import record_loss_scaling, record_optimizer
from tf_lowrank_dp.optimizers.base import DPOptimizer
from tf_lowrank_dp.spending import open_file
from tf_lowrank_dp.training.agreement import refuse_other_workers
from tf_lowrank_dp.training.budget import tell_graphs
from tf_lowrank_dp.training.fit import evaluate, fit, predict
from tf_lowrank_dp.training.metrics import reset_metrics
from tf_lowrank_dp.training.other_releases import warn_about_adapted_layers
from tf_lowrank_dp.training.preprocessed import keep_no_words_of
from tf_lowrank_dp.training.saving import load_weights, save, save_weights
from tf_lowrank_dp.training.state import (
    PrivateState,
    attach_state,
    detach_state,
    find_state,
    look,
    things_of,
)
from tf_lowrank_dp.training.train_step import make_train_function, train_step
from tf_lowrank_dp.training.validate_model import validate_layers, validate_model
from tf_lowrank_dp.training.written_beside import (
    save_own_variables,
    tell_what_is_written_beside,
)
from tf_lowrank_dp.workers import ALONE, Workers


def compile_private(model: keras.Model, *args: Any, **kwargs: Any) -> None:
    """Compiles as the model's class does; `model.compile` of a model that was made private.

    What came with the optimizer that is replaced belongs to the model before it is, and what comes
    with the new one from then on.
    """
    look(model)
    type(model).compile(model, *args, **kwargs)
    _save_without_loss_scaling(model)
    look(model)


def load_private(model: keras.Model, *args: Any, **kwargs: Any) -> None:
    """Loads as `saving.load_weights`; `model.load_weights` of a model that was made private.

    What the file says was spent counts in the graphs of a custom loop that goes on.
    """
    load_weights(model, *args, **kwargs)
    tell_graphs(model)


_METHODS: dict[str, Callable] = {
    "train_step": train_step,
    "make_train_function": make_train_function,
    "fit": fit,
    "evaluate": evaluate,
    "predict": predict,
    "reset_metrics": reset_metrics,
    "compile": compile_private,
    "save": save,
    "save_weights": save_weights,
    "load_weights": load_private,
    "save_own_variables": save_own_variables,
}


def make_private(
    model: keras.Model,
    microbatch_size: int | None = None,
    ledger_path: str | os.PathLike | None = None,
    workers: Workers = ALONE,
) -> keras.Model:
    """Makes `model.fit` train privately, in place.

    The model keeps its class, layers and weights; `fit`, `train_step`, `compile`, `evaluate`,
    `predict`, `reset_metrics` and what saves and loads are replaced on this one object, so that it
    trains only with a private optimizer and its ledger is never behind its weights.  Nothing of it
    is saved with the model: call this after loading as well.  Converting again changes
    `microbatch_size`, and keeps the ledger and its file.

    With `ledger_path` steps are noted in a file before they are taken, so that those lost in a
    crash count as well: give the same path when you resume.  Where training ends by itself the
    file is exact; where it is cut off, it counts at most one execution of steps, or 1/64 of the
    steps of the run, too many, and never too few.  `fit` and `PrivateTrainer` write it.

    Args:
        model: a Keras model; one that is not built yet `fit` builds from its data, as Keras does.
        microbatch_size: largest number of examples differentiated at once; more are divided into
            equal parts.  Bounds memory and changes no result but rounding.  None for the whole
            batch.
        ledger_path: a local file for the ledger, in a folder that exists; what it holds is added
            to the model's ledger, for which the model has to be built.  It notes the steps of this
            model object, one training at a time; on a network file system nothing may keep a second
            one away.  Not on Windows.  Of several workers only the chief opens it.
        workers: the processes that train the model together, from `tfdp.join_workers()`: each
            trains on rows of its own, and only released sums travel (`docs/scale.md`).

    Returns:
        The same model.

    Raises:
        UnsupportedModelError: the model mixes examples, or trains nothing.
        OSError: the file cannot be opened or written.
        RuntimeError: another process uses the file, or files cannot be locked.
        ValueError: the file is damaged, or no ledger, or holds one and the model is not built; it
            is left as it is.

    Example:

    >>> import keras, tf_lowrank_dp as tfdp
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    >>> tfdp.make_private(model) is model
    True
    """
    if microbatch_size is not None:
        _validate.integer_at_least(1, microbatch_size=microbatch_size)
    refuse_other_workers(workers)
    validate_layers(model)
    if model.built:
        validate_model(model)
    look(model)
    warn_about_adapted_layers(model)
    keep_no_words_of(model)
    tell_what_is_written_beside(model)
    if ledger_path is not None and workers.is_chief:
        open_file(model, ledger_path, things_of(model))
        look(model)
    _save_without_loss_scaling(model)
    attach_state(model, PrivateState(microbatch_size, workers=workers))
    for name, function in _METHODS.items():
        object.__setattr__(model, name, types.MethodType(function, model))
    model.train_function = None
    return model


def make_standard(model: keras.Model) -> keras.Model:
    """Undoes `make_private`, in place: an ordinary Keras model without a trace of this package.

    A private optimizer is replaced by its inner optimizer, with its state.  What was spent stays
    known for as long as the variables live.

    Args:
        model: a private model, or one that was loaded with a private optimizer.

    Returns:
        The same model.
    """
    optimizer = _without_loss_scaling(getattr(model, "optimizer", None))
    if find_state(model) is None and not isinstance(optimizer, DPOptimizer):
        return model
    look(model)
    tell_what_is_written_beside(model)
    for name in _METHODS:
        model.__dict__.pop(name, None)
    detach_state(model)
    if isinstance(optimizer, DPOptimizer):
        model.optimizer = optimizer.inner_optimizer
        record_optimizer(model, optimizer.inner_optimizer)
        record_loss_scaling(model, True)
    model.train_function = None
    return model


def _save_without_loss_scaling(model: keras.Model) -> None:
    """Else a file that is loaded under `mixed_float16` would lose its ledger."""
    if isinstance(getattr(model, "optimizer", None), DPOptimizer):
        record_loss_scaling(model, False)


def _without_loss_scaling(optimizer: keras.optimizers.Optimizer) -> keras.optimizers.Optimizer:
    """The private optimizer inside of a `LossScaleOptimizer`; anything else as it is."""
    inner = getattr(optimizer, "inner_optimizer", None)
    return inner if isinstance(inner, DPOptimizer) else optimizer

"""Saving and loading of private models: files are whole, and ledgers come with weights."""

from __future__ import annotations

import contextlib
import json
import os
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from tf_lowrank_dp._keras.compiled import epoch_files, record_optimizer
from tf_lowrank_dp._keras.layers import layers_of
from tf_lowrank_dp.errors import NotPrivateError
from tf_lowrank_dp.optimizers.base import DPOptimizer
from tf_lowrank_dp.optimizers.ledger_in_file import ledgers_looked_for, values_of
from tf_lowrank_dp.spending import SPENDING
from tf_lowrank_dp.training.state import find_state, ledger_of, look, things_of

_ORBAX = getattr(keras.callbacks, "OrbaxCheckpoint", ())  # of later versions of Keras


def save(
    model: keras.Model,
    filepath: str | os.PathLike,
    overwrite: bool = True,
    *args: Any,
    **kwargs: Any,
) -> None:
    """Saves as the model's class does; `model.save` of a model that was made private.

    Of several workers the chief writes; on the others nothing happens.

    A file that is there already is replaced when the new one is complete and on the disk.  If
    saving fails or the process is killed, the old one is kept.

    Raises:
        ValueError: the format has no place for the ledger.
    """
    if str(filepath).endswith((".h5", ".hdf5")):
        raise ValueError(
            f"Expected a file of Keras' own format for a private model. Received: {filepath}; "
            "HDF5 does not keep what was spent. Save as '.keras', or the weights alone with "
            "save_weights, or call tfdp.make_standard(model) first."
        )
    optimizer, ledger = getattr(model, "optimizer", None), ledger_of(model)
    carries = isinstance(optimizer, DPOptimizer) and record_optimizer(model, optimizer)
    if ledger.entries and not (carries and _is_told_of(optimizer, model.get_compile_config())):
        warnings.warn(
            "Expected a model that is compiled, and saved, with its private optimizer, which "
            f"carries the ledger. Received: optimizer={type(optimizer).__name__}, compiled="
            f"{model.compiled}; what was spent is not saved with the model. Compile it, or keep "
            "tfdp.privacy_statement(model) beside the file.",
            stacklevel=2,
        )
    if not _writes_files(model):
        return
    with _replaced(filepath, overwrite) as path:
        type(model).save(model, path, overwrite, *args, **kwargs)


def _is_told_of(optimizer: keras.optimizers.Optimizer, config: dict | None) -> bool:
    """Whether what a class of its own says of its `compile` names the class of an optimizer."""
    return type(optimizer).__name__ in str(config)


def save_with(model: keras.Model, optimizer: DPOptimizer) -> None:
    """Has an optimizer saved with a model, which may have got it as an attribute.

    Raises:
        NotPrivateError: Keras would save none, as the model was never compiled.
    """
    if not record_optimizer(model, optimizer):
        raise NotPrivateError(
            "Expected a model that is compiled with its private optimizer. Received: "
            f"'{model.name}', which was never compiled: Keras would save it without the optimizer "
            "in model.optimizer, and so without what was spent. Call "
            "model.compile(optimizer=model.optimizer), which a custom loop needs no loss for; a "
            "compile of the model's own has to call super().compile(optimizer=...)."
        )


def save_weights(
    model: keras.Model,
    filepath: str | os.PathLike,
    overwrite: bool = True,
    max_shard_size: float | None = None,
) -> None:
    """Saves as the model's class does; `model.save_weights` of a model that was made private.

    As with `save`, the chief of several workers writes, and the old file is kept until the new one
    is complete.  Shards are not.
    """
    look(model)
    if not _writes_files(model):
        return
    if max_shard_size is not None:
        type(model).save_weights(model, filepath, overwrite, max_shard_size)
        return
    with _replaced(filepath, overwrite) as path:
        type(model).save_weights(model, path, overwrite)


def _writes_files(model: keras.Model) -> bool:
    state = find_state(model)
    return state is None or state.workers.is_chief


def refuse_checkpoints(callbacks: Sequence[keras.callbacks.Callback]) -> None:
    """Refuses Keras' callback that saves a model without what was spent on it.

    Raises:
        ValueError: there is one.
    """
    if any(isinstance(each, _ORBAX) for each in callbacks):
        raise ValueError(
            "Expected callbacks whose files keep what was spent. Received: OrbaxCheckpoint, which "
            "saves weights and slots without the ledger: a model that is loaded from it would say "
            "that nothing was spent. Use keras.callbacks.ModelCheckpoint, or BackupAndRestore to "
            "go on where a process has ended."
        )


def load_private_model(path: str) -> keras.Model:
    """A saved model with its private optimizer.

    Raises:
        ValueError: the file is none of a private model, or of classes that nobody registered.
    """
    if not path.endswith(".keras"):
        raise ValueError(
            f"Expected a .keras file, which holds model and ledger. Received: {path}. Weights "
            "alone: load them into the model, and call tfdp.privacy_report(model)."
        )
    try:
        model = keras.models.load_model(path)
    except TypeError as error:  # Keras' own, of several lines
        raise ValueError(
            f"Expected a file of classes that are known. Received: {path}, which Keras cannot "
            f"load ({str(error).strip().splitlines()[0]}). Name the module that registers them "
            "with keras.saving.register_keras_serializable: --import my_package.my_layers"
        ) from error
    optimizer = getattr(model, "optimizer", None)
    if not isinstance(optimizer, DPOptimizer):
        raise ValueError(
            "Expected a model that was saved with its private optimizer, which keeps the ledger. "
            f"Received: {path} with {type(optimizer).__name__}: what was spent on it is "
            "not known."
        )
    return model


def load_weights(
    model: keras.Model, filepath: str | os.PathLike, *args: Any, **kwargs: Any
) -> None:
    """Loads as the model's class does; `model.load_weights` of a model that was made private.

    All is loaded, the ledger included, or an error is raised and nothing has changed.  Weights
    that come without a ledger are marked: what was spent on them is not known.
    """
    look(model)
    optimizers = _optimizers_in(model)
    private = [each for each in optimizers if isinstance(each, DPOptimizer)]
    restore_points = [each.algorithm_state.restore_point() for each in private]
    variables = [*model.variables, *(v for each in optimizers for v in each.variables)]
    try:
        with (
            ledgers_looked_for() as looked_for,
            SPENDING.undone_on_error(),
            _all_or_nothing(variables),
        ):
            type(model).load_weights(model, filepath, *args, **kwargs)
    except BaseException:
        for restore in restore_points:
            restore()
        raise
    if id(getattr(model, "optimizer", None)) not in looked_for:
        SPENDING.mark_unknown(things_of(model))
    SPENDING.see(values_of(model))


def _optimizers_in(model: keras.Model) -> list[keras.optimizers.Optimizer]:
    """Those that a file of the model has: of models inside of it as well, and other attributes."""
    found = []
    for value in [value for layer in layers_of(model) for value in vars(layer).values()]:
        held = value.values() if isinstance(value, dict) else value
        held = held if isinstance(value, dict | list | tuple) else [value]
        found += [each for each in held if isinstance(each, keras.optimizers.Optimizer)]
    return found


def restore_backup(model: keras.Model, callbacks: Sequence) -> None:
    """Lets `BackupAndRestore` restore before the noise is calibrated, not only after it."""
    for callback in callbacks:
        if isinstance(callback, keras.callbacks.BackupAndRestore):
            callback.set_model(model)
            _mend_epoch(callback)
            callback.on_train_begin()


def _mend_epoch(callback: keras.callbacks.BackupAndRestore) -> None:
    """Replaces a torn number of the epoch by the one saved before, if there is one.

    Keras writes it in place after the weights.  A process that is killed meanwhile leaves a text
    that cannot be read.  The weights and their ledger are whole; an epoch may be repeated.
    """
    path, previous = (Path(file) for file in epoch_files(callback))
    if not path.exists() or _is_json(path):
        return
    if previous.exists() and _is_json(previous):
        os.replace(previous, path)
    else:
        path.unlink()


def _is_json(path: Path) -> bool:
    try:
        json.loads(path.read_text())
    except ValueError:
        return False
    return True


@contextlib.contextmanager
def _all_or_nothing(variables: Sequence[keras.Variable]) -> Iterator:
    """Gives the variables their values back if an error is raised."""
    before = [tf.identity(variable.value) for variable in variables]
    try:
        yield
    except BaseException:
        for variable, value in zip(variables, before, strict=True):
            variable.assign(value)
        raise


@contextlib.contextmanager
def _replaced(filepath: str | os.PathLike, overwrite: bool) -> Iterator:
    """Gives a path to write to; the file takes the place of `filepath` when it is complete."""
    is_file = str(filepath).endswith((".keras", ".weights.h5")) and "://" not in str(filepath)
    if not is_file or (os.path.exists(filepath) and not overwrite):
        yield filepath
        return
    path = Path(os.path.realpath(filepath))
    unfinished = path.with_name(f".unfinished-{os.getpid()}-{path.name}")
    for left in path.parent.glob(f".unfinished-*-{path.name}"):
        process = left.name.split("-")[1]
        if process.isdigit() and not _is_running(int(process)):
            left.unlink(missing_ok=True)
    try:
        yield unfinished
        with open(unfinished, "rb") as file:
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def _is_running(process: int) -> bool:
    """Whether a process of this machine, which may write a file of its own, has not ended."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it is somebody else's
        pass
    return True

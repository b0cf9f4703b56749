"""What `compile` and callbacks leave in a model and in themselves: losses, metrics, file names."""

from __future__ import annotations

import gc
import inspect
import threading
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import keras
import tensorflow as tf

from tf_lowrank_dp._keras.missing import uses_private_names
from tf_lowrank_dp._types import LossLike, Nested


@uses_private_names
def takes_training(model: keras.Model) -> bool:
    """Whether the model's `call` has an argument `training`."""
    return model._call_has_training_arg


def models_compiled_with(optimizer: keras.optimizers.Optimizer) -> list[keras.Model]:
    """The living models whose optimizer this is, under a `LossScaleOptimizer` as well.

    Keras tells an optimizer neither that a model is compiled with it nor what it is saved with.
    Only what refers to the optimizer is touched: a reference to whatever lives would break tuples
    that another thread is making, such as one that reads data.  Python looks for no cycles
    meanwhile: eager tensors make their dictionaries when they are asked what they refer to, and a
    collection that begins there rearranges the lists that are walked.
    """
    found: dict[int, keras.Model] = {}
    holders: list = [optimizer]
    for _ in range(_HELD_BY):
        with _WALKING:
            collects = gc.isenabled()
            gc.disable()
            try:
                referrers = gc.get_referrers(*holders)
            finally:
                if collects:
                    gc.enable()
        holders = [each for each in referrers if type(each) in _HOLDERS and each is not holders]
        for thing in referrers:
            if issubclass(type(thing), keras.Model):
                own = getattr(thing, "optimizer", None)
                if own is optimizer or getattr(own, "inner_optimizer", None) is optimizer:
                    found[id(thing)] = thing
    return [*found.values()]


_WALKING = threading.Lock()  # else one thread could take another's pause for the user's wish
_HOLDERS = (dict, list, tuple, keras.optimizers.LossScaleOptimizer)
_HELD_BY = 5  # a model, its attributes, another optimizer around it, and that one's attributes


class LossObserver(Protocol):
    """What is told the value of each single loss."""

    variables: Sequence[keras.Variable]

    def update_state(self, value: tf.Tensor, sample_weight: tf.Tensor | None = None) -> None:
        """Takes the value of this loss, once a call."""


Observer = TypeVar("Observer", bound=LossObserver)


@uses_private_names
def compiled_loss(model: keras.Model) -> keras.losses.Loss | None:
    """The compiled losses of a model as one function `(y_true, y_pred, sample_weight)`, or None.

    Another object each time the model is compiled.
    """
    return model._compile_loss


@uses_private_names
def loss_object(loss: LossLike, y_true: Nested, y_pred: Nested) -> keras.losses.Loss:
    """What `compile` makes of the loss of one output: a name, a function or a `Loss`.

    Args:
        loss: as given to `compile`.
        y_true, y_pred: of which the shapes decide what "crossentropy" means.
    """
    from keras.src.trainers.compile_utils import get_loss

    return get_loss(loss, y_true, y_pred)


def name_of_loss(loss: LossLike) -> str:
    """The name by which Keras reports the loss of an output that has no name."""
    if isinstance(loss, str):
        return loss
    return str(getattr(loss, "name", None) or getattr(loss, "__name__", "loss"))


@uses_private_names
def same_ranks(y_true: Nested, y_pred: Nested) -> tuple[Nested, Nested]:
    """Targets and outputs as Keras' losses see them: a last axis of length 1 that one lacks is
    added, or dropped from the other."""
    from keras.src.losses.loss import squeeze_or_expand_to_same_rank

    pairs = keras.tree.map_structure(squeeze_or_expand_to_same_rank, y_true, y_pred)
    return tuple(
        keras.tree.map_structure_up_to(y_true, lambda pair, i=i: pair[i], pairs) for i in range(2)
    )


@uses_private_names
def losses_and_weights(compiled: keras.losses.Loss) -> tuple[Nested, Nested]:
    """The `loss` and the `loss_weights` given to `compile`, of a `compiled_loss`."""
    return compiled._user_loss, compiled._user_loss_weights


@uses_private_names
def with_losses(compiled: keras.losses.Loss, losses: Nested) -> keras.losses.Loss:
    """A `compiled_loss` with the same weights and names of outputs, not yet built.

    Args:
        compiled: a `compiled_loss`.
        losses: nested as the first of `losses_and_weights`.
    """
    return type(compiled)(losses, compiled._user_loss_weights, output_names=compiled.output_names)


@uses_private_names
def observe_losses(compiled: keras.losses.Loss, observer: Callable[[], Observer]) -> list[Observer]:
    """Has the value of each single loss given to an observer, in place of the metric of this loss.

    Args:
        compiled: a built `compiled_loss`.
        observer: makes one for a loss.

    Returns:
        The observers, one for each loss.
    """
    observers = [observer() for _ in compiled._flat_losses]
    compiled._metrics[:] = observers
    return observers


@uses_private_names
def loss_tracker(model: keras.Model) -> keras.metrics.Mean:
    """The metric "loss" of a compiled model."""
    return model._loss_tracker


@uses_private_names
def compiled_metrics(model: keras.Model) -> keras.metrics.Metric | None:
    """The metrics given to `compile` as one metric of all outputs, or None."""
    return model._compile_metrics


@uses_private_names
def loss_of_step(
    model: keras.Model, x: Nested, y: Nested, y_pred: Nested, sample_weight: Nested
) -> tf.Tensor:
    """What the model's `compute_loss` gives a training step, whatever arguments it takes."""
    return model._compute_loss(x=x, y=y, y_pred=y_pred, sample_weight=sample_weight, training=True)


def called_by_fit(arguments: dict) -> bool:
    """Whether these keyword arguments of `evaluate` are those with which `fit` validates."""
    return bool(arguments.get("_use_cached_eval_dataset"))


@uses_private_names
def trained_by(optimizer: keras.optimizers.Optimizer) -> list[keras.Variable]:
    """The variables that an optimizer was built with; none before that."""
    return [*optimizer._trainable_variables] if optimizer.built else []


@uses_private_names
def record_optimizer(model: keras.Model, optimizer: keras.optimizers.Optimizer) -> bool:
    """Has a compiled model saved as one that was compiled with this optimizer.

    Returns:
        Whether it was compiled, by Keras.  No optimizer is saved of a model that was not.
    """
    config = getattr(model, "_compile_config", None)
    if not model.compiled or config is None:
        return False
    config.config["optimizer"] = optimizer
    return True


@uses_private_names
def record_loss_scaling(model: keras.Model, scaled: bool) -> None:
    """Has a compiled model saved as one that was compiled with or without loss scaling.

    Keras saves no `auto_scale_loss`: under `mixed_float16` a loaded model has its optimizer inside
    of another, and what the file holds of the optimizer is left out.

    Args:
        model: of any class; nothing happens where its own `compile` has no such argument.
        scaled: whether Keras may, which it saves nothing for.
    """
    config = getattr(model, "_compile_config", None)
    parameters = inspect.signature(type(model).compile).parameters
    if config is None or "auto_scale_loss" not in parameters:
        return
    config.config.pop("auto_scale_loss", None)
    if not scaled:
        config.config["auto_scale_loss"] = False


@uses_private_names
def writes_hdf5() -> bool:
    """Whether Keras asks for a config in order to write it to an HDF5 file, or reads one there."""
    from keras.src.backend.common import global_state

    return bool(global_state.get_global_attribute("use_legacy_config", False))


@uses_private_names
def epoch_files(callback: keras.callbacks.BackupAndRestore) -> tuple[str, str]:
    """The paths at which a backup keeps its number of epochs, and the number before that."""
    return callback._training_metadata_path, callback._prev_training_metadata_path


def first_epoch(model: keras.Model, initial_epoch: int) -> int:
    """The epoch with which `fit` begins: that of a backup that was restored, or the one given."""
    return model._initial_epoch or initial_epoch

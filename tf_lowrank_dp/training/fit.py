"""The private `fit`: sample, calibrate, probe, then Keras' own training loop."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import keras
import tensorflow as tf

from tf_lowrank_dp import _validate
from tf_lowrank_dp._keras.compiled import called_by_fit, first_epoch
from tf_lowrank_dp._types import Nested
from tf_lowrank_dp.sampling import to_rows
from tf_lowrank_dp.sampling.python_numbers import secret_python_numbers
from tf_lowrank_dp.training.agreement import facts_of
from tf_lowrank_dp.training.callbacks import PrivacyBudget
from tf_lowrank_dp.training.compiled_loss import CompiledLoss
from tf_lowrank_dp.training.counted_reads import count_reads
from tf_lowrank_dp.training.data import TrainingData, split_rows, training_data
from tf_lowrank_dp.training.evaluation_data import evaluation_data
from tf_lowrank_dp.training.judged_fit import judged_graphs
from tf_lowrank_dp.training.metrics import build_metrics
from tf_lowrank_dp.training.other_releases import (
    losses_of,
    map_of,
    note_adapted_layers,
    warn_about_adapted_layers,
)
from tf_lowrank_dp.training.preprocessed import is_task
from tf_lowrank_dp.training.private_choices import validates_private, warn_about_choices
from tf_lowrank_dp.training.public_overlap import warn_about_overlap
from tf_lowrank_dp.training.running_fit import refuse_nesting, running
from tf_lowrank_dp.training.saving import refuse_checkpoints, restore_backup
from tf_lowrank_dp.training.start_run import start_run, units_of_parts
from tf_lowrank_dp.training.state import look, state_of
from tf_lowrank_dp.training.step_guards import BudgetGuard, StepGuard
from tf_lowrank_dp.training.symbolic_call import build_model
from tf_lowrank_dp.training.train_step import private_optimizer
from tf_lowrank_dp.training.unit_arguments import check_units
from tf_lowrank_dp.training.validate_model import validate_model, validate_training_step
from tf_lowrank_dp.training.watched_weights import as_list, changes_are_told, known_to_graphs
from tf_lowrank_dp.training.worker_callbacks import ended_together, in_step
from tf_lowrank_dp.training.written_beside import (
    tell_what_is_written_beside,
    told_what_is_written_beside,
)


@ended_together
def fit(
    model: keras.Model,
    x: Nested = None,
    y: Nested = None,
    batch_size: int | None = None,
    epochs: int = 1,
    verbose: int | str = "auto",
    callbacks: keras.callbacks.Callback | Sequence[keras.callbacks.Callback] | None = None,
    validation_split: float = 0.0,
    validation_data: Nested = None,
    shuffle: bool = True,
    class_weight: dict[int, float] | None = None,
    sample_weight: Nested = None,
    initial_epoch: int = 0,
    steps_per_epoch: int | None = None,
    validation_steps: int | None = None,
    validation_batch_size: int | None = None,
    validation_freq: int | Sequence[int] = 1,
    *,
    sampling: str | None = None,
    sampling_rate: float | None = None,
    num_examples: int | None = None,
    unit_ids: Nested = None,
    rows_per_unit: int | None = None,
    augment: Callable | None = None,
    multiplicity: int = 1,
    sharded: bool = False,
) -> keras.callbacks.History:
    """Trains a private model; `model.fit` of a model that was made private.

    Arguments are those of `keras.Model.fit`, with these differences:

    Args:
        model: private and compiled with a private optimizer.
        x: arrays (numpy, tensors, nested, strings) are sampled here: every step includes each
            example independently with probability `batch_size / num_examples`.  A
            `PoissonSampler` is used as it is.  A `tf.data.Dataset`, generator or `PyDataset`
            needs `sampling`.
        batch_size: expected number of examples in a step.
        epochs: an epoch has `ceil(num_examples / batch_size)` steps.
        shuffle: has no meaning for sampled data.
        sampling: for data that come in batches, how they were drawn: "poisson", with
            `sampling_rate` (or `num_examples` and `batch_size`), or "shuffle": each example at
            most once an epoch.  With either you promise that each row is made of one example and
            that what one holds does not decide where others are; statements name the promise.
        sampling_rate: probability with which each example is in a batch.
        num_examples: number of private examples, a public number.
        unit_ids: integers `(n,)`: which user each row is of.  Privacy is that of users then: a step
            draws users, `batch_size` of them expected, and clips the mean gradient of its rows of
            each.  Arrays only.
        rows_per_unit: with `unit_ids`, the largest number of rows of a user in a step; of a user
            who has more, they are drawn anew at each step.
        augment: a layer, or function of inputs `(b, ...)` in TensorFlow, applied to them in each
            step before the model is.
        multiplicity: number of copies of each row in a step, each with random numbers of its own in
            `augment` and in the model, whose gradients are averaged before the clip.
        sharded: of several workers: each passes rows that no other has, which is your word, and
            the `batch_size` of all; else all pass the same rows in the same order.

    Returns:
        Keras' history.  Loss and metrics in it are computed without noise: they are not private.

    Raises:
        PrivacyBudgetExceededError: the next step would overspend; what was done is kept.
        NotPrivateError: the optimizer is not private, or a callback has exchanged it.
        RuntimeError: `fit` of this model is running already.
        UnsupportedModelError: the model, loss or data cannot be trained privately.
        ValueError: contradictory arguments, or workers that differ.
        WorkerLostError: another worker has ended.
    """
    del shuffle
    refuse_nesting(model)
    epochs = _validate.integer_at_least(0, epochs=epochs)
    initial_epoch = _validate.integer_at_least(0, initial_epoch=initial_epoch)
    if steps_per_epoch is not None:  # fewer than one would be beyond every budget
        steps_per_epoch = _validate.integer_at_least(1, steps_per_epoch=steps_per_epoch)
    if not isinstance(validation_freq, Sequence | set):
        validation_freq = _validate.integer_at_least(1, validation_freq=validation_freq)
    if not model.compiled:
        raise ValueError(
            f"Expected a compiled model. Received: '{model.name}', which is not. Call "
            "model.compile(optimizer, loss) with a private optimizer first."
        )
    validate_training_step(model)
    optimizer = private_optimizer(model)
    optimizer.check_settings()
    adapted = warn_about_adapted_layers(model, augment, map_of(x), *losses_of(model))
    callbacks = as_list(callbacks)
    refuse_checkpoints(callbacks)
    warn_about_choices(callbacks, validates_private(x, validation_data, validation_split))
    check_units(
        model,
        x,
        unit_ids=unit_ids,
        rows_per_unit=rows_per_unit,
        multiplicity=multiplicity,
        validation_split=validation_split,
        gradient_method=optimizer.gradient_method,
    )
    if validation_split and validation_data is None:
        (x, y, sample_weight), validation_data = split_rows(x, y, sample_weight, validation_split)
    seeded = optimizer.seed is not None
    with secret_python_numbers(seeded):  # generators are read ahead of
        data = training_data(
            model,
            x,
            y,
            sample_weight=sample_weight,
            class_weight=class_weight,
            batch_size=batch_size,
            steps_per_epoch=steps_per_epoch,
            sampling=sampling,
            sampling_rate=sampling_rate,
            num_examples=num_examples,
            seed=optimizer.seed,
            unit_ids=unit_ids,
            rows_per_unit=rows_per_unit,
            sharded=sharded,
        )
    build_model(model, data.element_spec["x"])
    data = data.completed(model).repeated(multiplicity)
    validate_model(model, data.element_spec["x"])
    _warn_about_delta(optimizer.delta, data.sampling.num_examples)
    steps = max(1, (epochs - initial_epoch) * _steps_taken(model, data))
    loss = CompiledLoss(model, float(data.sampling.batch_size), augment)
    compiled = bool(model.jit_compile) and not model.run_eagerly
    state = state_of(model)
    workers, per_unit = state.workers, data.rows_per_unit
    sizes = units_of_parts(data.sampling, state.microbatch_size, per_unit, workers.count)
    method = optimizer.gradient_method
    judged, loss = judged_graphs(model, loss, data, method, *sizes, per_unit, compiled)
    if loss.y_pred_spec is not None:
        build_metrics(model, data.element_spec.get("y"), loss.y_pred_spec)
    if optimizer.public_data is not None:
        warn_about_overlap(optimizer.public_data.features, x)
    spec = data.element_spec.get("y")
    callbacks = in_step(workers, callbacks)
    restore_backup(model, callbacks)
    [[initial_epoch], *_] = workers.gather_numbers(first_epoch(model, initial_epoch))
    tell_what_is_written_beside(model)  # before what is trained from now on is on record
    reads = [*data.reads, *judged.reads]
    run = start_run(
        model,
        data.sampling,
        steps,
        seeded=data.seeded,
        loss=loss,
        target_spec=spec,
        rows_per_unit=data.rows_per_unit,
        units=judged.units,
        facts=None if workers.alone else facts_of(data, epochs, augment, workers),
        reads=reads,
    )
    note_adapted_layers(model, adapted)
    run.judged = judged
    judged.count_for(lambda handles: count_reads(run, handles))
    judged.add_reads([*reads, *run.public_reads.values()])
    validation_batch_size = validation_batch_size or batch_size or 32
    guard = BudgetGuard(_steps_taken(model, data), new_passes=data.ends, others=callbacks)
    budgets = [each for each in callbacks if isinstance(each, PrivacyBudget)]
    for callback in budgets:
        callback.steps_per_epoch = _steps_taken(model, data)
    callbacks = [guard, *callbacks, StepGuard(guard, budgets)]
    known, told = known_to_graphs(model), changes_are_told(model)
    beside = told_what_is_written_beside(model)
    with known, running(model, run), told, beside, secret_python_numbers(seeded):
        return keras.Model.fit(
            model,
            data.dataset,
            epochs=epochs,
            verbose=verbose if workers.is_chief else 0,
            callbacks=callbacks,
            validation_data=_validation(model, validation_data, validation_batch_size),
            initial_epoch=initial_epoch,
            steps_per_epoch=None if data.ends else data.steps_per_epoch,
            validation_steps=validation_steps,
            validation_batch_size=validation_batch_size,
            validation_freq=validation_freq,
            shuffle=False,
        )


def evaluate(model: keras.Model, *args: Any, **kwargs: Any) -> Nested:
    """`model.evaluate` of a model that was made private: as its class does.

    Callbacks may swap weights meanwhile (`SwapEMAWeights`).  `fit` has preprocessed the validation
    data of KerasHub tasks, which some versions of KerasHub would do again.
    """
    of_task = is_task(model) and called_by_fit(kwargs)
    own = keras.Model.evaluate if of_task else type(model).evaluate
    return _without_training(model, own, *args, **kwargs)


def predict(model: keras.Model, *args: Any, **kwargs: Any) -> Nested:
    """`model.predict` of a model that was made private: as its class does.

    Callbacks may swap weights meanwhile (`SwapEMAWeights`).
    """
    return _without_training(model, type(model).predict, *args, **kwargs)


def _without_training(model: keras.Model, own: Callable, *args: Any, **kwargs: Any) -> Nested:
    """Calls Keras' or a model's own way, and tells what is changed on the way."""
    look(model)
    given = inspect.signature(own).bind_partial(model, *args, **kwargs)
    for arguments in (given.arguments, given.arguments.get("kwargs", {})):
        if "callbacks" in arguments and not called_by_fit(kwargs):  # `fit` has given its own
            arguments["callbacks"] = as_list(arguments["callbacks"])
    if "x" in given.arguments:
        size = given.arguments.get("batch_size")
        given.arguments["x"] = evaluation_data(given.arguments["x"], size)
    # `fit` looks itself, when it ends.
    beside = nullcontext() if called_by_fit(kwargs) else told_what_is_written_beside(model)
    with changes_are_told(model), beside:
        return own(*given.args, **given.kwargs)


def _steps_taken(model: keras.Model, data: TrainingData) -> int:
    """Steps of an epoch as Keras takes them: executions are cut short only where data end."""
    if data.ends:
        return data.steps_per_epoch
    return math.ceil(data.steps_per_epoch / model.steps_per_execution) * model.steps_per_execution


def _validation(model: keras.Model, validation_data: Nested, batch_size: int) -> Nested:
    """Records in batches, preprocessed for KerasHub tasks; evaluation is Keras' own."""
    validation_data = evaluation_data(validation_data, batch_size)
    if not is_task(model) or validation_data is None:
        return validation_data
    if isinstance(validation_data, (tuple, list)):
        parts = [to_rows(part, "validation_data") for part in validation_data if part is not None]
        validation_data = tf.data.Dataset.from_tensor_slices(tuple(parts)).batch(batch_size)
    if not isinstance(validation_data, tf.data.Dataset):
        return validation_data
    return validation_data.map(model.preprocess_samples, num_parallel_calls=tf.data.AUTOTUNE)


def _warn_about_delta(delta: float | None, num_examples: int | None) -> None:
    if delta is not None and num_examples is not None and delta * num_examples >= 1.0:
        warnings.warn(
            f"Expected delta below 1 / number of examples = {1.0 / num_examples:.2e}. Received: "
            f"{delta}. Such a delta allows to publish an example as it is; choose a smaller one.",
            stacklevel=3,
        )

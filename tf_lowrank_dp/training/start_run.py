"""Binding a compiled private model to a sampler: calibration, ledger entry, engine."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Mapping, Sequence

import keras
import tensorflow as tf

from tf_lowrank_dp._keras.layers import layers_of
from tf_lowrank_dp._types import Nested
from tf_lowrank_dp.accounting import (
    LedgerEntry,
    PrivacyLedger,
    Sampling,
    calibrate_noise_multiplier,
)
from tf_lowrank_dp.layers.parameters import describe_parameters
from tf_lowrank_dp.mechanism.engine import PrivateGradients
from tf_lowrank_dp.mechanism.gaussian import GaussianMechanism
from tf_lowrank_dp.mechanism.noise import NoiseGenerator
from tf_lowrank_dp.optimizers.base import DPOptimizer
from tf_lowrank_dp.per_example.arithmetic import refuse_rewritten_products
from tf_lowrank_dp.sampling.padding import part_rows
from tf_lowrank_dp.spending import SPENDING, Record
from tf_lowrank_dp.tracing.secret_stream import SecretStream
from tf_lowrank_dp.training.agreement import (
    chosen_by_chief,
    compare,
    refuse_other_workers,
    take_values_of_chief,
)
from tf_lowrank_dp.training.compiled_loss import CompiledLoss
from tf_lowrank_dp.training.passes import Passes
from tf_lowrank_dp.training.public_gradients import public_gradients
from tf_lowrank_dp.training.random_batch import with_known_words
from tf_lowrank_dp.training.refused_history import refuse_history, refuse_next_step
from tf_lowrank_dp.training.running_fit import refuse_nesting
from tf_lowrank_dp.training.saving import save_with
from tf_lowrank_dp.training.state import Run, ledger_of, ledger_with, state_of, things_of
from tf_lowrank_dp.training.step_limit import StepLimit
from tf_lowrank_dp.training.train_step import private_optimizer


def start_run(
    model: keras.Model,
    sampling: Sampling,
    steps: int,
    *,
    seeded: bool = False,
    loss: CompiledLoss | None = None,
    target_spec: Nested = None,
    rows_per_unit: int = 1,
    units: int | None = None,
    facts: Mapping[str, object] | None = None,
    reads: Sequence[tf.Tensor] = (),
) -> Run:
    """Readies the model for `steps` more private steps and opens (or continues) a ledger entry.

    Nothing is spent here.  Several workers compare what they are about to do, and take weights,
    noise multiplier and public random numbers from the chief.  A run with the same settings is
    continued, so that the compiled train function stays valid, with a fresh noise key.

    Args:
        model: private and compiled with a private optimizer.
        sampling: how the batches are drawn.
        steps: number of steps planned, used if the noise is still to be calibrated.
        seeded: whether the sampler follows a given seed.
        loss: the compiled loss (`fit`), or None where the caller has one (custom loops).
        target_spec: `tf.TensorSpec` of a batch of targets, the form of random public labels.
        rows_per_unit: number of rows of each unit of a batch.
        units: of each part of a batch, as they were judged; None where that comes later.
        facts: what else has to be the same on all workers, by name.
        reads: handles of variables that the steps were seen to read, for which there is room.

    Returns:
        The run, also kept on the model.

    Raises:
        NotPrivateError: the model was never compiled.
        RuntimeError: `fit` is training the model, or TensorFlow multiplies float32 in fewer bits.
        ValueError: workers differ, or no epsilon could be stated after its steps.
    """
    refuse_nesting(model)
    refuse_rewritten_products()
    state, optimizer = state_of(model), private_optimizer(model)
    save_with(model, optimizer)
    run, workers = state.run, state.workers
    refuse_other_workers(workers)
    if run is not None and not (
        units in (None, run.engine.part_rows)
        and run.rows_per_unit == rows_per_unit
        and _continues(run, optimizer, model, sampling, seeded, loss)
    ):
        run = None
    if not workers.alone:
        same = {"sampling": [sampling, steps, seeded], "goes on": run is not None, **(facts or {})}
        compare(model, optimizer, workers, same, reads)
    ledger = ledger_of(model)
    refuse_history(ledger, sampling, optimizer.accountant)
    if run is not None:
        refuse_next_step(run)
        run.engine.noise.rekey()
        run.engine.masks.rekey()
        take_values_of_chief(model, optimizer, run.engine.space.shapes, workers)
        begin(run, model)
        return run
    if not ledger.entries:
        _warn_of_ordinary_steps(optimizer)
    spent = ledger_with(model, reads)
    refuse_history(spent, sampling, optimizer.accountant, ledger)
    noise_multiplier, limit = _noise_multiplier(optimizer, sampling, steps, spent)
    chosen = chosen_by_chief(workers, noise_multiplier, optimizer.seed)
    public_reads: dict[int, tf.Tensor] = {}
    context = optimizer.release_context(
        describe_parameters(model),
        _public_randomness(chosen.public_seed).normal,
        public_gradients(
            model,
            state.microbatch_size,
            target_spec,
            SecretStream(optimizer.seed, "public masks"),
            public_reads,
        ),
    )
    space = optimizer.release_space(context)
    num_blocks = len(space.shapes)
    blocks = optimizer.release_blocks(num_blocks)
    mechanism = GaussianMechanism(
        blocks.l2_norm_clip,
        chosen.noise_multiplier,
        num_blocks,
        blocks.clips,
        blocks.shares,
        blocks.stabilities,
    )
    entry = LedgerEntry(
        sampling=sampling,
        noise_multiplier=mechanism.event.noise_multiplier,
        steps=0,
        mechanism=optimizer.mechanism_name,
        l2_norm_clip=mechanism.l2_norm_clip if isinstance(optimizer.l2_norm_clip, float) else None,
        seeded=seeded or optimizer.seed is not None,
        entry_id=chosen.entry_id,
    )
    with tf.init_scope():
        counter = tf.Variable(0, dtype=tf.int64, trainable=False)
        passes = Passes(sampling, counter)
        # A custom loop releases and updates in two calls, and others may change values in between.
        updates = tf.Variable(0, dtype=tf.int64, trainable=False) if loss is None else counter
    engine = PrivateGradients(
        model=model,
        space=space,
        mechanism=mechanism,
        noise=NoiseGenerator(optimizer.seed),
        masks=SecretStream(optimizer.seed, f"masks {workers.index}" if workers.index else "masks"),
        expected_batch_size=float(sampling.batch_size),
        gradient_method=optimizer.gradient_method,
        part_rows=units,
        steps=counter,
        fill=functools.partial(with_known_words, model),
        workers=workers,
    )
    run = Run(
        engine,
        optimizer,
        _settings(optimizer),
        list(model.trainable_variables),
        sampling,
        entry,
        Record(entry=entry, counter=counter, updates=updates),
        loss,
        limit,
        passes,
        public_reads,
        rows_per_unit=rows_per_unit,
    )
    if state.run is not None:
        with tf.init_scope():
            state.run.allowed_in_graphs.assign(0)
    state.run = run
    model.train_function = None
    if not optimizer.built:
        optimizer.build(model.trainable_variables)
    take_values_of_chief(model, optimizer, space.shapes, workers)
    begin(run, model)
    if limit is not None and run.ledger.num_steps == ledger.num_steps:
        limit.other_steps = run.other_steps
    return run


def _warn_of_ordinary_steps(optimizer: DPOptimizer) -> None:
    inner = optimizer.inner_optimizer
    steps = int(inner.iterations) if inner.built else 0
    if steps:
        warnings.warn(
            f"Expected a new inner optimizer. Received: {type(inner).__name__}, which has taken "
            f"{steps} ordinary steps: what it keeps of their gradients, such as momentum, goes "
            "into private steps, and is taken as public, as the weights are. If those steps were "
            "on private data, make a new optimizer, and new weights.",
            stacklevel=2,
        )


def units_of_parts(
    sampling: Sampling, microbatch_size: int | None, rows_per_unit: int, workers: int
) -> tuple[int, int | None]:
    """The number of units that are best computed at once, and the largest number allowed.

    Args:
        sampling: how batches are drawn.
        microbatch_size: largest number of rows of a part; a unit is never divided.  None for any.
        rows_per_unit: number of rows of each unit.
        workers: number of processes that share a draw evenly.
    """
    most = None if microbatch_size is None else max(1, microbatch_size // rows_per_unit)
    return part_rows(sampling, most, workers), most


def begin(run: Run, model: keras.Model) -> None:
    """Tells the owner of the ledgers, before a step, what the run updates and what it reads."""
    # Layers as well: quantisation and adapters put new variables in the place of trained ones.
    layers = [layer for layer in layers_of(model) if layer.trainable_variables]
    updated = [model, *layers, *run.variables, *run.optimizer.state_variables]
    run.others = SPENDING.begin(run.record, updated, things_of(model))
    run.version = SPENDING.version


def _noise_multiplier(
    optimizer: DPOptimizer, sampling: Sampling, steps: int, ledger: PrivacyLedger
) -> tuple[float, StepLimit | None]:
    """The given multiplier, the one calibrated before, or one calibrated now; and for how many."""
    if optimizer.noise_multiplier is not None:
        return float(optimizer.noise_multiplier), None
    assert optimizer.epsilon is not None and optimizer.delta is not None
    limit = StepLimit(optimizer.epsilon, optimizer.delta, optimizer.accountant, planned=steps)
    calibrated = optimizer.calibrated_noise_multiplier
    released = {entry.noise_multiplier for entry in ledger.entries if entry.is_released}
    if calibrated is not None and calibrated in released:  # else meant for steps never taken
        return calibrated, limit
    planned = optimizer.planned_steps or steps
    calibrated = calibrate_noise_multiplier(
        limit.epsilon,
        limit.delta,
        sampling.batch_size,
        sampling.num_examples,
        steps=planned,
        accountant=limit.accountant,
        spent=ledger,
        sampling=sampling,
    )
    optimizer.calibrated_noise_multiplier = calibrated
    limit.allowed, limit.is_final = planned, True
    return calibrated, limit


def _settings(optimizer: DPOptimizer) -> dict:
    """All arguments of a private optimizer but the inner optimizer, which may change at will."""
    return {
        **optimizer.privacy_settings,
        "algorithm": optimizer.algorithm,
        "seed": optimizer.seed,
    }


def _public_randomness(seed: int | None) -> NoiseGenerator:
    """Random numbers for the choice of subspaces, under a key of their own."""
    return NoiseGenerator(seed, "subspaces")


def _continues(
    run: Run,
    optimizer: DPOptimizer,
    model: keras.Model,
    sampling: Sampling,
    seeded: bool,
    loss: CompiledLoss | None,
) -> bool:
    """Whether nothing has changed since the run began.

    A run without steps may have had other steps planned, for which its noise was calibrated.
    Shuffled data begin a new pass with each call, so the run has to have ended its last one.
    """
    variables, length = model.trainable_variables, sampling.steps_per_pass
    return (
        run.optimizer is optimizer
        and (run.limit is None or run.steps > 0)
        and run.sampling == sampling
        and (length is None or run.steps % length == 0)
        and run.entry.seeded == (seeded or optimizer.seed is not None)  # the sampler's seed as well
        and run.settings == _settings(optimizer)
        and len(run.variables) == len(variables)
        and all(a is b for a, b in zip(run.variables, variables, strict=True))
        and (run.loss is None) == (loss is None)
        and (run.loss is None or run.loss.is_current)
        and (run.loss is None or loss is None or run.loss.augment is loss.augment)
    )

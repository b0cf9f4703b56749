"""With a ledger file, what is on the disk is never behind the steps that are taken."""

import errno

import keras
import numpy as np
import pytest

import tf_lowrank_dp as tfdp
from tf_lowrank_dp.accounting import LedgerEntry, PrivacyLedger, Sampling
from tf_lowrank_dp.accounting.ledger_file import LedgerFile
from tf_lowrank_dp.training.budget import check_budget
from tf_lowrank_dp.training.state import state_of

DELTA, STEPS = 1e-3, 4  # steps of one epoch


def epsilon_after(steps, noise_multiplier=1.5):
    entry = LedgerEntry(Sampling.poisson(24, 6), noise_multiplier, steps=steps)
    return pytest.approx(PrivacyLedger([entry]).epsilon(DELTA, accountant="rdp"))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.jsonl"


@pytest.fixture
def held(path):
    """What a process that starts now would find in the file."""

    def read():
        copy = path.with_name("copy.jsonl")
        copy.write_bytes(path.read_bytes())
        return LedgerFile(str(copy)).ledger

    return read


class Stop(keras.callbacks.Callback):
    """Ends training as a crash would, after some batches."""

    def __init__(self, batches):
        super().__init__()
        self._left = batches

    def on_train_batch_end(self, batch, logs=None):
        self._left -= 1
        if not self._left:
            raise KeyboardInterrupt


@pytest.mark.parametrize("steps_per_execution", (1, 2, 3))
def test_each_execution_is_on_the_disk_before_it_runs(build, fit, path, held, steps_per_execution):
    model, ahead = build(path, steps_per_execution), []

    class Look(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            ahead.append(held().num_steps - state_of(self.model).run.steps)

    fit(model, epochs=2, callbacks=[Look()])
    expected = {1: [1] * 8, 2: [2] * 4, 3: [3, 1] * 2}
    assert ahead == expected[steps_per_execution]


def test_the_file_is_exact_where_training_ends_by_itself(build, fit, path, held):
    model = build(path)
    fit(model, epochs=2)
    fit(model)
    assert held() == model.optimizer.ledger and held().num_steps == 12


def test_steps_that_a_crash_loses_count_when_training_resumes(build, fit, path):
    """The second model knows the first by nothing but the file."""
    with pytest.raises(KeyboardInterrupt):
        fit(build(path), callbacks=[Stop(3)])
    model = build(path)
    assert tfdp.privacy_spent(model, DELTA) == epsilon_after(3)
    fit(model)
    assert tfdp.privacy_spent(model, DELTA) == epsilon_after(3 + STEPS)


def test_lost_steps_are_paid_from_the_budget_of_the_resumed_run(build, fit, path):
    budget = {"epsilon": 3.0, "planned_steps": 2 * STEPS}
    with pytest.raises(KeyboardInterrupt):
        fit(build(path, **budget), callbacks=[Stop(3)])
    model = build(path, **budget)
    fit(model, epochs=2)
    assert 2.9 <= tfdp.privacy_spent(model) <= 3.0
    sigmas = [entry.noise_multiplier for entry in model.optimizer.ledger.entries]
    assert sigmas[1] > sigmas[0]


def test_the_file_is_ahead_by_a_64th_and_never_of_the_end_or_the_budget(build, fit, path, held):
    model = build(path, epsilon=3.0, planned_steps=6500)
    fit(model)
    run = state_of(model).run
    run.engine.steps.assign(6399)
    check_budget(model, 1, left=5)
    assert held().num_steps == 6404
    run.engine.steps.assign(6404)
    check_budget(model)
    assert held().num_steps == 6500


def test_a_custom_loop_notes_each_step_before_it_is_taken(build, data, path, held):
    model = build(path)
    sampler = tfdp.PoissonSampler(*data, batch_size=6, steps=3)
    trainer = tfdp.PrivateTrainer(model, sampler)

    def forward(batch):
        logits = model(batch["x"], training=True)
        assert held().num_steps == state_of(model).run.steps + 1
        return keras.losses.sparse_categorical_crossentropy(batch["y"], logits, True), logits

    for batch in sampler:
        trainer.apply(trainer.gradients(forward, batch))
    assert held().num_steps == 3


def test_no_step_is_taken_that_cannot_be_noted(build, fit, path, monkeypatch):
    model = build(path)
    fit(model)
    weights, spent = model.get_weights(), tfdp.privacy_spent(model)

    def full(self, line):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(LedgerFile, "_write", full)
    with pytest.raises(OSError, match="No space left"):
        fit(model)
    for before, after in zip(weights, model.get_weights(), strict=True):
        np.testing.assert_array_equal(before, after)
    assert tfdp.privacy_spent(model) == spent
    monkeypatch.undo()
    fit(model)
    assert tfdp.privacy_spent(model) == epsilon_after(2 * STEPS)


def test_a_damaged_file_is_refused_and_the_model_stays_as_it_is(build, path):
    path.write_bytes(b"no ledger\n")
    with pytest.raises(ValueError, match="Expected a ledger file"):
        build(path)
    model = build()
    with pytest.raises(ValueError, match="Expected a ledger file"):
        tfdp.make_private(model, ledger_path=path)
    assert model.optimizer.ledger == PrivacyLedger()
    assert path.read_bytes() == b"no ledger\n"


def test_conversions_keep_the_file(build, fit, path, held):
    model = build(path)
    fit(model)
    optimizer = model.optimizer
    tfdp.make_standard(model)
    tfdp.make_private(model, microbatch_size=2)
    model.compile(optimizer, loss=model.loss, jit_compile=False)
    fit(model)
    assert held() == model.optimizer.ledger and held().num_steps == 2 * STEPS


def test_a_new_file_begins_with_what_the_model_has_spent(build, fit, path, held, tmp_path):
    model = build()
    fit(model)
    model.save(tmp_path / "model.keras")
    loaded = tfdp.make_private(keras.models.load_model(tmp_path / "model.keras"), None, path)
    assert held() == loaded.optimizer.ledger and held().num_steps == STEPS


def test_file_and_checkpoint_count_a_step_once(build, fit, path, tmp_path):
    model = build(path)
    fit(model)
    model.save(tmp_path / "model.keras")
    fit(model)
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert tfdp.privacy_spent(loaded) == epsilon_after(STEPS)
    tfdp.make_private(loaded, ledger_path=path)
    assert tfdp.privacy_spent(loaded) == epsilon_after(2 * STEPS)


def test_steps_of_another_model_on_shared_weights_are_in_the_file_before_the_next_of_its_own(
    build, fit, path, held, data, monkeypatch
):
    """While the file was ahead by its own steps it had lacked 400 of another (5.9 for 13.8)."""
    monkeypatch.setattr("tf_lowrank_dp.training.budget._NOTED_AHEAD", 1)  # far ahead soon
    model = build(path)
    other = keras.Sequential([keras.Input((5,)), model.layers[0], keras.layers.Dense(3)])
    tfdp.make_private(other)
    other.compile(
        tfdp.DPSGDOptimizer("adam", l2_norm_clip=1.0, noise_multiplier=2.0, delta=DELTA),
        loss=model.loss,
        jit_compile=False,
    )
    sampler = tfdp.PoissonSampler(*data, batch_size=6)
    trainer = tfdp.PrivateTrainer(model, sampler, steps=30)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=None)

    def forward(batch):
        return loss(batch["y"], model(batch["x"], training=True)), ()

    def step():
        trainer.apply(trainer.gradients(forward, next(batches)))

    batches = iter(sampler)
    step()
    fit(other)
    for _ in range(4):  # the file is ahead by several steps then
        step()
    fit(other)
    check_budget(model)  # as `fit` does before a step; others may go on in a thread
    steps = {entry.noise_multiplier: entry.steps for entry in held().entries}
    assert steps[2.0] == 2 * STEPS and steps[1.5] >= 6

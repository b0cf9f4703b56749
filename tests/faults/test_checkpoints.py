"""A checkpoint is whole or absent, and its ledger comes with its weights."""

import contextlib
import errno
import os
import resource
import shutil
import subprocess

import h5py
import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_lowrank_dp as tfdp
from tf_lowrank_dp.mechanism.noise import NoiseGenerator
from tf_lowrank_dp.optimizers.base import DPOptimizer
from tf_lowrank_dp.training import start_run as training_run
from tf_lowrank_dp.training.state import ledger_of

DELTA, STEPS = 1e-3, 4  # steps of one epoch
NAMES = ("model.keras", "model.weights.h5")


def save(model, path):
    (model.save if path.suffix == ".keras" else model.save_weights)(path)


@pytest.fixture
def model(build, fit):
    model = build()
    fit(model)
    return model


@contextlib.contextmanager
def full_in_the_middle():
    """The optimizer, written after the layers, finds no room."""

    def full(self, store):
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DPOptimizer, "save_own_variables", full)
        yield


@contextlib.contextmanager
def full_after_1_kib():
    """The system refuses to write more, as on a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


# HDF5 itself crashes the process when it cannot write a `.weights.h5` file.
@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("model.keras", full_in_the_middle),
        ("model.weights.h5", full_in_the_middle),
        ("model.keras", full_after_1_kib),
    ],
)
def test_a_full_disk_keeps_the_old_checkpoint(model, fit, tmp_path, name, full):
    path = tmp_path / name
    save(model, path)
    old = path.read_bytes()
    fit(model)
    with full(), pytest.raises(OSError):
        save(model, path)
    assert path.read_bytes() == old
    assert [file.name for file in tmp_path.iterdir()] == [name]
    save(model, path)
    assert path.read_bytes() != old


@pytest.mark.parametrize("name", NAMES)
def test_what_another_process_writes_is_left_to_it_and_what_a_crash_left_is_removed(
    model, tmp_path, name
):
    """Of two processes that saved to one path, one put half of the other's file there."""
    ended = subprocess.Popen(["true"])
    ended.wait()
    others = tmp_path / f".unfinished-{os.getppid()}-{name}"
    for path in (others, tmp_path / f".unfinished-{ended.pid}-{name}"):
        path.write_text("half")
    save(model, tmp_path / name)
    assert {path.name for path in tmp_path.iterdir()} == {name, others.name}
    assert others.read_text() == "half"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kept", (0.0, 0.5, 0.98))
def test_a_truncated_checkpoint_is_refused_and_changes_nothing(
    model, fit, contents_of, tmp_path, name, kept
):
    path = tmp_path / name
    save(model, path)
    path.write_bytes(path.read_bytes()[: int(kept * path.stat().st_size)])
    fit(model)
    before = contents_of(model)
    with pytest.raises(Exception, match="(?i)truncated|not a zip file|unable to"):
        model.load_weights(path)
    assert contents_of(model) == before
    if name == "model.keras":
        with pytest.raises(ValueError, match="accessible `.keras` zip file"):
            keras.models.load_model(path)


def damage_ledger(path):
    """Changes the number of steps in the ledger of a `.weights.h5` file."""
    with h5py.File(path, "r+") as file:
        [ledger] = [
            item
            for group in [file["optimizer"]]
            for name, item in _items(group)
            if name == "privacy_ledger"
        ]
        text = ledger[()].tobytes()
        assert text.count(b'"steps": 4') == 1
        ledger[...] = np.frombuffer(text.replace(b'"steps": 4', b'"steps": 1'), np.uint8)


def _items(group):
    for name, item in group.items():
        if isinstance(item, h5py.Group):
            yield from _items(item)
        else:
            yield name, item


def test_a_damaged_ledger_is_refused_and_changes_nothing(model, fit, contents_of, tmp_path):
    path = tmp_path / "model.weights.h5"
    model.save_weights(path)
    damage_ledger(path)
    fit(model)
    before = contents_of(model)
    with pytest.raises(ValueError, match="Expected the text of a privacy ledger"):
        model.load_weights(path)
    assert contents_of(model) == before


def test_a_refused_file_costs_nothing_where_its_values_were_loaded_before(
    model, build, fit, contents_of, tmp_path
):
    """What its values came with stays with those who hold them: 12 steps were stated for 8."""
    model.save_weights(tmp_path / "good.weights.h5")
    shutil.copy(tmp_path / "good.weights.h5", tmp_path / "damaged.weights.h5")
    damage_ledger(tmp_path / "damaged.weights.h5")
    holder, other = build(), build()
    holder.load_weights(tmp_path / "good.weights.h5")
    fit(other)
    before, steps = contents_of(other), ledger_of(other).num_steps
    with pytest.raises(ValueError, match="Expected the text of a privacy ledger"):
        other.load_weights(tmp_path / "damaged.weights.h5")
    assert contents_of(other) == before
    fit(other)
    assert ledger_of(other).num_steps == 2 * steps
    assert ledger_of(holder).num_steps == ledger_of(model).num_steps


def test_the_backup_of_a_damaged_file_is_known_in_the_same_process(model, build, tmp_path):
    model.save_weights(tmp_path / "good.weights.h5")
    shutil.copy(tmp_path / "good.weights.h5", tmp_path / "damaged.weights.h5")
    damage_ledger(tmp_path / "damaged.weights.h5")
    other = build()
    with pytest.raises(ValueError, match="Restore it from a backup"):
        other.load_weights(tmp_path / "damaged.weights.h5")
    other.load_weights(tmp_path / "good.weights.h5")
    assert not ledger_of(other).prior_spend_unknown
    assert tfdp.privacy_spent(other) == tfdp.privacy_spent(model)


def test_a_damaged_ledger_that_keras_only_warns_of_leaves_the_spend_unknown(model, tmp_path):
    path = tmp_path / "model.weights.h5"
    model.save_weights(path)
    damage_ledger(path)
    with pytest.warns(UserWarning, match="could not be loaded"):
        model.load_weights(path, skip_mismatch=True)
    assert model.optimizer.ledger.prior_spend_unknown


@pytest.mark.parametrize("compiled", (False, True))
@pytest.mark.parametrize("name", ("model.weights.h5", "model.h5"))
def test_weights_that_come_without_a_ledger_leave_the_spend_unknown(
    build, tmp_path, compiled, name
):
    ordinary = tfdp.make_standard(build(compiled=False))
    if name == "model.h5":
        ordinary.save(tmp_path / name)
    else:
        ordinary.save_weights(tmp_path / name)
    model = build(compiled=compiled)
    model.load_weights(tmp_path / name)
    assert ledger_of(model).prior_spend_unknown
    assert "unknown" in tfdp.privacy_statement(model, DELTA)


def test_a_ledger_that_is_left_out_when_loading_leaves_the_spend_unknown(model, build, tmp_path):
    model.save_weights(tmp_path / "model.weights.h5")
    other = build()
    other.load_weights(tmp_path / "model.weights.h5", objects_to_skip=[other.optimizer])
    assert ledger_of(other).prior_spend_unknown


def test_weights_loaded_before_compiling_leave_the_spend_unknown(model, build, tmp_path):
    model.save_weights(tmp_path / "model.weights.h5")
    other = build(compiled=False)
    other.load_weights(tmp_path / "model.weights.h5")
    assert ledger_of(other).prior_spend_unknown


def test_weights_with_a_ledger_are_known(model, build, tmp_path):
    model.save_weights(tmp_path / "model.weights.h5")
    other = build()
    other.load_weights(tmp_path / "model.weights.h5")
    assert not ledger_of(other).prior_spend_unknown and ledger_of(other).num_steps == STEPS


def test_a_backup_is_restored_before_the_noise_is_calibrated_and_keeps_it(
    build, fit, tmp_path, monkeypatch
):
    """More epochs are asked for on resuming: the noise stays, and the budget ends training."""
    known = []

    def choose(optimizer, sampling, steps, ledger, original=training_run._noise_multiplier):
        known.append((ledger.num_steps, optimizer.calibrated_noise_multiplier))
        return original(optimizer, sampling, steps, ledger)

    monkeypatch.setattr(training_run, "_noise_multiplier", choose)

    class Stop(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 1:
                raise KeyboardInterrupt

    def backup():
        return keras.callbacks.BackupAndRestore(tmp_path / "backup")

    first = build(epsilon=3.0)
    with pytest.raises(KeyboardInterrupt):
        fit(first, epochs=2, callbacks=[backup(), Stop()])
    sigma = first.optimizer.calibrated_noise_multiplier
    second = build(epsilon=3.0)
    with pytest.raises(tfdp.PrivacyBudgetExceededError):
        fit(second, epochs=3, callbacks=[backup()])
    assert known == [(0, None), (STEPS, sigma)]
    assert [entry.noise_multiplier for entry in second.optimizer.ledger.entries] == [sigma] * 2
    assert tfdp.privacy_spent(second) <= 3.0


def test_no_noise_is_used_again_after_an_older_checkpoint_was_loaded(
    build, fit, tmp_path, monkeypatch
):
    drawn, draw = [], NoiseGenerator.normal

    def normal(self, shapes):
        tensors = draw(self, shapes)
        tf.numpy_function(lambda t: drawn.append(t.tobytes()), [tensors[0]], [])
        return tensors

    monkeypatch.setattr(NoiseGenerator, "normal", normal)
    model = build()
    fit(model)
    model.save_weights(tmp_path / "early.weights.h5")
    model.save(tmp_path / "early.keras")
    fit(model)
    model.load_weights(tmp_path / "early.weights.h5")
    assert int(model.optimizer.iterations) == STEPS
    fit(model)
    assert model.optimizer.ledger.num_steps == 3 * STEPS
    fit(tfdp.make_private(keras.models.load_model(tmp_path / "early.keras")))
    assert len(drawn) == len(set(drawn)) == 4 * STEPS


def nested(build, head=3):
    """A model around one that is private and has a private optimizer of its own."""
    encoder = build()
    inputs = keras.Input((5,))
    outer = keras.Model(inputs, keras.layers.Dense(head, name="head")(encoder(inputs)))
    tfdp.make_private(outer)
    optimizer = tfdp.DPSGDOptimizer("adam", l2_norm_clip=1.0, noise_multiplier=1.5, delta=DELTA)
    outer.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return encoder, outer


def test_the_ledger_of_a_model_inside_is_not_that_of_the_model(build, fit, tmp_path):
    """40 steps of a head were lost where the file's other ledger was of its encoder."""
    encoder, outer = nested(build)
    fit(encoder)
    encoder.trainable = False
    fit(outer, epochs=2)
    outer.save_weights(tmp_path / "outer.weights.h5")
    encoder, other = nested(build)
    encoder.trainable = False
    other.load_weights(tmp_path / "outer.weights.h5", objects_to_skip=[other.optimizer])
    assert ledger_of(other).prior_spend_unknown


def test_a_refused_file_leaves_the_optimizer_of_a_model_inside_as_it_was(build, fit, tmp_path):
    encoder, outer = nested(build)
    fit(encoder, epochs=2)
    outer.save_weights(tmp_path / "outer.weights.h5")
    encoder, other = nested(build, head=4)
    fit(encoder)
    before = [np.array(v) for v in [*encoder.variables, *encoder.optimizer.variables]]
    steps = ledger_of(encoder).num_steps
    with pytest.raises(ValueError, match="could not be loaded"):
        other.load_weights(tmp_path / "outer.weights.h5")
    after = [np.array(v) for v in [*encoder.variables, *encoder.optimizer.variables]]
    assert all(map(np.array_equal, before, after))
    assert ledger_of(encoder).num_steps == steps and not ledger_of(encoder).prior_spend_unknown


def test_a_refused_file_leaves_optimizers_that_are_attributes_as_they_were(model, tmp_path):
    model.more = [keras.optimizers.Adam()]  # as a loop of one's own may keep it
    model.more[0].build(model.trainable_variables)
    path = tmp_path / "model.weights.h5"
    model.save_weights(path)
    damage_ledger(path)
    model.more[0].learning_rate = 0.5
    with pytest.raises(ValueError, match="could not be loaded|Expected the text"):
        model.load_weights(path)
    assert float(model.more[0].learning_rate) == 0.5


def test_copies_of_what_a_damaged_file_brought_are_unknown_as_well(model, build, tmp_path):
    path = tmp_path / "model.weights.h5"
    model.save_weights(path)
    damage_ledger(path)
    loaded, copy = build(), build()
    with pytest.warns(UserWarning):
        loaded.load_weights(path, skip_mismatch=True)
    copy.set_weights(loaded.get_weights())
    assert ledger_of(copy).prior_spend_unknown

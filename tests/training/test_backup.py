"""`keras.callbacks.BackupAndRestore` resumes private training with its ledger and its noise."""

import keras
import pytest

import tf_lowrank_dp as tfdp
from tf_lowrank_dp.accounting import LedgerEntry, PrivacyLedger, Sampling

DELTA, EPSILON = 1e-3, 3.0
EPOCHS, STEPS = 4, 4  # steps of one epoch


class Interrupt(keras.callbacks.Callback):
    """Raises after the second step of the second epoch, and notes what was spent by then."""

    def on_epoch_begin(self, epoch, logs=None):
        self._epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        if (self._epoch, batch) == (1, 1):
            raise RuntimeError("interrupted")


class Watch(keras.callbacks.Callback):
    """Notes each epoch that is begun and what was spent before it."""

    def on_train_begin(self, logs=None):
        self.spent = {}

    def on_epoch_begin(self, epoch, logs=None):
        self.spent[epoch] = tfdp.privacy_spent(self.model)


def epsilon_after(steps, noise_multiplier):
    entry = LedgerEntry(Sampling.poisson(24, 6), noise_multiplier, steps=steps)
    return pytest.approx(PrivacyLedger([entry]).epsilon(DELTA, accountant="rdp"))


@pytest.fixture
def build(private, small_model):
    """Builds and compiles, as each start of one script would."""

    def build(**budget):
        return private(small_model(), "adam", delta=DELTA, accountant="rdp", **budget)

    return build


@pytest.fixture
def train(data, tmp_path):
    def train(model, *callbacks, **arguments):
        backup = keras.callbacks.BackupAndRestore(tmp_path / "backup", **arguments)
        model.fit(*data(), batch_size=6, epochs=EPOCHS, verbose=0, callbacks=[backup, *callbacks])

    return train


@pytest.fixture
def interrupted(build, train):
    """Trains a model until it is interrupted, and returns it."""

    def interrupt(budget, **arguments):
        model = build(**budget)
        with pytest.raises(RuntimeError, match="interrupted"):
            train(model, Interrupt(), **arguments)
        return model

    return interrupt


def test_a_new_model_resumes_within_the_budget(interrupted, build, train):
    first = interrupted({"epsilon": EPSILON})
    noise_multiplier = first.optimizer.calibrated_noise_multiplier
    assert tfdp.privacy_spent(first) == epsilon_after(STEPS + 2, noise_multiplier)

    second, watch = build(epsilon=EPSILON), Watch()
    train(second, watch)
    assert sorted(watch.spent) == [1, 2, 3]
    assert watch.spent[1] == epsilon_after(STEPS, noise_multiplier)
    assert second.optimizer.calibrated_noise_multiplier == noise_multiplier
    assert int(second.optimizer.iterations) == EPOCHS * STEPS
    assert second.optimizer.ledger.num_steps == EPOCHS * STEPS
    assert tfdp.privacy_spent(second) == epsilon_after(EPOCHS * STEPS, noise_multiplier)
    assert tfdp.privacy_spent(second) <= EPSILON


def test_a_new_model_resumes_with_a_fixed_noise_multiplier(interrupted, build, train):
    interrupted({"noise_multiplier": 1.5})
    second, watch = build(noise_multiplier=1.5), Watch()
    train(second, watch)
    assert sorted(watch.spent) == [1, 2, 3]
    assert watch.spent[1] == epsilon_after(STEPS, 1.5)
    assert tfdp.privacy_spent(second) == epsilon_after(EPOCHS * STEPS, 1.5)


def test_steps_of_a_broken_epoch_that_were_saved_count_and_may_end_the_budget_early(
    interrupted, build, train
):
    """Keras repeats the epoch on weights that have seen a part of it already."""
    interrupted({"epsilon": EPSILON}, save_freq=1)
    second, watch = build(epsilon=EPSILON), Watch()
    with pytest.raises(tfdp.PrivacyBudgetExceededError):
        train(second, watch, save_freq=1)
    noise_multiplier = second.optimizer.calibrated_noise_multiplier
    assert watch.spent[1] == epsilon_after(STEPS + 2, noise_multiplier)
    assert second.optimizer.ledger.num_steps == EPOCHS * STEPS
    assert tfdp.privacy_spent(second) <= EPSILON


def test_the_interrupted_model_itself_keeps_the_steps_that_were_undone(interrupted, train):
    model = interrupted({"noise_multiplier": 1.5})
    train(model)
    assert tfdp.privacy_spent(model) == epsilon_after(EPOCHS * STEPS + 2, 1.5)


@pytest.mark.parametrize(("previous", "epochs"), [('{"epoch": 1, "batch": 0}', 3), ('{"ep', 4)])
def test_a_torn_number_of_the_epoch_may_repeat_epochs_and_loses_no_step_of_the_ledger(
    interrupted, build, train, tmp_path, previous, epochs
):
    """Keras writes it in place: a process that is killed meanwhile leaves an empty file."""
    interrupted({"noise_multiplier": 1.5})
    metadata = tmp_path / "backup" / "training_metadata.json"
    metadata.write_text("")
    metadata.with_name(f"{metadata.name}.bkp").write_text(previous)
    second, watch = build(noise_multiplier=1.5), Watch()
    train(second, watch)
    assert len(watch.spent) == epochs
    assert watch.spent[EPOCHS - epochs] == epsilon_after(STEPS, 1.5)
    assert second.optimizer.ledger.num_steps == STEPS + epochs * STEPS

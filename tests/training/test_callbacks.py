"""The `PrivacyBudget` callback."""

import dataclasses

import keras
import numpy as np
import pytest

import tf_lowrank_dp as tfdp
from tf_lowrank_dp.accounting import LedgerEntry, PrivacyLedger, ReleaseEntry, Sampling

DELTA = 1e-3
NOISY = {"noise_multiplier": 1.0, "accountant": "rdp", "delta": DELTA}


@pytest.fixture
def model(private, small_model):
    return private(small_model(), **NOISY)


def fit(model, data, *callbacks, epochs=3):
    arguments = {"batch_size": 8, "epochs": epochs, "verbose": 0, "callbacks": list(callbacks)}
    return model.fit(*data(), **arguments).history


def test_epsilon_is_shown_in_the_history_after_every_epoch(model, data):
    history = fit(model, data, tfdp.PrivacyBudget())
    assert len(history["epsilon"]) == 3
    assert history["epsilon"] == sorted(history["epsilon"])
    assert history["epsilon"][-1] == tfdp.privacy_spent(model, DELTA)


def test_epsilon_is_shown_in_the_progress_bar(model, data, capsys):
    model.fit(*data(), batch_size=8, verbose=2, callbacks=[tfdp.PrivacyBudget()])
    assert "epsilon: " in capsys.readouterr().out


def test_training_stops_before_the_step_that_would_exceed_the_budget_without_an_error(model, data):
    """As many steps as an accountant that knows of no callback allows, and not one more."""
    entry = LedgerEntry(Sampling.poisson(24, 8), 1.0)
    budget = PrivacyLedger([entry]).epsilon(DELTA, accountant="rdp", extra=[of(entry, 5)]) * 1.001
    history = fit(model, data, tfdp.PrivacyBudget(budget), epochs=5)
    assert int(model.optimizer.iterations) == 5 and len(history["loss"]) == 2
    assert tfdp.privacy_spent(model, DELTA) <= budget
    assert PrivacyLedger().epsilon(DELTA, accountant="rdp", extra=[of(entry, 6)]) > budget


def of(entry, steps):
    return dataclasses.replace(entry, steps=steps)


def test_it_stops_without_an_error_where_an_execution_is_longer_than_an_epoch(
    private, small_model, data
):
    """Keras numbers the steps that an epoch cuts off as if they had been taken."""
    model = private(small_model(), **{**NOISY, "steps_per_execution": 5})
    entry = LedgerEntry(Sampling.poisson(24, 8), NOISY["noise_multiplier"])
    budget = PrivacyLedger([entry]).epsilon(DELTA, accountant="rdp", extra=[of(entry, 4)]) * 1.001
    fit(model, data, tfdp.PrivacyBudget(budget), epochs=9)
    assert int(model.optimizer.iterations) == 3


class Meddle(keras.callbacks.Callback):
    """Goes on after a stop, or changes the steps of an execution."""

    def __init__(self, steps_per_execution=None):
        super().__init__()
        self.steps_per_execution = steps_per_execution

    def on_train_batch_end(self, batch, logs=None):
        self.model.stop_training = False
        if self.steps_per_execution:
            self.model.steps_per_execution = self.steps_per_execution


@pytest.mark.parametrize("steps_per_execution", [1, 2, 3])
@pytest.mark.parametrize("epsilon", [0.8, 1.2])
def test_a_budget_is_never_exceeded_with_several_steps_per_execution(
    private, small_model, data, steps_per_execution, epsilon
):
    arguments = {**NOISY, "noise_multiplier": 4.0, "steps_per_execution": steps_per_execution}
    model = private(small_model(), **arguments)
    fit(model, data, tfdp.PrivacyBudget(epsilon), epochs=9)
    one_more = of(LedgerEntry(Sampling.poisson(24, 8), 4.0), steps_per_execution)
    ledger = model.optimizer.ledger
    assert tfdp.privacy_spent(model, DELTA) <= epsilon
    assert ledger.epsilon(DELTA, accountant="rdp", extra=[one_more]) > epsilon


def test_a_callback_that_trains_on_past_the_budget_gets_an_error_and_no_step(model, data):
    with pytest.raises(tfdp.PrivacyBudgetExceededError, match="(?s)Expected.*Received"):
        fit(model, data, tfdp.PrivacyBudget(5.0), Meddle(), epochs=9)
    assert tfdp.privacy_spent(model, DELTA) <= 5.0


@pytest.mark.parametrize(("compiled", "changed"), [(1, 3), (3, 1)])
def test_the_steps_of_an_execution_are_those_that_were_checked(
    private, small_model, data, compiled, changed
):
    model = private(small_model(), steps_per_execution=compiled, **NOISY)
    with pytest.raises(ValueError, match="Expected steps_per_execution"):
        fit(model, data, tfdp.PrivacyBudget(30.0), Meddle(changed), epochs=4)
    assert int(model.optimizer.iterations) == compiled
    assert model.optimizer.ledger.num_steps == compiled
    model.steps_per_execution = changed  # between two calls of fit, for which the step is remade
    fit(model, data, epochs=1)
    assert model.optimizer.ledger.num_steps == int(model.optimizer.iterations) == compiled + 3


class Fills(keras.callbacks.Callback):
    """Releases what nearly fills a budget, just before the third execution of steps."""

    def __init__(self, epsilon):
        super().__init__()
        self.epsilon = epsilon

    def on_train_batch_begin(self, batch, logs=None):
        if batch == 2:
            few, many = 0.5, 50.0
            for _ in range(25):
                middle = (few + many) / 2
                few, many = (few, middle) if self.after(middle) < self.epsilon else (middle, many)
            tfdp.record_release(self.model, self.event(many), "a mean")

    def event(self, noise_multiplier):
        rows = np.zeros((24, 2))
        return tfdp.private_mean(rows, l2_norm_clip=1.0, noise_multiplier=noise_multiplier)[1]

    def after(self, noise_multiplier):
        release = ReleaseEntry(self.event(noise_multiplier), "a mean")
        entries = [*self.model.optimizer.ledger.entries, release]
        return PrivacyLedger(entries).epsilon(DELTA, accountant="rdp")


@pytest.mark.parametrize("budget_of", ["optimizer", "callback"])
def test_what_a_callback_releases_just_before_a_step_leaves_no_room_for_it(
    private, small_model, data, budget_of
):
    if budget_of == "optimizer":
        settings, callbacks = {"epsilon": 2.0, "planned_steps": 6}, []
    else:
        settings, callbacks = {"noise_multiplier": 4.0}, [tfdp.PrivacyBudget(2.0)]
    model = private(small_model(), delta=DELTA, accountant="rdp", **settings)
    with pytest.raises(tfdp.PrivacyBudgetExceededError, match="(?s)Expected.*Received"):
        model.fit(*data(), batch_size=4, verbose=0, callbacks=[*callbacks, Fills(2.0)])
    assert 1.99 < tfdp.privacy_spent(model, DELTA) <= 2.0
    assert int(model.optimizer.iterations) == 2


def test_epsilon_inside_an_epoch_is_that_of_the_last_value_and_never_nothing(model, data):
    """A second fit begins with what the first has spent."""
    fit(model, data, epochs=1)
    before, shown = tfdp.privacy_spent(model, DELTA), []
    show = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: shown.append(logs["epsilon"])
    )
    fit(model, data, tfdp.PrivacyBudget(every=2), show, epochs=1)
    assert shown[0] == before < shown[1] == shown[2]


def test_a_budget_of_less_than_a_step_takes_none(model, data):
    with pytest.raises(tfdp.PrivacyBudgetExceededError, match="(?s)Expected.*Received"):
        fit(model, data, tfdp.PrivacyBudget(1e-6, every=1), epochs=2)
    assert tfdp.privacy_spent(model, DELTA) == 0.0


def test_a_fit_that_starts_at_the_budget_takes_no_step(model, data):
    spent = fit(model, data, tfdp.PrivacyBudget(), epochs=1)["epsilon"][0]
    with pytest.raises(tfdp.PrivacyBudgetExceededError, match="(?s)Expected.*Received.*"):
        fit(model, data, tfdp.PrivacyBudget(spent))
    assert tfdp.privacy_spent(model, DELTA) == spent


@pytest.mark.parametrize("arguments", [{"epsilon": 0.0}, {"epsilon": -1.0}, {"every": 0}])
def test_wrong_arguments_are_refused(arguments):
    with pytest.raises(ValueError, match="(?s)Expected.*Received"):
        tfdp.PrivacyBudget(**arguments)


def test_an_execution_has_no_more_steps_than_its_epoch(private, small_model, data):
    model = private(small_model(), noise_multiplier=5.0, delta=1e-3, steps_per_execution=100)
    model.fit(*data(), batch_size=8, callbacks=[tfdp.PrivacyBudget(epsilon=2.0)], verbose=0)
    assert model.optimizer.ledger.num_steps == 3
    assert 0.0 < tfdp.privacy_spent(model, 1e-3) <= 2.0

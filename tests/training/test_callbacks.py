"""The `PrivacyBudget` callback."""

import pytest

import tf_lowrank_dp as tfdp

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


def test_training_stops_at_the_budget_without_an_error(model, data):
    one_epoch = fit(model, data, tfdp.PrivacyBudget(), epochs=1)["epsilon"][0]
    history = fit(model, data, tfdp.PrivacyBudget(one_epoch * 1.01), epochs=5)
    assert len(history["loss"]) == 1


def test_a_check_inside_an_epoch_stops_there(model, data):
    fit(model, data, tfdp.PrivacyBudget(1e-6, every=1), epochs=2)
    assert int(model.optimizer.iterations) == 1


def test_a_fit_that_starts_at_the_budget_takes_no_step(model, data):
    spent = fit(model, data, tfdp.PrivacyBudget(), epochs=1)["epsilon"][0]
    with pytest.raises(tfdp.PrivacyBudgetExceededError, match="(?s)Expected.*Received.*"):
        fit(model, data, tfdp.PrivacyBudget(spent))
    assert tfdp.privacy_spent(model, DELTA) == spent


@pytest.mark.parametrize("arguments", [{"epsilon": 0.0}, {"epsilon": -1.0}, {"every": 0}])
def test_wrong_arguments_are_refused(arguments):
    with pytest.raises(ValueError, match="(?s)Expected.*Received"):
        tfdp.PrivacyBudget(**arguments)

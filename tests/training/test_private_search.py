"""A private search costs what dp_accounting says of its trials, and draws as many as that says."""

import dp_accounting
import keras
import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
from dp_accounting import dp_event, rdp

import tf_lowrank_dp as tfdp
from tf_lowrank_dp.accounting import LedgerEntry, PrivacyLedger, Sampling
from tf_lowrank_dp.spending import SPENDING
from tf_lowrank_dp.training.state import things_of
from tf_lowrank_dp.workers import Workers, join

DELTA, NOISE = 1e-5, 2.0


def make_model():
    return keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])


def trial(score, noise=NOISE, sampling=None):
    """A model on which ten private steps were spent, without taking them."""
    model = make_model()
    model.layers[-1].kernel.assign([[score], [2.0 * score]])
    sampling = sampling or Sampling.poisson(1000, 10)
    ledger = PrivacyLedger([LedgerEntry(sampling, noise, steps=10)])
    SPENDING.add(things_of(model), ledger)
    return model, score


@pytest.mark.parametrize(("trials", "shape"), [("geometric", 1.0), ("logarithmic", 0.0)])
def test_the_best_trial_is_released_at_the_price_of_the_search(trials, shape):
    seen = []

    def train(hyperparameters):
        seen.append(hyperparameters["a"])
        return trial(hyperparameters["a"])

    search = tfdp.PrivateSearch(6.0, trials)
    while len(seen) < 3:
        seen.clear()
        best = search.run({"a": np.linspace(0.1, 9.0, 200)}, train)
    assert best.score == max(seen) == best.hyperparameters["a"]
    model = make_model()
    best.load_into(model)
    np.testing.assert_allclose(model.get_weights()[0], [[best.score], [2.0 * best.score]])

    sampled = dp_event.PoissonSampledDpEvent(0.01, dp_accounting.GaussianDpEvent(NOISE))
    one = dp_event.SelfComposedDpEvent(sampled, 10)
    accountant = rdp.RdpAccountant().compose(dp_event.RepeatAndSelectDpEvent(one, 6.0, shape))
    assert tfdp.privacy_spent(model, DELTA) == pytest.approx(accountant.get_epsilon(DELTA))
    alone = rdp.RdpAccountant().compose(one).get_epsilon(DELTA)
    assert alone < tfdp.privacy_spent(model, DELTA) < 6.0 * alone
    text = tfdp.privacy_statement(model, DELTA)
    assert "private search" in text and "RDP" in text and "PLD" not in text
    assert "RDP" in tfdp.privacy_report(model, DELTA).accountant

    ledger = PrivacyLedger.from_json(SPENDING.ledger(things_of(model)).to_json())
    assert ledger.epsilon(DELTA) == tfdp.privacy_spent(model, DELTA)


@pytest.mark.parametrize("mean", [1.5, 8.0])
@pytest.mark.parametrize("trials", ["geometric", "logarithmic"])
def test_the_number_of_trials_has_the_distribution_that_is_accounted_for(trials, mean):
    search = tfdp.PrivateSearch(mean, trials)
    generator = np.random.default_rng(0)
    numbers = np.array([search._number_of_trials(generator) for _ in range(3000)])
    assert numbers.min() == 1
    assert abs(numbers.mean() - mean) < 5 * numbers.std() / np.sqrt(len(numbers))
    # dp_accounting's gamma, the probability of no other trial.
    gamma = rdp.rdp_privacy_accountant._gamma_truncated_negative_binomial(
        1.0 if trials == "geometric" else 0.0, mean
    )
    law = scipy.stats.geom(gamma) if trials == "geometric" else scipy.stats.logser(1 - gamma)
    for k in (1, 2, 5):
        assert scipy.stats.binomtest(int(np.sum(numbers == k)), 3000, law.pmf(k)).pvalue > 1e-5


def test_a_space_may_be_a_function():
    best = tfdp.PrivateSearch(1.0).run(lambda generator: generator.uniform(1, 2), trial)
    assert 1.0 <= best.hyperparameters == best.score <= 2.0


def test_trials_that_cannot_be_accounted_for_are_refused():
    users = Sampling.poisson(1000, 10, unit="user")
    for arguments in ({"noise": 0.0}, {"sampling": Sampling.shuffle(10, 6)}, {"sampling": users}):
        with pytest.raises(ValueError, match="(?s)Expected trials.*Received"):
            tfdp.PrivateSearch(1.0).run({}, lambda _, a=arguments: trial(1.0, **a))
    with pytest.raises(ValueError, match="(?s)Expected a train function.*Received"):
        tfdp.PrivateSearch(1.0).run({}, lambda _: (make_model(), 1.0))

    def releases_of_users(_):
        model = tfdp.make_private(make_model())
        tfdp.record_release(model, dp_event.GaussianDpEvent(4.0), "sum", unit="user")
        return model, 1.0

    with pytest.raises(ValueError, match="(?s)privacy of examples.*Received.*user"):
        tfdp.PrivateSearch(1.0).run({}, releases_of_users)


ONLY_PLD = dp_event.DiscreteLaplaceDpEvent(0.2, 1)


def test_what_has_no_epsilon_in_a_search_is_refused_at_the_first_trial():
    trials = []

    def train(_):
        model, score = trial(1.0)
        tfdp.record_release(model, ONLY_PLD, "score")
        trials.append(model)
        return model, score

    with pytest.raises(ValueError, match="(?s)a private search needs.*Record a bound"):
        tfdp.PrivateSearch(50.0).run({}, train)
    assert len(trials) == 1


def test_what_has_no_epsilon_beside_a_search_is_refused_before_it_counts():
    best = tfdp.PrivateSearch(1.0).run({}, lambda _: trial(1.0))
    model = make_model()
    best.load_into(model)
    spent = tfdp.privacy_spent(model, DELTA)
    with pytest.raises(ValueError, match="(?s)a private search needs.*Record a bound"):
        tfdp.record_release(model, ONLY_PLD, "count")
    assert tfdp.privacy_spent(model, DELTA) == spent
    tfdp.record_release(model, dp_accounting.LaplaceDpEvent(5.0), "count")
    assert tfdp.privacy_spent(model, DELTA) > spent

    other = make_model()
    tfdp.record_release(other, ONLY_PLD, "count")
    weights = other.get_weights()
    with pytest.raises(ValueError, match="a private search needs"):
        best.load_into(other)
    for before, after in zip(weights, other.get_weights(), strict=True):
        np.testing.assert_array_equal(before, after)
    assert tfdp.privacy_spent(other, DELTA) > 0.0


def test_trials_that_share_a_ledger_file_are_refused_with_a_remedy():
    together = make_model()

    def train(_):
        trial_model, score = trial(1.0)
        SPENDING.add(things_of(together), SPENDING.ledger(things_of(trial_model)))
        return together, score

    with pytest.raises(ValueError, match="nor share its ledger_path"):
        for _ in range(100):
            tfdp.PrivateSearch(5.0).run({}, train)


def test_trials_of_different_cost_are_refused():
    noises = iter(np.linspace(1, 2, 10_000))
    with pytest.raises(ValueError, match="(?s)Expected trials of one privacy cost.*Received"):
        for _ in range(100):
            tfdp.PrivateSearch(5.0).run({}, lambda _: trial(1.0, noise=next(noises)))


@pytest.mark.parametrize(
    "arguments", [{"mean_trials": 0.5}, {"mean_trials": 1 + 1e-12, "trials": "logarithmic"},
                  {"mean_trials": 2.0, "trials": "poisson"}]
)  # fmt: skip
def test_wrong_settings_are_refused(arguments):
    with pytest.raises(ValueError, match="(?s)Expected.*Received"):
        tfdp.PrivateSearch(**arguments)


def test_trials_that_are_not_private_are_refused():
    def seeded(_):
        model, score = trial(1.0)
        entry = LedgerEntry(Sampling.poisson(1000, 10), NOISE, steps=5, seeded=True)
        SPENDING.add(things_of(model), PrivacyLedger([entry]))
        return model, score

    def unknown(_):
        model, score = trial(1.0)
        SPENDING.add(things_of(model), PrivacyLedger(prior_spend_unknown=True))
        return model, score

    for train, why in ((seeded, "follow a given seed"), (unknown, "prior spend is unknown")):
        with pytest.raises(ValueError, match=f"(?s)Expected trials that are private.*{why}"):
            tfdp.PrivateSearch(1.0).run({}, train)


def test_a_trial_that_has_no_score_never_wins_over_one_that_has():
    for _ in range(20):
        scores = []

        def train(_, scores=scores):
            scores.append(float("nan") if len(scores) != 1 else 3.0)
            return trial(1.0)[0], scores[-1]

        best = tfdp.PrivateSearch(4.0).run({}, train)
        assert best.score == (3.0 if len(scores) > 1 else -np.inf)


def test_a_model_that_a_trial_leaves_behind_knows_the_price_of_the_search():
    kept = []

    def train(_):
        kept.append(trial(1.0))
        return kept[-1]

    best = tfdp.PrivateSearch(2.0).run({}, train)
    best.load_into(result := make_model())
    for model, _ in kept:
        assert tfdp.privacy_spent(model, DELTA) >= tfdp.privacy_spent(result, DELTA)


def test_what_others_drew_and_adapted_layers_of_any_trial_are_said_of_the_result(
    data, private, tmp_path
):
    x, y = np.zeros((24, 2), "float32"), np.zeros((24, 1), "float32")
    layer = keras.layers.Normalization(name="adapted_to_rows")
    layer.adapt(x)
    trained = []

    def train(_):
        model = private(make_model(), loss="mse", noise_multiplier=2.0)
        if len(trained) == 1:  # the second only: batches that a generator drew
            batches = ((x[:6], y[:6]) for _ in range(4))
            stated = {"sampling": "poisson", "num_examples": 24, "batch_size": 6}
            model.fit(batches, steps_per_epoch=4, verbose=0, **stated)
        else:
            with pytest.warns(UserWarning, match="may come from adapt"):
                model.fit(x, y, batch_size=6, augment=lambda x: layer(x), verbose=0)
        trained.append(model)
        return model, float(len(trained))

    while len(trained) < 2:
        trained.clear()
        best = tfdp.PrivateSearch(4.0).run({}, train)
    best.load_into(model := private(make_model(), loss="mse", noise_multiplier=2.0))
    model.save(tmp_path / "model.keras")
    for each in (model, keras.models.load_model(tmp_path / "model.keras")):
        text = " ".join(tfdp.privacy_statement(each, DELTA).split())
        assert "batches of 'private search' were drawn outside" in text
        assert "the state of adapted_to_rows was not given" in text
    trained.clear()
    while not trained:
        best = tfdp.PrivateSearch(1.0).run({}, train)
    best.load_into(model := make_model())
    assert "drawn outside" not in tfdp.privacy_statement(model, DELTA)


def test_copies_of_what_a_search_has_made_are_known_by_the_file_of_its_result(private, tmp_path):
    """0.00 was stated for 0.80, as files told of values that steps of a run have made alone."""
    best = tfdp.PrivateSearch(2.0).run({}, lambda _: trial(1.0))
    best.load_into(model := private(make_model(), loss="mse", noise_multiplier=2.0))
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    copy = make_model()
    copy.set_weights(loaded.get_weights())
    assert tfdp.privacy_spent(copy, DELTA) == tfdp.privacy_spent(model, DELTA) > 0.0


def test_one_search_is_paid_once_whatever_its_trials_share():
    backbone = keras.Sequential([keras.Input((2,)), keras.layers.Dense(2)])
    backbone.trainable = False
    x, y = np.zeros((24, 2), "float32"), np.zeros((24, 1), "float32")
    kept = []

    def model_on_it():
        return keras.Sequential([keras.Input((2,)), backbone, keras.layers.Dense(1)])

    def train(_):
        model = tfdp.make_private(model_on_it())
        optimizer = tfdp.DPSGDOptimizer("sgd", l2_norm_clip=1.0, noise_multiplier=2.0)
        model.compile(optimizer, "mse", jit_compile=False)
        model.fit(x, y, batch_size=6, verbose=0)
        kept.append(model)
        return model, float(len(kept))

    while len(kept) < 2:
        kept.clear()
        best = tfdp.PrivateSearch(4.0).run({}, train)
    assert tfdp.privacy_spent(backbone, DELTA) == 0.0
    tfdp.record_release(alone := make_model(), best.event, "search")
    price = tfdp.privacy_spent(alone, DELTA)
    for _ in range(2):
        best.load_into(model := model_on_it())
        assert tfdp.privacy_spent(model, DELTA) == pytest.approx(price)
        assert tfdp.privacy_statement(model, DELTA).count("private search:") == 1


@pytest.mark.parametrize("quantised", [False, True])
def test_layers_that_a_trial_leaves_behind_know_the_price_quantised_or_not(quantised):
    """An encoder without biases had been charged with its own trial alone (0.79 for 2.07)."""
    x, y = np.zeros((24, 2), "float32"), np.zeros((24, 1), "float32")
    kept = []

    def train(_):
        encoder = keras.layers.Dense(2, use_bias=False)
        model = keras.Sequential([keras.Input((2,)), encoder, keras.layers.Dense(1)])
        tfdp.make_private(model)
        optimizer = tfdp.DPSGDOptimizer("sgd", l2_norm_clip=1.0, noise_multiplier=2.0)
        model.compile(optimizer, "mse", jit_compile=False)
        model.fit(x, y, batch_size=6, verbose=0)
        if quantised:
            model.quantize("int8")
        kept.append((model, encoder))
        return model, 0.0

    best = tfdp.PrivateSearch(2.0).run({}, train)
    tfdp.record_release(alone := make_model(), best.event, "search")
    for _, encoder in kept:
        head = keras.Sequential([keras.Input((2,)), encoder, keras.layers.Dense(1)])
        assert tfdp.privacy_spent(head, DELTA) >= tfdp.privacy_spent(alone, DELTA)


def test_hyperparameters_that_have_no_copy_are_returned_as_they_are():
    given = {"rows": tf.data.Dataset.range(3), "rate": 0.1}
    best = tfdp.PrivateSearch(1.5).run(lambda generator: given, lambda _: trial(1.0))
    assert best.hyperparameters["rate"] == 0.1 and best.hyperparameters["rows"] is given["rows"]


def test_a_search_on_one_of_several_workers_is_refused(monkeypatch):
    class Two(Workers):
        count = 2

    monkeypatch.setattr(join, "_joined", [Two()])
    with pytest.raises(tfdp.UnsupportedModelError, match="(?s)Expected one process.*of 2"):
        tfdp.PrivateSearch(1.0).run({}, lambda _: trial(1.0))

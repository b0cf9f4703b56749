"""The many-run bound against Gaussian mechanisms whose epsilon is known."""

import numpy as np
import pytest
from scipy import stats

from tf_lowrank_dp.auditing import many_run_audit
from tf_lowrank_dp.auditing.many_run import _epsilon_of

DELTA = 1e-5


def gaussian_scores(sigma, size, generator):
    """What an attacker sees of the Gaussian mechanism with sensitivity 1, with and without."""
    return 1.0 + sigma * generator.normal(size=size), sigma * generator.normal(size=size)


@pytest.mark.parametrize(("delta", "flipped"), [(0.0, False), (1e-3, False), (1e-3, True)])
def test_the_bound_is_the_formula_with_the_bounds_of_the_rates(delta, flipped):
    """90 of 100 with and 5 of 100 without are above the threshold; flipped, 95 and 10."""
    with_, without = (95, 10) if flipped else (90, 5)
    scores = [np.arange(100) < count for count in (with_, without)]
    result = many_run_audit(*scores, delta=delta, threshold=0.5)
    true = stats.binomtest(with_, 100).proportion_ci(0.95, method="exact").low
    false = stats.binomtest(without, 100).proportion_ci(0.95, method="exact").high
    assert result.true_positive_rate == pytest.approx(true)
    assert result.false_positive_rate == pytest.approx(false)
    ratios = [(true - delta) / false, (1 - false - delta) / (1 - true)]
    assert result.epsilon == pytest.approx(np.log(max(ratios)))
    assert (ratios[1] > ratios[0]) is flipped


@pytest.mark.parametrize("assume_gaussian", [False, True])
@pytest.mark.parametrize("threshold", [None, 0.5])
def test_the_bound_exceeds_the_truth_with_at_most_the_stated_probability(
    gaussian, assume_gaussian, threshold
):
    sigma = gaussian.get_sigma_gaussian(1.0, DELTA)
    trials, above, generator = 150, 0, np.random.default_rng(0)
    for seed in range(trials):
        result = many_run_audit(
            *gaussian_scores(sigma, 400, generator),
            delta=DELTA,
            confidence=0.8,
            threshold=threshold,
            assume_gaussian=assume_gaussian,
            seed=seed,
        )
        above += result.epsilon > 1.0
    assert stats.binom.sf(above - 1, trials, 0.2) > 1e-5


def test_randomised_response_is_bounded_by_its_epsilon_and_closely():
    generator = np.random.default_rng(0)
    probability = 1 / (1 + np.exp(-1.5))
    scores = [1.0 * (generator.random(100_000) < p) for p in (probability, 1 - probability)]
    result = many_run_audit(*scores, delta=0.0, threshold=0.5)
    assert 1.45 < result.epsilon <= 1.5


@pytest.mark.parametrize("claimed", [1.0, 3.0, 8.0])
@pytest.mark.parametrize("bug", ["halved", "absent"])
def test_too_little_noise_is_caught(gaussian, claimed, bug):
    sigma = gaussian.get_sigma_gaussian(claimed, DELTA)
    generator = np.random.default_rng(0)
    if bug == "absent":
        scores = np.ones(100_000), np.zeros(100_000)
        assert many_run_audit(*scores, delta=DELTA, seed=0).epsilon > claimed
    else:
        scores = gaussian_scores(sigma / 2, 4000, generator)
        result = many_run_audit(*scores, delta=DELTA, assume_gaussian=True, seed=0)
        true = gaussian.get_epsilon_gaussian(sigma / 2, DELTA)
        assert claimed < result.epsilon <= true


def test_halved_noise_is_caught_without_assumptions_by_many_runs(gaussian):
    sigma = gaussian.get_sigma_gaussian(1.0, DELTA)
    scores = gaussian_scores(sigma / 2, 500_000, np.random.default_rng(0))
    assert many_run_audit(*scores, delta=DELTA, seed=0).epsilon > 1.0


def test_the_threshold_is_measured_on_other_runs_than_it_was_chosen_on():
    """Scores without meaning, at a low confidence that choosing in sample would break."""
    trials, above, generator = 150, 0, np.random.default_rng(0)
    for seed in range(trials):
        scores = generator.normal(size=(2, 400))
        result = many_run_audit(*scores, delta=0.0, confidence=0.5, seed=seed)
        above += result.epsilon > 0
        assert result.num_measured == (200, 200)
    assert stats.binom.sf(above - 1, trials, 0.5) > 1e-5


def test_the_result_says_what_was_shown():
    result = many_run_audit(np.ones(50), np.zeros(60), delta=DELTA, seed=0)
    assert result.epsilon > 1.5 and result.threshold == 1.0 and result.roc.auc == 1.0
    for part in ("epsilon >= ", "delta=1e-05", "95% confidence", "25 runs with and 30 without"):
        assert part in str(result)


@pytest.mark.parametrize(
    "bad",
    [{"scores_with": [1.0]}, {"delta": -1.0}, {"confidence": 0.0}, {"scores_without": [np.nan, 1]}],
    ids=str,
)
def test_wrong_arguments_are_refused(bad):
    arguments = {"scores_with": [1.0, 2.0], "scores_without": [0.0, 1.0], "delta": 0.0, **bad}
    with pytest.raises(ValueError, match="(?s)Expected .*Received: .*[.]$"):
        many_run_audit(**arguments)


@pytest.mark.parametrize("delta", [0.0, 1e-10, 1e-5, 0.01, 0.5])
@pytest.mark.parametrize("mu", [1e-3, 0.1, 1.0, 10.0, 30.0])
def test_the_epsilon_of_mu_gdp_is_that_of_gaussian_noise(gaussian, mu, delta):
    expected = gaussian.get_epsilon_gaussian(1.0 / mu, delta)
    assert _epsilon_of(mu, delta) == pytest.approx(expected, rel=1e-8)

"""The one-run bound: the theorem by enumeration, its confidence by simulation."""

import fractions
import itertools
import math

import numpy as np
import pytest
from scipy import stats

from tf_lowrank_dp.auditing import Canaries, one_run_audit, one_run_epsilon, one_run_p_value


def binomial(trials, probability, count):
    return math.comb(trials, count) * probability**count * (1 - probability) ** (trials - count)


@pytest.mark.parametrize("delta", [0.0, 1e-3, 0.1])
def test_the_p_value_is_the_formula_in_exact_arithmetic(delta):
    q, m = fractions.Fraction(3, 4), 7  # epsilon = log 3
    for r in range(m + 1):
        for v in range(r + 1):
            masses = [binomial(r, q, w) for w in range(r + 1)]
            tail = sum(masses[v:])
            alpha = max(sum(masses[max(0, v - i) : v]) / i for i in range(1, m + 1))
            expected = min(1.0, float(tail) + 2 * m * delta * float(alpha))
            found = one_run_p_value(m, r, v, epsilon=math.log(3), delta=delta)
            assert found == pytest.approx(expected, abs=1e-12)


def correct_guesses_of_randomised_response(m, epsilon, v):
    """P[at least v of m coins are guessed] by going through all coins and all answers."""
    q = math.exp(epsilon) / (1 + math.exp(epsilon))
    total = 0.0
    for coins in itertools.product((0, 1), repeat=m):
        for answers in itertools.product((0, 1), repeat=m):
            right = sum(c == a for c, a in zip(coins, answers, strict=True))
            if right >= v:
                total += 0.5**m * q**right * (1 - q) ** (m - right)
    return total


@pytest.mark.parametrize("epsilon", [0.0, 0.7, 3.0])
def test_without_delta_the_p_value_is_attained_by_randomised_response(epsilon):
    for v in range(5):
        expected = correct_guesses_of_randomised_response(4, epsilon, v)
        assert one_run_p_value(4, 4, v, epsilon=epsilon, delta=0.0) == pytest.approx(expected)


@pytest.mark.parametrize("m", [1, 3, 6])
@pytest.mark.parametrize("delta", [1e-4, 0.01, 0.2])
def test_no_mechanism_that_leaks_with_probability_delta_exceeds_the_p_value(m, delta):
    """Each bit is revealed with probability delta, or all of them at once."""
    for epsilon in (0.0, 1.0):
        q = 1 / (1 + math.exp(-epsilon))
        for v in range(1, m + 1):
            p_value = one_run_p_value(m, m, v, epsilon=epsilon, delta=delta)
            each = stats.binom.sf(v - 1, m, delta + (1 - delta) * q)
            at_once = delta + (1 - delta) * stats.binom.sf(v - 1, m, q)
            assert max(each, at_once) <= p_value + 1e-12


def test_the_bound_refutes_every_smaller_epsilon_and_no_larger_one():
    bound = one_run_epsilon(1000, 200, 170, delta=1e-5, confidence=0.9)
    for epsilon, is_refuted in ((bound - 0.01, True), (bound, True), (bound + 1e-5, False)):
        assert (one_run_p_value(1000, 200, 170, epsilon=epsilon, delta=1e-5) <= 0.1) is is_refuted
    assert one_run_epsilon(1000, 200, 101, delta=1e-5, confidence=0.9) == 0.0
    assert one_run_epsilon(1000, 200, 200, delta=0.01, confidence=0.9) < bound


def randomised_response(included, epsilon, generator):
    lies = generator.random(len(included)) > 1 / (1 + math.exp(-epsilon))
    return np.where(included ^ lies, 1.0, -1.0)


def too_often(count, trials, probability):
    """Whether so many failures have a probability below 1e-5."""
    return stats.binom.sf(count - 1, trials, probability) < 1e-5


@pytest.mark.parametrize("guesses", [(40, 40), (60, 0), None], ids=str)
def test_the_bound_exceeds_the_truth_with_at_most_the_stated_probability(guesses):
    trials, above, generator = 200, 0, np.random.default_rng(0)
    for _ in range(trials):
        included = generator.integers(0, 2, 300).astype(bool)
        scores = randomised_response(included, 1.0, generator)
        result = one_run_audit(scores, included, delta=0.0, guesses=guesses, confidence=0.8)
        above += result.epsilon > 1.0
    assert not too_often(above, trials, 0.2)


def test_several_numbers_of_guesses_share_the_confidence():
    """Scores without meaning: each single trial at 50 % would often show some epsilon."""
    trials, above, generator = 150, 0, np.random.default_rng(0)
    for _ in range(trials):
        included = generator.integers(0, 2, 4096).astype(bool)
        scores = generator.random(4096)
        above += one_run_audit(scores, included, delta=0.0, confidence=0.5).epsilon > 0
    assert not too_often(above, trials, 0.5)


def test_the_bound_comes_close_to_the_truth_with_many_canaries():
    generator = np.random.default_rng(0)
    included = generator.integers(0, 2, 200_000).astype(bool)
    scores = randomised_response(included, 2.0, generator)
    result = one_run_audit(scores, included, delta=0.0, guesses=(50_000, 50_000))
    assert 1.95 < result.epsilon < 2.0 + 1e-6


def test_the_gaussian_mechanism_stays_below_its_epsilon(gaussian):
    sigma = gaussian.get_sigma_gaussian(1.0, 1e-5)
    generator = np.random.default_rng(0)
    for _ in range(50):
        included = generator.integers(0, 2, 2000).astype(bool)
        scores = included + sigma * generator.normal(size=2000)
        result = one_run_audit(scores, included, delta=1e-5, confidence=0.999)
        assert result.epsilon < 1.0


def test_the_highest_are_guessed_in_and_the_lowest_out():
    scores = np.array([5.0, 1.0, 4.0, 0.0, 3.0, 2.0])
    included = np.array([True, True, False, False, True, False])
    for guesses, correct in (((1, 1), 2), ((2, 2), 2), ((3, 0), 2), ((0, 3), 2), ((0, 1), 1)):
        result = one_run_audit(scores, included, delta=0.0, guesses=guesses)
        assert (result.num_correct, result.guesses) == (correct, guesses)
    assert result.roc.auc == pytest.approx(6 / 9)


@pytest.mark.parametrize("members", ["first", "last"])
def test_equal_scores_tell_nothing_however_the_canaries_are_listed(members):
    included = np.arange(400) < 200
    if members == "last":
        included = ~included
    assert one_run_audit(np.zeros(400), included, delta=1e-5).epsilon == 0.0


def test_the_result_says_what_was_shown():
    canaries = Canaries.draw(np.arange(100), seed=0)
    result = one_run_audit(1.0 * canaries.included, canaries.included, delta=1e-5, guesses=(30, 30))
    assert result.epsilon > 2.5
    for part in (
        "epsilon >= ",
        "delta=1e-05",
        "95% confidence",
        "60 of 60 guesses",
        "100 canaries",
    ):
        assert part in str(result)


BAD = {
    "lengths": {"included": [True]},
    "delta": {"delta": 1.0},
    "confidence": {"confidence": 1.0},
    "too many guesses": {"guesses": (3, 2)},
    "no guesses": {"guesses": (0, 0)},
    "negative guesses": {"guesses": (-1, 2)},
    "nan": {"scores": [np.nan, 0, 0, 0]},
}


@pytest.mark.parametrize("name", BAD)
def test_wrong_arguments_are_refused(name):
    arguments = {"scores": np.zeros(4), "included": [True, False] * 2, "delta": 0.0, **BAD[name]}
    with pytest.raises(ValueError, match="(?s)Expected .*Received: .*[.]$"):
        one_run_audit(arguments.pop("scores"), arguments.pop("included"), **arguments)

"""PATE, the baseline: what one record changes, what is spent, and what the student may see."""

import math

import numpy as np
import pytest
from scipy import optimize, stats

from benchmarks.reproductions import pate
from benchmarks.reproductions.pate import Aggregator

CONFIDENT = Aggregator(40.0, threshold=0.8, threshold_sigma=150.0, asked=1.5)


def epsilon_of_gaussians(mu, delta):
    """Epsilon of Gaussian mechanisms of total signal to noise `mu` (Balle and Wang 2018)."""

    def excess(epsilon):
        cdf = stats.norm.cdf
        second = math.exp(epsilon) * cdf(-mu / 2 - epsilon / mu)
        return cdf(mu / 2 - epsilon / mu) - second - delta

    return optimize.brentq(excess, 0.0, 60.0)


def test_one_record_is_with_one_teacher_and_leaves_the_parts_of_all_others():
    with_one, without = (
        pate.parts(examples, 7, np.random.default_rng(3)) for examples in (1000, 999)
    )
    assert sorted(np.concatenate(with_one)) == list(range(1000))
    changed = [{*a} ^ {*b} for a, b in zip(with_one, without, strict=True)]
    assert sorted(changed, key=len) == [set()] * 6 + [{999}]


def test_one_teacher_moves_counts_by_sqrt_2_and_the_largest_by_1():
    random = np.random.default_rng(0)
    for _ in range(200):
        chosen = random.integers(0, 10, 30)
        other = chosen.copy()
        other[0] = random.integers(0, 10)
        a, b = (np.bincount(votes, minlength=10) for votes in (chosen, other))
        assert np.linalg.norm(a - b) <= math.sqrt(2) + 1e-12
        assert abs(a.max() - b.max()) <= 1


@pytest.mark.parametrize("aggregator", [Aggregator(40.0), Aggregator(100.0), CONFIDENT])
def test_epsilon_is_that_of_gaussians_composed(aggregator):
    answers = 120
    squared = 2 * answers / aggregator.sigma**2
    if aggregator.threshold:
        squared += aggregator.questions(answers) / aggregator.threshold_sigma**2
    exact = epsilon_of_gaussians(math.sqrt(squared), 1e-5)
    assert exact <= aggregator.epsilon(answers, 1e-5) + 1e-9
    assert aggregator.epsilon(answers, 1e-5) == pytest.approx(exact, rel=0.01)


@pytest.mark.parametrize("aggregator", [Aggregator(40.0), CONFIDENT])
def test_the_budget_holds_so_many_answers_and_no_more(aggregator):
    answers = aggregator.affordable(2.0, 1e-5, 5000)
    assert aggregator.epsilon(answers, 1e-5) <= 2.0 < aggregator.epsilon(answers + 1, 1e-5)
    assert aggregator.affordable(2.0, 1e-5, 10) == 10


def test_no_more_is_asked_or_answered_than_is_paid_for():
    votes = np.tile([250, 0], (1000, 1))
    random = np.random.default_rng(0)
    assert list(Aggregator(1.0).answer(votes, 100, random)[0]) == list(range(100))
    assert list(CONFIDENT._replace(threshold_sigma=1e-9).answer(votes, 100, random)[0]) == list(
        range(100)
    )
    unsure = np.tile([130, 120], (1000, 1))
    unsure[140:] = [250, 0]
    chosen, labels = CONFIDENT._replace(threshold_sigma=1e-9).answer(unsure, 100, random)
    assert list(chosen) == list(range(140, 150))  # 150 questions are asked for 100 answers
    assert list(labels) == [0] * 10


def test_noise_of_votes_has_the_deviation_that_is_accounted():
    votes, sigma, questions = np.tile([3.0, 0.0], (40_000, 1)), 5.0, 40_000
    _, labels = Aggregator(sigma).answer(votes, questions, np.random.default_rng(0))
    right = stats.norm.cdf(3.0 / (sigma * math.sqrt(2)))
    assert np.mean(labels == 0) == pytest.approx(
        right, abs=5 * math.sqrt(right * (1 - right) / 4e4)
    )


def test_the_student_sees_answers_only_and_images_that_are_reported_choose_nothing(
    tmp_path, monkeypatch, capsys
):
    random = np.random.default_rng(0)
    train, test = (
        (random.random((rows, 28, 28, 1), "float32"), random.integers(0, 10, rows).astype("int32"))
        for rows in (pate.HELD_OUT + 800, pate.PUBLIC + 64)
    )
    seen = []

    class Student:
        def __init__(self, chosen):
            self.chosen = chosen

        def accuracy(self, x, y):
            return len(x) / 10_000 + len(self.chosen) / 100_000

    def study(public, chosen, labels, *, steps, seed):
        assert len(public) == pate.PUBLIC and np.array_equal(public, test[0][: pate.PUBLIC])
        seen.append(len(chosen))
        return Student(chosen)

    monkeypatch.setattr(pate, "load_mnist", lambda folder: (train, test))
    monkeypatch.setattr(pate, "study", study)
    arguments = ["--teachers", "20", "--teacher-steps", "1", "--epsilons", "8", "--seeds", "0", "1"]
    arguments += ["--votes", str(tmp_path / "votes.npz"), "--json", str(tmp_path / "pate.json")]
    pate.main(arguments)
    assert pate.vote(pate.parse_args(arguments), None, None, test[0][:1]).public.sum() == (
        20 * pate.PUBLIC
    )
    tried = len(pate.aggregators(20))
    assert len(seen) == tried + 1
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| 8 ")]
    assert len(rows) == 1 and rows[0].endswith("| 2 | 98.6 |")
    pate.main(arguments)
    assert len(seen) == tried + 1  # recorded

"""Membership inference by the loss: laws of the measurement, and a model that has memorised."""

import keras
import numpy as np
import pytest
from scipy import stats

from tf_lowrank_dp.auditing import membership_inference, per_example_losses


def exponential(seed, size, means=(1.0, 2.0)):
    generator = np.random.default_rng(seed)
    return [generator.exponential(mean, size) for mean in means]


def test_the_measured_accuracy_is_that_of_the_best_threshold():
    """Densities of means 1 and 2 cross at 2 log 2: 3/4 of one and 1/2 of the other are below."""
    result = membership_inference(*exponential(0, 100_000), confidence=0.999, seed=0)
    assert result.interval[0] < 0.625 < result.interval[1]
    assert result.interval[1] - result.interval[0] < 0.012
    assert result.threshold == pytest.approx(2 * np.log(2), abs=0.1)


def test_the_threshold_is_measured_on_other_examples_than_it_was_found_on():
    """Of eight losses without meaning the best threshold is right on far more than half."""
    accuracies = [
        membership_inference(*exponential(seed, 8, (1.0, 1.0)), seed=seed).accuracy
        for seed in range(800)
    ]
    assert abs(np.mean(accuracies) - 0.5) < 4 * np.std(accuracies) / np.sqrt(800)
    in_sample = []
    for seed in range(100):
        members, others = exponential(seed, 4, (1.0, 1.0))
        candidates = [*members, *others, np.inf]
        rates = [np.mean(members < t) / 2 + np.mean(others >= t) / 2 for t in candidates]
        in_sample.append(max(rates))
    assert np.mean(in_sample) > 0.6


def test_the_interval_misses_the_truth_with_at_most_the_stated_probability():
    trials = 200
    missed = 0
    for seed in range(trials):
        low, high = membership_inference(
            *exponential(seed, 60, (1.0, 1.0)), confidence=0.8, seed=seed
        ).interval
        missed += not low <= 0.5 <= high
    assert missed <= stats.binom.ppf(0.9999, trials, 0.2)


def test_members_and_others_are_balanced_whatever_was_given():
    members, others = exponential(0, 1000)
    result = membership_inference(members[:101], others, seed=0)
    assert result.num_measured == 100
    constant = membership_inference(np.zeros(1000), np.zeros(11), seed=0)
    assert constant.num_measured == 10 and constant.accuracy == 0.5


def test_losses_that_separate_are_told_apart_without_error():
    result = membership_inference([0.1] * 4, [1.0, 2.0, 3.0, np.inf], seed=0)
    assert result.accuracy == result.roc.auc == result.interval[1] == 1.0
    assert 0.1 <= result.threshold < 1.0
    expected = stats.binomtest(4, 4).proportion_ci(0.95, method="exact").low
    assert result.interval[0] == pytest.approx(expected)


def test_low_losses_of_others_are_no_sign_of_membership():
    members, others = exponential(0, 4000, (2.0, 1.0))
    result = membership_inference(members, others, seed=0)
    assert result.roc.auc < 0.4 and result.accuracy < 0.55


def test_a_seed_repeats_the_division_and_no_seed_does_not():
    losses = exponential(0, 500)
    assert str(membership_inference(*losses, seed=3)) == str(membership_inference(*losses, seed=3))
    assert len({membership_inference(*losses).accuracy for _ in range(20)}) > 1


def test_the_text_holds_accuracy_interval_and_sizes():
    text = str(membership_inference(*exponential(0, 1000), seed=0))
    for part in ("accuracy ", "95% interval", "1000 examples", "AUC 0.", "at 1% false positives"):
        assert part in text


@pytest.mark.parametrize(
    ("losses", "name"),
    [(([1.0], [1.0, 2.0]), "at least two members"), (([1.0, np.nan], [1.0]), "member_losses")],
)
def test_too_few_losses_and_nan_are_refused(losses, name):
    with pytest.raises(ValueError, match=f"Expected.*{name}.*Received: .*Pass"):
        membership_inference(*losses)


def test_a_model_that_has_memorised_random_labels_gives_its_members_away():
    keras.utils.set_random_seed(0)
    generator = np.random.default_rng(0)
    x = generator.normal(size=(120, 80)).astype(np.float32)
    y = generator.integers(0, 2, 120)
    model = keras.Sequential([keras.Input((80,)), keras.layers.Dense(2)])
    model.compile(
        keras.optimizers.Adam(0.1), keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    )
    model.fit(x[:60], y[:60], epochs=40, batch_size=60, verbose=0)
    losses = per_example_losses(model, x, y)
    result = membership_inference(losses[:60], losses[60:], seed=0)
    assert result.interval[0] > 0.55 and result.roc.auc > 0.7

"""Confidence bounds of a probability, against SciPy and by exact coverage."""

import numpy as np
import pytest
from scipy import stats

from tf_lowrank_dp.auditing.intervals import lower_bound, upper_bound


@pytest.mark.parametrize("trials", [1, 7, 400])
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.9999])
def test_the_bounds_are_those_of_clopper_and_pearson(trials, confidence):
    counts = np.unique(np.linspace(0, trials, 9).astype(int))
    for side, bound in (("greater", lower_bound), ("less", upper_bound)):
        found = bound(counts, trials, confidence)
        for count, value in zip(counts, found, strict=True):
            test = stats.binomtest(int(count), trials, alternative=side)
            interval = test.proportion_ci(confidence, method="exact")
            expected = interval.low if side == "greater" else interval.high
            np.testing.assert_allclose(value, expected, atol=1e-9)


@pytest.mark.parametrize("truth", [0.001, 0.1, 0.5, 0.73, 0.999])
def test_the_lower_bound_exceeds_the_truth_with_at_most_the_stated_probability(truth):
    counts = np.arange(31)
    wrong = lower_bound(counts, 30, 0.9) > truth
    assert stats.binom.pmf(counts[wrong], 30, truth).sum() <= 0.1

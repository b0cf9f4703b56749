"""The canary audit passes the optimizers as they are and catches mechanisms with a bug.

Bounds are at 99.99 % confidence: a test fails by chance once in ten thousand runs at most.
"""

import numpy as np
import pytest

from tests.auditing.broken import BROKEN, SCORES
from tests.auditing.canary_run import OPTIMIZERS, certain_guesses, train

DELTA, CONFIDENCE, NUM_CANARIES, NUM_STEPS = 1e-6, 0.9999, 600, 8
NOISE_MULTIPLIERS = {1: 6.3, 3: 2.5, 8: 1.2}
"""By the epsilon that they mean, about."""


def short_run(name, noise_multiplier):
    return train(
        name, NUM_CANARIES, delta=DELTA, num_steps=NUM_STEPS, noise_multiplier=noise_multiplier
    )


@pytest.mark.parametrize("epsilon", NOISE_MULTIPLIERS)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_no_audit_of_an_optimizer_exceeds_the_reported_epsilon(name, epsilon):
    run = short_run(name, NOISE_MULTIPLIERS[epsilon])
    assert run.epsilon == pytest.approx(epsilon, rel=0.1)
    for score in ("total", "spread"):
        assert run.audit(score, confidence=CONFIDENCE).epsilon < run.epsilon
    if epsilon == 8:  # The attack sees something, or the test would say nothing.
        assert run.audit("total").roc.auc > 0.6


@pytest.mark.parametrize(
    ("bug", "name"),
    [*((bug, "DP-SGD") for bug in BROKEN), *zip(BROKEN, ("RGP", "GEP", "LSG"), strict=True)],
)
def test_an_optimizer_with_a_bug_is_caught(bug, name):
    with BROKEN[bug](batch_size=NUM_CANARIES / 4):
        run = short_run(name, NOISE_MULTIPLIERS[1])
    guesses = certain_guesses(name, NUM_CANARIES)
    result = run.audit(SCORES[bug], guesses, confidence=CONFIDENCE)
    assert result.epsilon > run.epsilon
    assert np.isclose(run.epsilon, 1, rtol=0.1), "the report does not know of the bug"

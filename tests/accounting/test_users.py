"""Epsilon of users with several examples: between that of one and group privacy; by integration."""

import dp_accounting
import numpy as np
import pytest
import scipy.integrate
import scipy.stats

from tf_lowrank_dp.accounting import LedgerEntry, PrivacyLedger, ReleaseEntry, Sampling
from tf_lowrank_dp.accounting import statement as statement_of

DELTA = 1e-5


def ledger(noise=1.0, rate=0.01, steps=100, sampling=None):
    sampling = sampling or Sampling.poisson(batch_size=10, sampling_rate=rate)
    return PrivacyLedger([LedgerEntry(sampling, noise, steps)])


def integrated_delta(epsilon, noise, rate, size):
    """Of one step, the worse direction of the mixture's hockey-stick divergence, by quadrature."""
    x = np.linspace(-15 * noise, size + 15 * noise, 400_001)
    weights = scipy.stats.binom.pmf(np.arange(size + 1), size, rate)
    mixture = sum(w * scipy.stats.norm.pdf(x, i, noise) for i, w in enumerate(weights))
    plain = scipy.stats.norm.pdf(x, 0, noise)
    pairs = (mixture, plain), (plain, mixture)
    return max(
        scipy.integrate.trapezoid(np.maximum(p - np.exp(epsilon) * q, 0.0), x) for p, q in pairs
    )


@pytest.mark.parametrize("size", [2, 8])
@pytest.mark.parametrize(("noise", "rate"), [(1.0, 0.1), (3.0, 0.5)])
def test_one_step_is_the_integral_of_its_definition(noise, rate, size):
    found = ledger(noise, rate, steps=1).epsilon_of_users(DELTA, size)
    assert integrated_delta(found, noise, rate, size) <= DELTA * (1 + 1e-4)
    assert integrated_delta(found * 0.995 - 2e-3, noise, rate, size) > DELTA


def test_one_example_is_the_guarantee_of_examples():
    assert ledger().epsilon_of_users(DELTA, 1) == ledger().epsilon(DELTA)


def test_it_grows_with_the_examples_and_stays_below_group_privacy_and_full_batches():
    found = [ledger().epsilon_of_users(DELTA, size) for size in (1, 2, 4)]
    assert found == sorted(found)
    for size, epsilon in zip((2, 4), found[1:], strict=True):
        full = ledger(1.0 / size, rate=1.0).epsilon(DELTA)
        assert epsilon < full
        # k examples one after the other: (k e, delta (exp(k e) - 1) / (exp(e) - 1)).
        for each in np.geomspace(DELTA * 1e-5, DELTA, 8):
            one = ledger().epsilon(each)
            if each * np.expm1(size * one) / np.expm1(one) <= DELTA:
                assert epsilon < size * one


@pytest.mark.parametrize("size", [2, 5])
def test_without_sampling_all_examples_of_a_user_move_the_sum(size):
    whole = ledger(8.0, rate=1.0).epsilon_of_users(DELTA, size)
    assert whole == pytest.approx(ledger(8.0 / size, rate=1.0).epsilon(DELTA), rel=1e-3)
    passes = Sampling.shuffle(10, 6)
    found = ledger(20.0, steps=12, sampling=passes).epsilon_of_users(DELTA, size)
    assert found == pytest.approx(
        ledger(20.0 / size, steps=12, sampling=passes).epsilon(DELTA), rel=1e-3
    )


def test_it_is_above_that_of_fewer_examples_in_every_batch():
    """A rate of nearly 1 is nearly the full batch."""
    full = ledger(8.0 / 3, rate=1.0, steps=5).epsilon(DELTA)
    assert ledger(8.0, rate=0.999, steps=5).epsilon_of_users(DELTA, 3) == pytest.approx(
        full, rel=0.01
    )


def test_histories_without_such_a_bound_are_refused():
    laplace = PrivacyLedger([ReleaseEntry(dp_accounting.LaplaceDpEvent(2.0), "a count")])
    users = ledger(sampling=Sampling.poisson(100, 10, unit="user"))
    both = PrivacyLedger([*ledger().entries, *ledger(sampling=Sampling.shuffle(10, 6)).entries])
    for history in (laplace, users, both):
        with pytest.raises(ValueError, match="(?s)Expected.*max_examples_per_user.*Received"):
            history.epsilon_of_users(DELTA, 2)
    assert ledger(noise=0.0).epsilon_of_users(DELTA, 2) == np.inf
    assert PrivacyLedger().epsilon_of_users(DELTA, 2) == 0.0


def test_the_statement_says_whom_it_protects():
    text = " ".join(
        statement_of(ledger(), DELTA, accountant="rdp", max_examples_per_user=2).split()
    )
    assert f"epsilon = {np.ceil(ledger().epsilon_of_users(DELTA, 2) * 1e4) / 1e4:.4f} at" in text
    assert "adding or removing one user with at most 2 examples" in text
    assert "PLD" in text and "not users" not in text

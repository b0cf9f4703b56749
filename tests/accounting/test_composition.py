"""Epsilon against closed forms, quadrature and dp_accounting composed by hand."""

import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting import pld, rdp
from scipy import optimize, special, stats

from tf_lowrank_dp.accounting import LedgerEntry, PrivacyLedger, Sampling
from tf_lowrank_dp.accounting.composition import Mechanism, composed_epsilon

RELATION = dp_accounting.NeighboringRelation
CASES = [
    # noise multiplier, sampling rate, steps, delta
    (1.1, 256 / 60_000, 1_000, 1e-5),
    (1.0, 1 / 60, 90, 1e-5),
    (1.5, 0.01, 50, 1e-6),
    (4.0, 0.5, 30, 1e-3),
    (20.0, 0.25, 500, 1e-5),
    (3.0, 1.0, 4, 1e-5),
]


def poisson(rate, noise_multiplier, steps):
    return LedgerEntry(Sampling.poisson(batch_size=8, sampling_rate=rate), noise_multiplier, steps)


def gaussian_delta(epsilon, sensitivity, noise_multiplier):
    """Returns delta of the Gaussian mechanism in closed form (Balle and Wang, 2018)."""
    ratio = sensitivity / noise_multiplier
    first = stats.norm.cdf(ratio / 2 - epsilon / ratio)
    return first - math.exp(epsilon + stats.norm.logcdf(-ratio / 2 - epsilon / ratio))


def gaussian_epsilon(delta, sensitivity, noise_multiplier):
    """Returns epsilon of the Gaussian mechanism by inverting the closed form."""
    return optimize.brentq(
        lambda epsilon: gaussian_delta(epsilon, sensitivity, noise_multiplier) - delta,
        0,
        500,
        xtol=1e-12,
    )


@pytest.mark.parametrize(("noise_multiplier", "rate", "steps", "delta"), CASES)
@pytest.mark.parametrize("accountant", ["pld", "rdp"])
def test_epsilon_equals_dp_accounting_composed_by_hand(
    noise_multiplier, rate, steps, delta, accountant
):
    event = dp_accounting.GaussianDpEvent(noise_multiplier)
    if rate < 1:
        event = dp_accounting.PoissonSampledDpEvent(rate, event)
    by_hand = pld.PLDAccountant() if accountant == "pld" else rdp.RdpAccountant()
    by_hand.compose(event, steps)
    ledger = PrivacyLedger([poisson(rate, noise_multiplier, steps)])
    assert ledger.epsilon(delta, accountant=accountant) == pytest.approx(
        by_hand.get_epsilon(delta), rel=1e-9
    )


@pytest.mark.parametrize("noise_multiplier", [0.5, 1.0, 4.0, 30.0])
@pytest.mark.parametrize("count", [1, 9])
@pytest.mark.parametrize("delta", [1e-3, 1e-6])
@pytest.mark.parametrize(
    ("relation", "sensitivity"), [(RELATION.ADD_OR_REMOVE_ONE, 1), (RELATION.REPLACE_ONE, 2)]
)
def test_gaussian_epsilon_is_tight_and_not_below_the_closed_form(
    noise_multiplier, count, delta, relation, sensitivity
):
    mechanisms = (Mechanism(1.0, noise_multiplier, count),)
    exact = gaussian_epsilon(delta, sensitivity, noise_multiplier / math.sqrt(count))
    by_pld = composed_epsilon(mechanisms, relation, delta, "pld")
    assert exact <= by_pld <= exact * 1.001 + 1e-4
    coarse = composed_epsilon(mechanisms, relation, delta, "coarse_pld")
    assert by_pld <= coarse * (1 + 1e-9)
    assert coarse <= composed_epsilon(mechanisms, relation, delta, "coarsest_pld") * (1 + 1e-9)
    assert exact <= composed_epsilon(mechanisms, relation, delta, "rdp") <= exact * 1.5 + 0.01


def test_shuffled_passes_move_the_sum_by_two_clip_norms():
    entry = LedgerEntry(Sampling.shuffle(10, 6), noise_multiplier=8.0, steps=13)  # Three passes.
    exact = gaussian_epsilon(1e-5, 2, 8.0 / math.sqrt(3))
    for accountant in ("pld", "rdp"):
        epsilon = PrivacyLedger([entry]).epsilon(1e-5, accountant=accountant)
        assert exact <= epsilon <= 1.2 * exact


def test_dp_accounting_rdp_ignores_replace_one_so_that_it_must_not_be_asked():
    """If this fails, dp_accounting has changed and `composition.py` may halve the noise twice."""
    event = dp_accounting.GaussianDpEvent(4.0)
    add_or_remove = rdp.RdpAccountant(neighboring_relation=RELATION.ADD_OR_REMOVE_ONE)
    replace = rdp.RdpAccountant(neighboring_relation=RELATION.REPLACE_ONE)
    assert add_or_remove.compose(event).get_epsilon(1e-5) == replace.compose(event).get_epsilon(
        1e-5
    )


def antipodal_delta(epsilon, rate, noise_multiplier):
    """Returns delta of one Poisson-sampled Gaussian whose example v is replaced by -v, |v| = 1.

    The likelihood ratio rises along v, so the worst event is a half-line.
    """

    def log_density(x, mean):
        both = [stats.norm.logpdf(x, m, noise_multiplier) for m in (0.0, mean)]
        return special.logsumexp(both, b=[1 - rate, rate])

    def tail(x, mean):
        both = [stats.norm.sf(x, m, noise_multiplier) for m in (0.0, mean)]
        return (1 - rate) * both[0] + rate * both[1]

    threshold = optimize.brentq(
        lambda x: log_density(x, 1.0) - log_density(x, -1.0) - epsilon, -200, 200, xtol=1e-12
    )
    return tail(threshold, 1.0) - math.exp(epsilon) * tail(threshold, -1.0)


@pytest.mark.parametrize(("rate", "noise_multiplier"), [(0.1, 2.0), (0.01, 1.0), (0.5, 4.0)])
def test_poisson_sampled_gaussian_under_replace_one_is_not_below_the_closed_form(
    rate, noise_multiplier
):
    mechanisms = (Mechanism(rate, noise_multiplier, 1),)
    epsilon = composed_epsilon(mechanisms, RELATION.REPLACE_ONE, 1e-4, "pld")
    assert antipodal_delta(epsilon, rate, noise_multiplier) <= 1e-4
    assert antipodal_delta(epsilon * 0.999 - 1e-3, rate, noise_multiplier) > 1e-4


@pytest.mark.parametrize("angle", [0.0, 1.0, 2.0, 2.8])
@pytest.mark.parametrize("length", [0.5, 1.0])
@pytest.mark.parametrize("epsilon", [-0.2, 0.3, 1.5])
def test_replacing_an_example_by_its_opposite_is_the_worst_replacement(angle, length, epsilon):
    """The pair that PLD uses under REPLACE_ONE dominates other pairs of clipped vectors."""
    rate, noise_multiplier = 0.3, 0.8
    x = np.linspace(-8.0, 8.0, 601)

    def density(mean):
        squares = (x[:, None] - mean[0]) ** 2 + (x[None, :] - mean[1]) ** 2
        scale = 2 * noise_multiplier**2
        return np.exp(-squares / scale) / (math.pi * scale)

    centre = (1 - rate) * density((0, 0))
    before = centre + rate * density((1, 0))
    after = centre + rate * density((length * math.cos(angle), length * math.sin(angle)))
    cell = (x[1] - x[0]) ** 2
    delta = np.maximum(before - math.exp(epsilon) * after, 0).sum() * cell
    assert delta <= antipodal_delta(epsilon, rate, noise_multiplier) + 1e-5


def test_mixed_relations_are_recomputed_under_replace_one():
    batches = poisson(0.05, 2.0, 20)
    passes = LedgerEntry(Sampling.shuffle(10, 6), noise_multiplier=8.0, steps=6)
    ledger = PrivacyLedger([batches, passes])
    by_hand = pld.PLDAccountant(RELATION.REPLACE_ONE)
    by_hand.compose(batches.sampling.event(dp_accounting.GaussianDpEvent(2.0), 20))
    by_hand.compose(passes.sampling.event(dp_accounting.GaussianDpEvent(8.0), 6))
    assert ledger.neighboring_relation is RELATION.REPLACE_ONE
    assert ledger.epsilon(1e-5) == pytest.approx(by_hand.get_epsilon(1e-5), rel=1e-6)
    assert ledger.epsilon(1e-5) > PrivacyLedger([batches]).epsilon(1e-5)
    assert ledger.epsilon(1e-5) > PrivacyLedger([passes]).epsilon(1e-5)


def test_rdp_refuses_poisson_sampling_under_replace_one_and_names_pld():
    ledger = PrivacyLedger([poisson(0.05, 2.0, 20), LedgerEntry(Sampling.shuffle(10, 6), 8.0, 6)])
    with pytest.raises(ValueError, match="Expected .* Received: accountant='rdp'. Pass .*'pld'"):
        ledger.epsilon(1e-5, accountant="rdp")


def test_pld_is_never_above_rdp_by_more_than_rounding():
    entries = [poisson(0.01, 0.9, 100), poisson(0.02, 1.3, 50)]
    ledger = PrivacyLedger(entries)
    assert ledger.epsilon(1e-5) <= ledger.epsilon(1e-5, accountant="rdp")


def test_pld_epsilon_never_falls_with_steps():
    epsilons = [PrivacyLedger([poisson(0.02, 1.5, steps)]).epsilon(1e-5) for steps in (1, 2, 9, 90)]
    assert epsilons == sorted(epsilons) and epsilons[0] > 0


@pytest.mark.parametrize(
    ("rate", "noise_multiplier", "steps"), [(1.0, 1e-3, 10**6), (0.5, 0.01, 10), (0.1, 0.05, 1000)]
)
def test_hardly_any_noise_is_a_large_epsilon_within_seconds(rate, noise_multiplier, steps):
    assert PrivacyLedger([poisson(rate, noise_multiplier, steps)]).epsilon(1e-5) > 1000

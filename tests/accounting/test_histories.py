"""Random histories of training: the ledger against dp_accounting composed by hand."""

import math

import dp_accounting
import pytest
from dp_accounting import pld, rdp
from hypothesis import given, settings
from hypothesis import strategies as st

from tf_lowrank_dp.accounting import (
    LedgerEntry,
    PrivacyLedger,
    Sampling,
    calibrate_noise_multiplier,
)
from tf_lowrank_dp.errors import PrivacyBudgetExceededError

DELTA = 1e-5
MECHANISMS = ("DP-SGD", "RGP", "LSG", "GEP")


@st.composite
def fits(draw, kinds=("poisson", "shuffle")):
    """One call of fit: data set, batch size, noise, steps and algorithm of its own."""
    num_examples = draw(st.integers(20, 100_000))
    batch_size = draw(st.integers(1, num_examples))
    if draw(st.sampled_from(kinds)) == "poisson":
        sampling = Sampling.poisson(num_examples=num_examples, batch_size=batch_size)
    else:
        per_pass = math.ceil(num_examples / batch_size)
        sampling = Sampling.shuffle(batch_size, per_pass, num_examples)
    noise_multiplier = draw(st.floats(0.7, 30.0))
    steps = draw(st.integers(1, 3000))
    return LedgerEntry(sampling, noise_multiplier, steps, draw(st.sampled_from(MECHANISMS)))


def histories(*kinds, size=4):
    return st.sampled_from(kinds).flatmap(
        lambda kind: st.lists(fits((kind,)), min_size=1, max_size=size)
    )


def composed(accountant, history):
    """By hand: every step on its own event; a pass moves the sum by two clips."""
    for entry in history:
        sampling = entry.sampling
        if sampling.kind == "shuffle":
            event = dp_accounting.GaussianDpEvent(entry.noise_multiplier / 2)
            count = math.ceil(entry.steps / sampling.steps_per_pass)
        else:
            event = dp_accounting.PoissonSampledDpEvent(
                sampling.batch_size / sampling.num_examples,
                dp_accounting.GaussianDpEvent(entry.noise_multiplier),
            )
            count = entry.steps
        accountant.compose(event, count)
    return accountant.get_epsilon(DELTA)


def few(examples):
    return settings(max_examples=examples, deadline=None, derandomize=True)


@few(8)
@given(histories("poisson", "shuffle"))
def test_a_ledger_equals_dp_accounting_composed_by_hand_after_every_fit(history):
    ledger, before = PrivacyLedger(), 0.0
    for number, entry in enumerate(history, start=1):
        ledger.append(entry)
        spent = ledger.epsilon(DELTA, accountant="rdp")
        assert spent == pytest.approx(composed(rdp.RdpAccountant(), history[:number]), rel=1e-9)
        assert spent >= before
        before = spent


@few(2)
@given(histories("poisson", size=2))
def test_the_tight_epsilon_equals_pld_by_hand_and_lies_between_truth_and_rdp(history):
    """The optimistic estimate of the privacy loss is below the truth."""
    ledger = PrivacyLedger(history)
    tight = ledger.epsilon(DELTA)
    assert tight == pytest.approx(composed(pld.PLDAccountant(), history), rel=1e-6)
    assert tight <= ledger.epsilon(DELTA, accountant="rdp") * (1 + 1e-6)
    optimistic = None
    for entry in history:
        one = pld.privacy_loss_distribution.from_gaussian_mechanism(
            entry.noise_multiplier,
            pessimistic_estimate=False,
            value_discretization_interval=1e-4,
            sampling_prob=entry.sampling.sampling_rate,
        ).self_compose(entry.steps)
        optimistic = one if optimistic is None else optimistic.compose(one)
    assert tight >= optimistic.get_epsilon_for_delta(DELTA) * (1 - 1e-9)


@few(5)
@given(histories("poisson", "shuffle"), st.randoms(use_true_random=False))
def test_neither_the_order_of_fits_nor_how_they_are_split_matters(history, random):
    whole = PrivacyLedger(history).epsilon(DELTA, accountant="rdp")
    shuffled = random.sample(history, len(history))
    assert PrivacyLedger(shuffled).epsilon(DELTA, accountant="rdp") == pytest.approx(whole, 1e-9)
    parts = []
    for entry in history:
        first = random.randint(0, entry.steps)
        for steps in (first, entry.steps - first):
            parts.append(LedgerEntry(entry.sampling, entry.noise_multiplier, steps, "split"))
    # A shuffled pass that is broken off and begun again is paid twice, never less than once.
    split = PrivacyLedger(parts).epsilon(DELTA, accountant="rdp")
    assert split >= whole * (1 - 1e-9)


@few(3)
@given(
    history=histories("poisson", size=3),
    plan=fits(("poisson",)),
    epsilon=st.floats(0.2, 20.0),
)
def test_calibration_after_any_history_never_exceeds_the_target(history, plan, epsilon):
    spent = PrivacyLedger(history)
    sampling = plan.sampling
    arguments = {"steps": plan.steps, "accountant": "rdp", "spent": spent}
    try:
        noise_multiplier = calibrate_noise_multiplier(
            epsilon, DELTA, sampling.batch_size, sampling.num_examples, **arguments
        )
    except PrivacyBudgetExceededError:
        return
    done = LedgerEntry(sampling, noise_multiplier, plan.steps)
    assert composed(rdp.RdpAccountant(), [*history, done]) <= epsilon

"""Releases by other mechanisms are composed with training, as dp_accounting composes the union."""

from fractions import Fraction

import dp_accounting
import numpy as np
import pytest
import tensorflow as tf
from dp_accounting import dp_event, pld, rdp

from tf_lowrank_dp.accounting import LedgerEntry, PrivacyLedger, ReleaseEntry, Sampling, statement

DELTA = 1e-5
GAUSSIAN, LAPLACE = dp_accounting.GaussianDpEvent(3.0), dp_accounting.LaplaceDpEvent(2.0)
SAMPLED = dp_accounting.PoissonSampledDpEvent(0.02, dp_accounting.GaussianDpEvent(1.0))
MIXTURE = dp_event.MixtureOfGaussiansDpEvent(2.0, [0.0, 1.0], [0.9, 0.1])
EVENTS = [
    GAUSSIAN,
    LAPLACE,
    SAMPLED,
    dp_accounting.SelfComposedDpEvent(GAUSSIAN, 3),
    dp_accounting.ComposedDpEvent([LAPLACE, dp_accounting.SelfComposedDpEvent(SAMPLED, 2)]),
    MIXTURE,
]
RUN = LedgerEntry(Sampling.poisson(1_000, 20), noise_multiplier=1.0, steps=50)


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_epsilon_is_that_of_the_union_of_all_events(event):
    ledger = PrivacyLedger([RUN, ReleaseEntry(event, "other")])
    union = dp_accounting.ComposedDpEvent([dp_accounting.SelfComposedDpEvent(SAMPLED, 50), event])
    expected = pld.PLDAccountant().compose(union).get_epsilon(DELTA)
    assert ledger.epsilon(DELTA) == pytest.approx(expected, rel=1e-6)
    if event is not MIXTURE:
        expected = rdp.RdpAccountant().compose(union).get_epsilon(DELTA)
        assert ledger.epsilon(DELTA, accountant="rdp") == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_an_event_survives_its_text_and_is_counted_once_when_ledgers_are_merged(event):
    ledger = PrivacyLedger([RUN, ReleaseEntry(event, "other")])
    again = PrivacyLedger.from_json(ledger.to_json())
    assert again == ledger
    ledger.merge(again)
    assert ledger.num_steps == 51 and "other: " in statement(ledger, DELTA)


def test_a_search_of_a_poisson_number_of_trials_survives_its_text():
    """Its shape is infinite (Papernot and Steinke 2022), which JSON has no number for."""
    search = dp_event.RepeatAndSelectDpEvent(GAUSSIAN, 3.0, float("inf"))
    ledger = PrivacyLedger([RUN, ReleaseEntry(search, "search")])
    again = PrivacyLedger.from_json(ledger.to_json())
    assert again == ledger and again.entries[1].event.shape == float("inf")
    union = dp_accounting.ComposedDpEvent([dp_accounting.SelfComposedDpEvent(SAMPLED, 50), search])
    expected = rdp.RdpAccountant().compose(union).get_epsilon(DELTA)
    assert again.epsilon(DELTA) == pytest.approx(expected, rel=1e-9)


def test_under_replacement_gaussians_count_at_twice_the_sensitivity_and_others_have_no_bound():
    shuffled = LedgerEntry(Sampling.shuffle(10, 6), noise_multiplier=8.0, steps=6)
    both = PrivacyLedger([shuffled, ReleaseEntry(GAUSSIAN, "mean")])
    union = dp_accounting.ComposedDpEvent([dp_accounting.GaussianDpEvent(8.0), GAUSSIAN])
    relation = dp_accounting.NeighboringRelation.REPLACE_ONE
    expected = pld.PLDAccountant(relation).compose(union).get_epsilon(DELTA)
    assert both.epsilon(DELTA) == pytest.approx(expected, rel=1e-6)
    ledger = PrivacyLedger([shuffled, ReleaseEntry(LAPLACE, "count")])
    assert ledger.epsilon(DELTA) == float("inf")
    assert "NOT PRIVATE" in statement(ledger, DELTA)


def test_a_release_without_noise_is_not_private():
    for event in (dp_accounting.NonPrivateDpEvent(), dp_accounting.GaussianDpEvent(0.0)):
        assert PrivacyLedger([ReleaseEntry(event, "exact")]).epsilon(DELTA) == float("inf")


@pytest.mark.parametrize(
    "event",
    [None, 1.0, dp_accounting.UnsupportedDpEvent(), dp_accounting.GaussianDpEvent("a lot")],
)
def test_what_no_accountant_knows_is_refused(event):
    with pytest.raises(ValueError, match="(?s)Expected.*Received"):
        ReleaseEntry(event, "other")
    with pytest.raises(ValueError, match="(?s)Expected.*Received"):
        ReleaseEntry(GAUSSIAN, "")


@pytest.mark.parametrize(
    "event",
    [
        dp_accounting.SelfComposedDpEvent(GAUSSIAN, -1),
        dp_accounting.SelfComposedDpEvent(GAUSSIAN, 0.5),
        dp_accounting.ComposedDpEvent([LAPLACE, dp_accounting.SelfComposedDpEvent(GAUSSIAN, -1)]),
        dp_accounting.PoissonSampledDpEvent(float("nan"), GAUSSIAN),
        dp_accounting.PoissonSampledDpEvent(-0.5, GAUSSIAN),
        dp_accounting.PoissonSampledDpEvent(1.5, GAUSSIAN),
        dp_accounting.GaussianDpEvent(float("nan")),
        dp_accounting.LaplaceDpEvent(-1.0),
        dp_accounting.GaussianDpEvent(np.array([3.0, 4.0])),
        dp_accounting.SelfComposedDpEvent(GAUSSIAN, np.array([2])),
    ],
    ids=str,
)
def test_an_event_that_would_count_for_less_than_nothing_is_refused(event):
    with pytest.raises(ValueError, match="(?s)Expected.*that is possible"):
        ReleaseEntry(event, "impossible")


class OwnMean(dp_accounting.GaussianDpEvent):
    """A subclass of a user's."""


PARTS = [GAUSSIAN, GAUSSIAN, LAPLACE]


def in_array(*events):
    array = np.empty(len(events), object)
    array[:] = events
    return array


@pytest.mark.parametrize(
    "event",
    [
        dp_accounting.ComposedDpEvent(part for part in PARTS),
        dp_accounting.ComposedDpEvent(map(lambda part: part, PARTS)),
        dp_accounting.ComposedDpEvent(tuple(PARTS)),
        dp_accounting.ComposedDpEvent(dict(enumerate(PARTS)).values()),
        dp_accounting.ComposedDpEvent(
            [OwnMean(np.float32(3.0)), OwnMean(tf.constant(3.0)), dp_accounting.LaplaceDpEvent("2")]
        ),
        dp_accounting.ComposedDpEvent(
            [dp_accounting.SelfComposedDpEvent(OwnMean(Fraction(3)), np.int64(2)), LAPLACE]
        ),
        dp_accounting.ComposedDpEvent(np.array(PARTS, object)),
        dp_accounting.ComposedDpEvent(in_array(dp_accounting.ComposedDpEvent(iter(PARTS)))),
    ],
    ids=["generator", "map", "tuple", "values", "numbers", "counts", "array", "parts in an array"],
)
def test_an_event_counts_in_whatever_container_and_numbers_it_comes(event):
    ledger = PrivacyLedger([ReleaseEntry(event, "three")])
    expected = pld.PLDAccountant().compose(dp_accounting.ComposedDpEvent(PARTS))
    assert ledger.epsilon(DELTA) == pytest.approx(expected.get_epsilon(DELTA), rel=1e-6)
    again = PrivacyLedger.from_json(ledger.to_json())
    assert again == ledger and again.epsilon(DELTA) == ledger.epsilon(DELTA)
    ledger.merge(again)
    assert ledger.num_steps == 1


def test_what_happens_to_a_callers_event_afterwards_changes_nothing():
    parts, weights, noise = [GAUSSIAN, LAPLACE], [0.0, 1.0], np.array(3.0)
    events = [
        dp_accounting.ComposedDpEvent(parts),
        dp_event.MixtureOfGaussiansDpEvent(2.0, weights, [0.9, 0.1]),
        dp_accounting.GaussianDpEvent(noise),
        dp_accounting.ComposedDpEvent(in_array(dp_accounting.ComposedDpEvent(parts))),
    ]
    ledgers = [PrivacyLedger([ReleaseEntry(event, "other")]) for event in events]
    before = [(ledger.epsilon(DELTA), ledger.to_json()) for ledger in ledgers]
    parts.clear()
    weights[1], noise[...] = 0.0, 100.0
    assert [(ledger.epsilon(DELTA), ledger.to_json()) for ledger in ledgers] == before


def test_an_event_that_is_handed_out_cannot_be_emptied():
    """It took a statement from 1.26 to 0."""
    parts = [
        dp_event.GaussianDpEvent(2.0),
        dp_event.SelfComposedDpEvent(dp_event.GaussianDpEvent(3.0), 2),
    ]
    entry = ReleaseEntry(dp_event.ComposedDpEvent(parts), "mean")
    for one in (entry, PrivacyLedger.from_json(PrivacyLedger([entry]).to_json()).entries[0]):
        assert isinstance(one.event.events, tuple) and len(one.event.events) == 2
    assert PrivacyLedger.from_json(PrivacyLedger([entry]).to_json()).entries[0] == entry

"""The report has each part that "How to DP-fy ML", section 5.3, asks for, and true numbers."""

import json
import math

import dp_accounting
import pytest

from tf_lowrank_dp.accounting import (
    LedgerEntry,
    PrivacyLedger,
    ReleaseEntry,
    Sampling,
    epsilon_curve,
    report_of,
    statement,
)

POISSON = Sampling.poisson(num_examples=60_000, batch_size=600)
SHUFFLE = Sampling.shuffle(batch_size=600, steps_per_pass=100, num_examples=60_000)
RUN = LedgerEntry(POISSON, 1.25, 100, mechanism="RGP", l2_norm_clip=0.5)
MEAN = ReleaseEntry(dp_accounting.GaussianDpEvent(8.0), "mean | of columns")


def report(*entries, delta=1e-6, **arguments):
    return report_of(PrivacyLedger(entries), delta, accountant="rdp", **arguments)


def test_it_has_every_part_of_section_5_3():
    found = json.loads(report(RUN, hyperparameter_search="3 runs on public data").to_json())
    run = found["releases"][0]
    assert found["setting"].startswith("central")
    assert found["unit"] == "one example"
    assert "ADD_OR_REMOVE_ONE" in found["neighbours"]
    assert "after each step" in found["output"]
    assert "Renyi" in found["accountant"] and found["versions"]["dp-accounting"]
    assert found["hyperparameter_search"] == "3 runs on public data"
    assert "not private" in found["metrics"]
    assert run["sampling"]["kind"] == "poisson" and run["sampling"]["sampling_rate"] == 0.01
    assert (run["steps"], run["noise_multiplier"], run["l2_norm_clip"]) == (100, 1.25, 0.5)


def test_epsilon_is_that_of_googles_accountant():
    event = dp_accounting.PoissonSampledDpEvent(0.01, dp_accounting.GaussianDpEvent(1.25))
    accountant = dp_accounting.rdp.RdpAccountant().compose(event, 100)
    assert report(RUN).epsilon == pytest.approx(accountant.get_epsilon(1e-6), rel=1e-9)


def test_it_says_what_the_statement_says():
    for entries in ([RUN], [RUN, MEAN], [LedgerEntry(SHUFFLE, 5.0, 100)]):
        text = " ".join(statement(PrivacyLedger(entries), 1e-6, accountant="rdp").split())
        found = report(*entries)
        for sentence in (found.guarantee, found.neighbours, *found.assumptions, *found.warnings):
            assert sentence in text


def test_a_search_that_is_not_stated_is_not_covered():
    assert "not covered" in report(RUN).hyperparameter_search


@pytest.mark.parametrize(
    "entry", [LedgerEntry(POISSON, 0.0, 1), LedgerEntry(POISSON, 1.0, 1, seeded=True)]
)
def test_no_guarantee_is_no_guarantee(entry):
    found = report(entry)
    assert not found.holds and found.guarantee.startswith("NOT PRIVATE") and found.warnings
    assert math.isinf(found.epsilon)


@pytest.mark.parametrize("entries", [[RUN], []])
def test_unknown_prior_spend_leaves_no_guarantee_and_the_epsilon_of_what_is_recorded(entries):
    found = report_of(PrivacyLedger(entries, prior_spend_unknown=True), 1e-6, accountant="rdp")
    assert not found.holds and found.guarantee.startswith("No guarantee for the weights")
    assert found.epsilon == PrivacyLedger(entries).epsilon(1e-6, accountant="rdp") < math.inf


def test_infinity_is_valid_json():
    unclipped = LedgerEntry(POISSON, 0.0, 1, l2_norm_clip=math.inf)
    found = json.loads(report(unclipped).to_json(), parse_constant=pytest.fail)
    assert found["epsilon"] == "infinity" == found["releases"][0]["l2_norm_clip"]


def test_unknown_prior_spend_and_notes_are_warnings():
    ledger = PrivacyLedger([RUN], prior_spend_unknown=True)
    found = report_of(ledger, 1e-6, accountant="rdp", notes=["A layer was adapted."])
    assert any("prior spend unknown" in warning for warning in found.warnings)
    assert found.warnings[-1] == "A layer was adapted."
    assert not any("taken as public" in assumption for assumption in found.assumptions)


def test_markdown_is_made_of_whole_tables():
    shuffled = LedgerEntry(SHUFFLE, 5.0, 100)
    text = report_of(PrivacyLedger([RUN, MEAN, shuffled]), 1e-6).to_markdown()
    tables = [block.splitlines() for block in text.split("\n\n") if block.startswith("| ")]
    assert [len(table) for table in tables] == [2 + 10, 2 + 3]
    for table in tables:
        columns = {line.replace("\\|", "").count("|") for line in table}
        assert len(columns) == 1
    for part in ("RGP | 100 | 1.25 | 0.5 | kind poisson", "mean \\| of columns", "steps per pass"):
        assert part in text


def test_the_curve_ends_at_what_was_spent_and_never_falls():
    ledger = PrivacyLedger([RUN, MEAN, LedgerEntry(POISSON, 1.0, 7)])
    curve = epsilon_curve(ledger, 1e-6, accountant="rdp", points=5)
    steps, epsilons = zip(*curve, strict=True)
    assert curve[0] == (0, 0.0) and steps[-1] == ledger.num_steps == 108
    assert epsilons[-1] == ledger.epsilon(1e-6, accountant="rdp")
    assert list(epsilons) == sorted(epsilons) and len({*steps}) == len(steps) == 1 + 5 + 1 + 5


def test_the_curve_of_the_tight_accountant_is_a_close_bound():
    ledger = PrivacyLedger([RUN])
    ((_, _), (_, last)) = epsilon_curve(ledger, 1e-6, points=1)
    exact = ledger.epsilon(1e-6)
    assert exact <= last <= exact * 1.01

"""The statement says what is guaranteed, and what is not."""

import dp_accounting
import pytest

from tf_lowrank_dp.accounting import (
    LedgerEntry,
    PrivacyLedger,
    Sampling,
    dp_sgd_statement,
    statement,
)

POISSON = Sampling.poisson(num_examples=60_000, batch_size=600)
SHUFFLE = Sampling.shuffle(batch_size=600, steps_per_pass=100, num_examples=60_000)
RUN = LedgerEntry(POISSON, 1.25, 100, mechanism="RGP", l2_norm_clip=0.5)


def text(ledger, delta=1e-6, **arguments):
    return statement(ledger, delta, accountant="rdp", **arguments)


def words(*args, **arguments):
    """Returns the statement with its line breaks removed."""
    return " ".join(text(*args, **arguments).split())


def test_it_names_guarantee_parameters_relation_sampler_and_accountant():
    said = words(PrivacyLedger([RUN]))
    for part in (
        "differentially private",
        "delta = 1e-06",
        "RGP: 100 steps",
        "noise_multiplier (sigma) = 1.25",
        "l2_norm_clip = 0.5",
        "Poisson sampling at rate 0.01",
        "expected batch size 600 of 60000 examples",
        "adding or removing one example (ADD_OR_REMOVE_ONE)",
        "Renyi differential privacy",
        "number of examples is public",
        "not users",
        "metrics and losses printed during training",
        "hyperparameters",
        "not cryptographic",
        "floating-point",
    ):
        assert part in said
    assert "Warning" not in said and "NOT PRIVATE" not in said


def test_the_printed_epsilon_is_not_below_the_computed_one():
    ledger = PrivacyLedger([RUN])
    printed = float(text(ledger).split("epsilon = ")[1].split()[0])
    epsilon = ledger.epsilon(1e-6, accountant="rdp")
    assert epsilon <= printed <= epsilon + 2e-4


def test_shuffled_passes_are_stated_with_replace_one():
    said = words(PrivacyLedger([LedgerEntry(SHUFFLE, 5.0, 100)]))
    assert "shuffled passes of 100 steps without amplification" in said
    assert "replacing one example (REPLACE_ONE)" in said


def test_planned_steps_are_stated_with_epsilon_after_them():
    ledger = PrivacyLedger([RUN])
    planned = LedgerEntry(POISSON, 1.25, 900)
    after = ledger.epsilon(1e-6, accountant="rdp", extra=[planned])
    said = text(ledger, planned=planned)
    printed = float(
        said.split("After the planned steps: epsilon = ")[1].splitlines()[0].rstrip(".")
    )
    assert after <= printed <= after + 2e-4
    assert text(ledger, planned=planned) == text(ledger, planned=[planned])


def test_delta_is_compared_with_the_largest_of_all_data():
    """A small fit after a large one had taken the warning away."""
    small = LedgerEntry(Sampling.poisson(num_examples=32, batch_size=8), 1.25, 4)
    ledger = PrivacyLedger([RUN, small])
    assert "Warning: delta" in text(ledger, delta=1e-3)
    assert "Warning: delta" in text(ledger, delta=1e-3, num_examples=32)


def test_delta_not_below_one_over_the_number_of_examples_is_a_warning():
    ledger = PrivacyLedger([RUN])
    assert "Warning: delta" in text(ledger, delta=1 / 60_000)
    assert "Warning: delta" in text(ledger, num_examples=10**6)
    assert "Warning: delta" not in text(ledger, delta=1 / 60_001)


def test_an_unknown_number_of_examples_is_a_note():
    entry = LedgerEntry(Sampling.poisson(batch_size=8, sampling_rate=0.01), 1.0, 10)
    assert "number of examples is not known" in text(PrivacyLedger([entry]))


def test_unknown_prior_spend_is_a_warning():
    unknown = text(PrivacyLedger([RUN], prior_spend_unknown=True))
    assert "prior spend unknown" in unknown and "guarantee holds" not in unknown
    assert "guarantee holds" in text(PrivacyLedger([RUN]))


def test_no_noise_is_not_private():
    said = text(PrivacyLedger([RUN, LedgerEntry(POISSON, 0.0, 1)]))
    assert said.startswith("NOT PRIVATE") and "infinity" in said and "without noise" in said


def test_reasons_make_it_not_private():
    said = text(PrivacyLedger([RUN]), not_private_reasons=["layer 'dense' is not clipped."])
    assert said.startswith("NOT PRIVATE") and "layer 'dense' is not clipped." in said


def test_it_is_deterministic_and_short_and_narrow():
    entries = [LedgerEntry(POISSON, 1.0 + i, 100, l2_norm_clip=1.0) for i in range(20)]
    ledger = PrivacyLedger(entries)
    said = text(ledger)
    lines = said.splitlines()
    assert said == text(PrivacyLedger.from_json(ledger.to_json()))
    assert len(lines) <= 32 and max(map(len, lines)) <= 100
    assert "12 earlier entries with 1200 steps" in said


def test_pld_is_the_default_accountant():
    assert "privacy loss distributions (PLD)" in statement(PrivacyLedger(), 1e-5)


@pytest.mark.parametrize("arguments", [{"delta": 0.0}, {"num_examples": 0}])
def test_errors_say_expected_received_and_the_remedy(arguments):
    with pytest.raises(ValueError, match=r"Expected .* Received: .*=.*\. \w+"):
        text(PrivacyLedger(), **arguments)


def test_unknown_accountant_is_an_error():
    with pytest.raises(ValueError, match="'pld' or 'rdp'"):
        statement(PrivacyLedger(), 1e-5, accountant="moments")


def test_a_statement_from_numbers_alone_is_that_of_the_run():
    """By Google's accountant alone."""
    event = dp_accounting.PoissonSampledDpEvent(0.02, dp_accounting.GaussianDpEvent(1.3))
    accountant = dp_accounting.pld.PLDAccountant()
    expected = accountant.compose(event, 150).get_epsilon(1e-5)
    arguments = {"noise_multiplier": 1.3, "delta": 1e-5, "batch_size": 20, "num_examples": 1000}
    text = dp_sgd_statement(**arguments, epochs=3)
    assert text == dp_sgd_statement(**arguments, steps=150)
    stated = float(text.split("epsilon = ")[1].split(" ")[0])
    assert expected <= stated <= expected * 1.001 + 1e-4
    assert "20 of 1000 examples" in text and "150 steps" in text

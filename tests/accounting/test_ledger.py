"""The ledger: it only grows, and it never reports less than was spent."""

import dataclasses
import itertools
import json
import math
import string
import zlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tf_lowrank_dp.accounting import LedgerEntry, PrivacyLedger, Sampling

DELTA = 1e-5
POISSON = Sampling.poisson(num_examples=1000, batch_size=10)
SHUFFLE = Sampling.shuffle(batch_size=10, steps_per_pass=100, num_examples=1000)
FEW = settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))


def noise(entry_id):
    """Returns the noise multiplier of a run: the same id is always the same run."""
    return 1.0 + ord(entry_id) % 3


entry_ids = st.sampled_from(string.ascii_lowercase[:6])
steps = st.integers(0, 2000)


@st.composite
def ledgers(draw, sampling=POISSON):
    ids = draw(st.lists(entry_ids, unique=True, max_size=4))
    entries = [
        LedgerEntry(sampling, noise(name), draw(steps), l2_norm_clip=1.0, entry_id=name)
        for name in ids
    ]
    return PrivacyLedger(entries, prior_spend_unknown=draw(st.booleans()))


def spent(ledger, extra=()):
    return ledger.epsilon(DELTA, accountant="rdp", extra=extra)


@FEW
@given(ledgers(), entry_ids, steps)
def test_epsilon_never_falls_when_an_entry_is_added_or_grows(ledger, entry_id, more):
    before = spent(ledger)
    entry = LedgerEntry(POISSON, noise(entry_id), more, l2_norm_clip=1.0, entry_id=entry_id)
    assert spent(ledger, extra=[entry]) >= before
    ledger.append(entry)
    assert spent(ledger) >= before


@FEW
@given(st.sampled_from([POISSON, SHUFFLE]).flatmap(lambda s: st.tuples(ledgers(s), ledgers(s))))
def test_merge_never_reports_less_than_either_ledger(pair):
    first, second = pair
    merged = PrivacyLedger.from_json(first.to_json())
    merged.merge(second)
    assert spent(merged) >= max(spent(first), spent(second))
    assert merged.num_steps >= max(first.num_steps, second.num_steps)
    assert merged.prior_spend_unknown == (first.prior_spend_unknown or second.prior_spend_unknown)
    again = PrivacyLedger.from_json(merged.to_json())
    again.merge(first)
    again.merge(second)
    assert again == merged


@FEW
@given(ledgers())
def test_json_round_trip_keeps_everything(ledger):
    loaded = PrivacyLedger.from_json(ledger.to_json())
    assert loaded == ledger
    assert loaded.entries == ledger.entries
    assert loaded.to_json() == ledger.to_json()


def test_json_round_trip_of_infinite_clip_and_shuffled_passes():
    entry = LedgerEntry(SHUFFLE, 0.0, 3, mechanism="RGP", l2_norm_clip=math.inf)
    ledger = PrivacyLedger([entry])
    assert "Infinity" not in ledger.to_json()
    assert PrivacyLedger.from_json(ledger.to_json()).entries == (entry,)


def test_steps_only_grow():
    ledger = PrivacyLedger()
    run = ledger.append(LedgerEntry(POISSON, 1.0))
    ledger.update_steps(run, 10)
    ledger.update_steps(run, 4)
    assert ledger.num_steps == 10
    ledger.append(dataclasses.replace(ledger.entries[0], steps=3))
    assert ledger.num_steps == 10
    ledger.append(dataclasses.replace(ledger.entries[0], steps=12))
    assert ledger.num_steps == 12


def test_merge_takes_the_union_of_the_entries_and_the_larger_steps():
    run = LedgerEntry(POISSON, 1.0, steps=10)
    first = PrivacyLedger([run, LedgerEntry(POISSON, 1.0, steps=1)])
    first.merge(PrivacyLedger([dataclasses.replace(run, steps=7), LedgerEntry(POISSON, 2.0, 5)]))
    assert [entry.steps for entry in first.entries] == [10, 1, 5]


def test_merge_refuses_different_runs_of_one_id_and_changes_nothing():
    ledger = PrivacyLedger([LedgerEntry(POISSON, 1.0, 10, entry_id="a")])
    other = PrivacyLedger(
        [LedgerEntry(POISSON, 1.0, 5), LedgerEntry(POISSON, 2.0, 9, entry_id="a")]
    )
    with pytest.raises(ValueError, match="Expected .* Received: .* new id"):
        ledger.merge(other)
    assert ledger.num_steps == 10


def test_new_entries_have_ids_of_their_own():
    assert LedgerEntry(POISSON, 1.0).entry_id != LedgerEntry(POISSON, 1.0).entry_id


def test_an_empty_ledger_and_entries_without_steps_cost_nothing():
    assert PrivacyLedger().epsilon(DELTA) == 0.0
    assert PrivacyLedger([LedgerEntry(POISSON, 0.0), LedgerEntry(SHUFFLE, 1.0)]).epsilon(DELTA) == 0


def test_steps_without_noise_are_an_infinite_epsilon():
    entries = [LedgerEntry(POISSON, 1.0, 10), LedgerEntry(POISSON, 0.0, 1)]
    assert PrivacyLedger(entries).epsilon(DELTA) == math.inf
    assert PrivacyLedger(entries[:1]).epsilon(DELTA, extra=entries[1:]) == math.inf


def test_equal_runs_cost_what_one_run_of_all_steps_costs():
    split = PrivacyLedger([LedgerEntry(POISSON, 1.0, 30), LedgerEntry(POISSON, 1.0, 70)])
    assert split.epsilon(DELTA) == PrivacyLedger([LedgerEntry(POISSON, 1.0, 100)]).epsilon(DELTA)


def test_each_run_that_begins_a_pass_pays_for_it():
    runs = [LedgerEntry(SHUFFLE, 5.0, 30) for _ in range(3)]
    one_run = PrivacyLedger([LedgerEntry(SHUFFLE, 5.0, 90)])
    three_passes = PrivacyLedger([LedgerEntry(SHUFFLE, 5.0, 300)])
    assert spent(PrivacyLedger(runs)) == spent(three_passes) > spent(one_run)


def test_extra_steps_of_a_recorded_run_continue_it():
    run = LedgerEntry(SHUFFLE, 5.0, 30)
    ledger = PrivacyLedger([run])
    assert spent(ledger, extra=[dataclasses.replace(run, steps=70)]) == spent(ledger)
    assert spent(ledger, extra=[dataclasses.replace(run, steps=71)]) > spent(ledger)
    with pytest.raises(ValueError, match="new id"):
        spent(ledger, extra=[dataclasses.replace(run, noise_multiplier=6.0)])


def test_unknown_prior_spend_is_sticky():
    ledger = PrivacyLedger()
    ledger.mark_prior_spend_unknown()
    ledger.merge(PrivacyLedger())
    assert PrivacyLedger.from_json(ledger.to_json()).prior_spend_unknown
    fresh = PrivacyLedger()
    fresh.merge(ledger)
    assert fresh.prior_spend_unknown


def damaged(change):
    """The text of a ledger with a change and the checksum that belongs to it."""
    content = json.loads(PrivacyLedger([LedgerEntry(POISSON, 1.0, 10)]).to_json())
    del content["crc32"]
    change(content)
    return json.dumps({"crc32": zlib.crc32(json.dumps(content).encode()), **content})


def test_the_checksum_is_crc_32_of_the_rest():
    text = damaged(lambda c: c["entries"][0].update(steps=9))
    assert PrivacyLedger.from_json(text).num_steps == 9


@pytest.mark.parametrize("position", range(0, 400, 7))
def test_a_changed_character_anywhere_is_refused(position):
    text = PrivacyLedger([LedgerEntry(POISSON, 1.0, 10)]).to_json()
    position %= len(text)
    changed = chr(ord(text[position]) ^ 1)
    with pytest.raises(ValueError, match="privacy ledger"):
        PrivacyLedger.from_json(text[:position] + changed + text[position + 1 :])


def test_a_ledger_without_its_checksum_is_refused():
    content = json.loads(PrivacyLedger().to_json())
    del content["crc32"]
    with pytest.raises(ValueError, match="checksum"):
        PrivacyLedger.from_json(json.dumps(content))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        None,
        damaged(lambda c: c.pop("format")),
        damaged(lambda c: c.pop("entries")),
        damaged(lambda c: c.pop("prior_spend_unknown")),
        damaged(lambda c: c.update(version=2)),
        damaged(lambda c: c.update(entries=[3])),
        damaged(lambda c: c["entries"].append(c["entries"][0])),
        damaged(lambda c: c["entries"][0].pop("entry_id")),
        damaged(lambda c: c["entries"][0].update(steps=-1)),
        damaged(lambda c: c["entries"][0].update(steps=1.5)),
        damaged(lambda c: c["entries"][0].update(noise_multiplier="1")),
        damaged(lambda c: c["entries"][0].update(noise_multiplier=math.nan)),
        damaged(lambda c: c["entries"][0]["sampling"].update(kind="other")),
        damaged(lambda c: c["entries"][0]["sampling"].update(color="red")),
        damaged(lambda c: c["entries"][0].update(sampling=None)),
    ],
    ids=itertools.count(),
)
def test_corrupted_text_is_a_value_error(text):
    with pytest.raises(ValueError, match=r"Expected .* Received: .*\. (Restore|Upgrade)"):
        PrivacyLedger.from_json(text)


@pytest.mark.parametrize(
    "make",
    [
        lambda: LedgerEntry(None, 1.0),
        lambda: LedgerEntry(POISSON, -1.0),
        lambda: LedgerEntry(POISSON, math.nan),
        lambda: LedgerEntry(POISSON, math.inf),
        lambda: LedgerEntry(POISSON, True),
        lambda: LedgerEntry(POISSON, 1.0, 1.5),
        lambda: LedgerEntry(POISSON, 1.0, l2_norm_clip=0.0),
        lambda: LedgerEntry(POISSON, 1.0, l2_norm_clip=math.inf),
        lambda: LedgerEntry(POISSON, 1.0, mechanism=""),
        lambda: PrivacyLedger().epsilon(0.0),
        lambda: PrivacyLedger().epsilon(1.0),
        lambda: PrivacyLedger().epsilon(DELTA, accountant="moments"),
    ],
)
def test_errors_say_expected_received_and_the_remedy(make):
    with pytest.raises(ValueError, match=r"Expected .* Received: .*=.*\. \w+"):
        make()


def test_unknown_entry_is_a_key_error():
    with pytest.raises(KeyError, match="Call `append` first"):
        PrivacyLedger().update_steps("a", 1)

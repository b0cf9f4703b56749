"""Statements say which batches the library has drawn, and of which it has somebody's word alone."""

import json
import zlib

import dp_accounting
import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_lowrank_dp as tfdp
from tf_lowrank_dp.accounting import (
    LedgerEntry,
    PrivacyLedger,
    Sampling,
    dp_sgd_statement,
    report_of,
    statement,
)

DELTA = 1e-3
NOTE = "Note: batches of 4 steps were drawn outside of the library."
PASSES = "each example is in a pass at most once"
DRAWS = "batches are independent Poisson draws"


def words(text):
    return " ".join(text.split())


def said(model):
    return words(tfdp.privacy_statement(model))


class Batches(keras.utils.PyDataset):
    def __init__(self, x, y):
        super().__init__()
        self.x, self.y = x, y

    def __len__(self):
        return len(self.x) // 6

    def __getitem__(self, index):
        rows = slice(6 * index, 6 * index + 6)
        return self.x[rows], self.y[rows]


OURS = {
    "arrays": lambda x, y: {"x": x, "y": y, "batch_size": 6},
    "records": lambda x, y: {"x": tfdp.Records((x, y), map=lambda x, y: (x, y)), "batch_size": 6},
    "a sampler": lambda x, y: {"x": tfdp.PoissonSampler(x, y, batch_size=6, steps=4)},
    "users": lambda x, y: {
        "x": x, "y": y, "batch_size": 3, "unit_ids": np.arange(24) // 2, "rows_per_unit": 2,
    },
}  # fmt: skip
OTHERS = {
    "tf.data": lambda x, y: tf.data.Dataset.from_tensor_slices((x, y)).batch(6),
    "a generator": lambda x, y: ((x[i : i + 6], y[i : i + 6]) for i in range(0, 24, 6)),
    "PyDataset": Batches,
    "draws of a generator": lambda x, y: (
        (x[drawn], y[drawn]) for drawn in np.random.default_rng(0).random((4, 24)) < 0.25
    ),
}


@pytest.mark.parametrize("name", OURS)
def test_of_what_the_library_draws_no_word_is_needed(name, small_model, data, private):
    model = private(small_model(), noise_multiplier=2.0, delta=DELTA)
    model.fit(**OURS[name](*data()), verbose=0)
    assert {entry.sampling.drawn_by for entry in model.optimizer.ledger.entries} == {"library"}
    assert "drawn outside" not in said(model)


@pytest.mark.parametrize("name", OTHERS)
def test_batches_that_others_drew_are_named_in_the_statement_and_the_file(
    name, small_model, data, private, tmp_path
):
    model = private(small_model(), noise_multiplier=2.0, delta=DELTA)
    drawn = "poisson" if "draws" in name else "shuffle"
    stated = {"batch_size": 6, "steps_per_epoch": 4, "sampling": drawn}
    if drawn == "poisson":
        stated["num_examples"] = 24
    model.fit(OTHERS[name](*data()), verbose=0, **stated)
    assert NOTE in said(model) and (PASSES if drawn == "shuffle" else DRAWS) in said(model)
    model.save(tmp_path / "model.keras")
    assert NOTE in said(keras.models.load_model(tmp_path / "model.keras"))
    report = tfdp.privacy_report(model)
    assert any(NOTE in warning for warning in report.warnings)


@pytest.mark.parametrize("ours", [True, False])
def test_a_trainer_that_is_told_a_sampling_alone_has_a_word(ours, small_model, data, private):
    model = private(small_model(), noise_multiplier=2.0, delta=DELTA)
    sampler = tfdp.PoissonSampler(*data(), batch_size=6, steps=4)
    trainer = tfdp.PrivateTrainer(model, sampler if ours else sampler.sampling)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=None)

    def forward(batch):
        return loss(batch["y"], model(batch["x"], training=True)), ()

    for batch in sampler:
        trainer.apply(trainer.gradients(forward, batch))
    assert (NOTE in said(model)) != ours


def test_steps_are_counted_by_kind_and_a_history_names_all_kinds():
    poisson, passes = Sampling.poisson(24, 6), Sampling.shuffle(6, 4)
    ledger = PrivacyLedger(
        [LedgerEntry(poisson, 2.0, 3), LedgerEntry(passes, 2.0, 8), LedgerEntry(poisson, 2.0, 4)]
    )
    text = words(statement(ledger, DELTA))
    assert "batches of 7 steps" in text and "batches of 8 steps" in text
    assert DRAWS in text and PASSES in text
    assert sum("outside" in warning for warning in report_of(ledger, DELTA).warnings) == 2
    unused = PrivacyLedger([LedgerEntry(poisson, 2.0, 0)])
    assert "outside" not in words(statement(unused, DELTA, planned=LedgerEntry(passes, 2.0, 8)))


def test_a_plan_is_that_of_arrays_unless_a_sampling_is_stated():
    arguments = {"batch_size": 6, "num_examples": 24, "steps": 4}
    assert "outside" not in dp_sgd_statement(2.0, DELTA, **arguments)
    stated = dp_sgd_statement(2.0, DELTA, **arguments, sampling=Sampling.poisson(24, 6))
    assert NOTE in words(stated)


@pytest.mark.parametrize("drawn_by", ["library", "user"])
def test_a_release_of_somebodys_steps_says_whose_draws_they_were(drawn_by, small_model):
    sampled = dp_accounting.PoissonSampledDpEvent(0.25, dp_accounting.GaussianDpEvent(2.0))
    with pytest.warns(UserWarning, match="in no file"):
        tfdp.record_release(model := small_model(), sampled, "a teacher", drawn_by=drawn_by)
    text = words(tfdp.privacy_statement(model, DELTA))
    assert ("batches of 'a teacher' were drawn outside" in text) == (drawn_by == "user")


def test_of_a_file_that_does_not_say_who_drew_nothing_is_assumed():
    sampling = Sampling("poisson", 24, 6, drawn_by="library")
    content = json.loads(PrivacyLedger([LedgerEntry(sampling, 2.0, 4)]).to_json())
    assert content["entries"][0]["sampling"].pop("drawn_by") == "library"
    content.pop("crc32")
    content["crc32"] = zlib.crc32(json.dumps(content).encode())
    assert NOTE in words(statement(PrivacyLedger.from_json(json.dumps(content)), DELTA))


def test_who_drew_is_one_of_two():
    with pytest.raises(ValueError, match="drawn_by"):
        Sampling("poisson", 24, 6, drawn_by="me")

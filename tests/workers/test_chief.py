"""One worker adds the noise, chooses and counts; all compare what they are about to do."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.workers import cases
from tf_lowrank_dp.accounting import LedgerEntry, PrivacyLedger, Sampling
from tf_lowrank_dp.mechanism.gaussian import GaussianMechanism
from tf_lowrank_dp.mechanism.noise import NoiseGenerator
from tf_lowrank_dp.training.start_run import start_run
from tf_lowrank_dp.workers import join
from tf_lowrank_dp.workers.alone import Workers
from tf_lowrank_dp.workers.connected import ConnectedWorkers


class Told(Exception):
    """Holds what a worker told the others."""


class Second(Workers):
    """Worker 1 of two; `answers` are the chief's, None where it says what this one says."""

    count, index = 2, 1

    def __init__(self, *answers):
        self.answers = list(answers)
        self.sources = []

    def added(self, sums, sources, needed=None):
        self.sources.append(sources)
        return sums

    def gather(self, text):
        if not self.answers:
            raise Told(text)
        return [self.answers.pop(0) or text, text]

    def gather_numbers(self, *numbers):
        return [numbers, numbers]

    def of_chief(self, structure, purpose="subspace"):
        return tf.nest.map_structure(tf.zeros_like, structure)


class SameChief(Second):
    index = 0


def joined(monkeypatch, workers):
    monkeypatch.setattr(join, "_joined", [workers])
    return workers


@pytest.mark.parametrize("kind, sources, deviation", [(SameChief, 1, 2.0), (Second, 0, 0.0)])
def test_the_chief_alone_adds_noise_and_says_so(kind, sources, deviation):
    workers = kind()
    zeros = [[tf.zeros(10_000)]]
    [[released]] = GaussianMechanism(2.0, 1.0).release(zeros, NoiseGenerator(), workers)
    assert workers.sources == [sources]
    assert np.std(released) == pytest.approx(deviation, rel=0.05)


class Echo(ConnectedWorkers):
    """The chief of two, whose other sends what is given."""

    def __init__(self, other_sources, present=1.0):
        super().__init__(None, 2, 0)
        self.other = tf.constant([5.0, other_sources, present])

    def _reduced(self, flat, key):
        return flat + self.other


@pytest.mark.parametrize(
    "mine, others, present", [(0, 0, 1), (1, 1, 1), (1, 0, 0), (1, 0, 2), (2, -1, 0)]
)
def test_sums_with_other_than_one_source_of_noise_are_not_used(mine, others, present):
    with pytest.raises(tf.errors.InvalidArgumentError, match="Expected one source of noise"):
        Echo(others, present).added([[tf.ones(1)]], mine)


@pytest.mark.parametrize("mine, others", [(1, 0), (0, 1)])
def test_sums_with_one_source_of_noise_are_used(mine, others):
    assert Echo(others).added([[tf.ones(1)]], mine)[0][0].numpy().tolist() == [6.0]


def facts(monkeypatch, workers=Second, rows=cases.rows, seed=0):
    """What a worker tells before its first step."""
    keras.backend.clear_session()  # names of variables begin anew, as in another process
    model = cases.compiled(joined(monkeypatch, workers()), cases.OPTIMIZERS["dpsgd"](), seed=seed)
    monkeypatch.setattr("secrets.randbits", lambda bits: 7)  # the chief's, of one run
    with pytest.raises(Told) as told:
        model.fit(*rows(), batch_size=12, verbose=0)
    return json.loads(str(told.value))[0]


def swapped():
    x, y = cases.rows()
    order = np.arange(len(x))
    order[[4, 50]] = order[[50, 4]]
    return x[order], y[order]


def test_equal_workers_tell_the_same_whatever_their_weights(monkeypatch):
    assert facts(monkeypatch) == facts(monkeypatch, workers=SameChief, seed=1)


def test_rows_in_another_order_are_told(monkeypatch):
    name = "rows, in their order"
    assert facts(monkeypatch)[name] != facts(monkeypatch, rows=swapped)[name]


def test_noise_and_entry_of_a_run_are_the_chiefs(monkeypatch):
    choice = {"noise_multiplier": 3.5, "entry_id": "the chief's", "public_seed": 7}
    workers = joined(monkeypatch, Second(None, json.dumps(choice), None))
    model = cases.compiled(workers, cases.OPTIMIZERS["dpsgd"]())
    run = start_run(model, Sampling.poisson(96, 12), 1)
    assert run.entry.entry_id == "the chief's"
    assert run.engine.mechanism.noise_multiplier == run.entry.noise_multiplier == 3.5
    assert all(np.all(v.numpy() == 0.0) for v in model.weights)  # as the chief's


def test_what_was_spent_by_others_counts(monkeypatch):
    choice = {"noise_multiplier": 3.5, "entry_id": "now", "public_seed": 7}
    spent = PrivacyLedger([LedgerEntry(Sampling.poisson(96, 12), 1.0, steps=11)])
    told = Second(json.dumps([{}, spent.to_json(), None]), json.dumps(choice), None)
    workers = joined(monkeypatch, told)
    monkeypatch.setattr("tf_lowrank_dp.training.agreement.refuse_differences", lambda facts: None)
    model = cases.compiled(workers, cases.OPTIMIZERS["dpsgd"]())
    start_run(model, Sampling.poisson(96, 12), 1)
    assert model.optimizer.ledger.num_steps == 11

"""Parts of the rows: together they are one draw, and all workers must have the same rows."""

import math

import numpy as np
import pytest

from tf_lowrank_dp.accounting import LedgerEntry, PrivacyLedger, Sampling
from tf_lowrank_dp.accounting.statement import statement
from tf_lowrank_dp.sampling import PoissonSampler, Records
from tf_lowrank_dp.sampling.padding import part_rows
from tf_lowrank_dp.sampling.parts import part, shard

ROWS, BATCH = 30, 6
X = np.arange(ROWS, dtype="float32")[:, None]


def drawn(sampler):
    """A row of counts for each step."""
    return np.array([np.bincount(rows, minlength=ROWS) for rows in sampler._draws()])


@pytest.mark.parametrize("count", [2, 7, 40])
def test_each_row_is_in_exactly_one_part_and_drawn_at_the_global_rate(count):
    steps, rate = 2_000, BATCH / ROWS
    sampler = PoissonSampler(X, batch_size=BATCH, steps=steps)
    counts = [drawn(part(sampler, index, count)) for index in range(count)]
    for index, of_part in enumerate(counts):
        assert np.flatnonzero(of_part.sum(axis=0)).tolist() == list(range(index, ROWS, count))
    together = sum(counts)
    assert together.max() == 1
    deviation = math.sqrt(steps * rate * (1 - rate))
    assert np.all(np.abs(together.sum(axis=0) - steps * rate) < 5 * deviation)
    sizes = together.sum(axis=1)  # binomial; the variance of the sample variance is 2 s^4 / n
    assert sizes.var() == pytest.approx(ROWS * rate * (1 - rate), rel=5 * math.sqrt(2 / steps))


def test_rows_of_shards_are_drawn_at_the_rate_of_all_rows_and_accounted_as_one_draw():
    sizes, steps = [20, 7, 3], 2_000
    own = [PoissonSampler(np.zeros((size, 1)), batch_size=1, steps=steps) for size in sizes]
    shards = [shard(sampler, index, sizes, batch_size=12) for index, sampler in enumerate(own)]
    assert {s.sampling for s in shards} == {
        Sampling("poisson", 30, 12, shards=3, drawn_by="library")
    }
    deviation = math.sqrt(steps * 0.4 * 0.6)
    for size, sampler in zip(sizes, shards, strict=True):
        counts = drawn(sampler)
        assert counts.max() == 1 and not counts[:, size:].any()
        assert np.all(np.abs(counts[:, :size].sum(axis=0) - steps * 0.4) < 5 * deviation)


def test_shards_of_a_seed_draw_independently():
    sizes = [15, 15]
    own = [PoissonSampler(np.zeros((15, 1)), batch_size=1, steps=200, seed=3) for _ in sizes]
    first, second = (drawn(shard(s, i, sizes, batch_size=15)) for i, s in enumerate(own))
    agreement = np.mean(first[:, :15] == second[:, :15])
    assert abs(agreement - 0.5) < 5 * 0.5 / math.sqrt(200 * 15)


def test_the_statement_says_that_shards_are_the_users_word():
    ledger = PrivacyLedger([LedgerEntry(Sampling.poisson(30, 12, shards=3), 1.0, steps=5)])
    assert "no example has rows on two, as was stated" in " ".join(statement(ledger, 1e-3).split())
    alone = PrivacyLedger([LedgerEntry(Sampling.poisson(30, 12), 1.0, steps=5)])
    assert ledger.epsilon(1e-3) == alone.epsilon(1e-3)
    assert PrivacyLedger.from_json(ledger.to_json()) == ledger


def test_parts_are_accounted_as_the_whole():
    sampler = PoissonSampler(X, batch_size=BATCH)
    assert part(sampler, 1, 3).sampling == sampler.sampling


def test_parts_of_a_seed_are_independent_and_reproducible():
    sampler = PoissonSampler(X, batch_size=ROWS // 2, steps=200, seed=3)
    first, again, second = (drawn(part(sampler, i, 2)) for i in (0, 0, 1))
    assert np.array_equal(first, again)
    agreement = np.mean(first[:, 0::2] == second[:, 1::2])
    assert abs(agreement - 0.5) < 5 * 0.5 / math.sqrt(200 * ROWS / 2)


def test_a_compiled_part_has_the_size_of_a_share():
    sampling = PoissonSampler(np.zeros((6_000, 1)), batch_size=600).sampling
    fewer = PoissonSampler(np.zeros((6_000, 1)), batch_size=150).sampling
    assert part_rows(sampling, None, workers=4) == part_rows(fewer)


SOURCES = {
    "numbers": lambda order: PoissonSampler(X[order], np.arange(ROWS)[order], batch_size=2),
    "strings": lambda order: PoissonSampler([f"text {i}" for i in order], batch_size=2),
    "structure": lambda order: PoissonSampler({"a": X, "b": X[order]}, batch_size=2),
    "arrays of records": lambda order: PoissonSampler(Records((X[order],)), batch_size=2),
    "read records": lambda order: PoissonSampler(Records(Reader(order)), batch_size=2),
}


class Reader:
    def __init__(self, order):
        self.order = order

    def __len__(self):
        return ROWS

    def __getitem__(self, index):
        return X[self.order[index]]


@pytest.mark.parametrize("name", SOURCES)
def test_a_digest_tells_the_order_of_rows(name):
    ordered, swapped = np.arange(ROWS), np.arange(ROWS)
    swapped[[3, 20]] = swapped[[20, 3]]
    digests = [SOURCES[name](order).rows_digest(b"key") for order in (ordered, ordered, swapped)]
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.parametrize("name", ["numbers", "strings", "arrays of records"])
def test_rows_of_any_order_have_one_digest_and_others_another(name):
    orders = np.arange(ROWS), np.roll(np.arange(ROWS), 5)
    first, second = (SOURCES[name](order).rows_digest(b"key", ordered=False) for order in orders)
    assert first == second
    other = np.where(orders[0] == 3, 4, orders[0])
    assert SOURCES[name](other).rows_digest(b"key", ordered=False) != first


def test_a_digest_tells_nothing_without_its_key():
    """Whoever knew all rows but one could try which one it is."""
    sampler = PoissonSampler(X, batch_size=2)
    for ordered in (True, False):
        keys = (b"one", b"another", b"")
        assert len({sampler.rows_digest(key, ordered=ordered) for key in keys}) == len(keys)


def test_texts_that_join_to_the_same_are_told_apart():
    first, second = (PoissonSampler(x, batch_size=1) for x in (["ab", "c"], ["a", "bc"]))
    assert first.rows_digest(b"key") != second.rows_digest(b"key")


def test_weights_and_targets_are_rows_as_well():
    base = {"batch_size": 2}
    samplers = [
        PoissonSampler(X, np.zeros(ROWS), **base),
        PoissonSampler(X, np.ones(ROWS), **base),
        PoissonSampler(X, np.zeros(ROWS), sample_weight=np.ones(ROWS), **base),
    ]
    assert len({sampler.rows_digest(b"key") for sampler in samplers}) == 3

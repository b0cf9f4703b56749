"""Parts of the rows: together they are one draw, and all workers must have the same rows."""

import math

import numpy as np
import pytest

from tf_lowrank_dp.sampling import PoissonSampler, Records
from tf_lowrank_dp.sampling.padding import part_rows

ROWS, BATCH = 30, 6
X = np.arange(ROWS, dtype="float32")[:, None]


def drawn(sampler):
    """A row of counts for each step."""
    return np.array([np.bincount(rows, minlength=ROWS) for rows in sampler._draws()])


@pytest.mark.parametrize("count", [2, 7, 40])
def test_each_row_is_in_exactly_one_part_and_drawn_at_the_global_rate(count):
    steps, rate = 2_000, BATCH / ROWS
    sampler = PoissonSampler(X, batch_size=BATCH, steps=steps)
    counts = [drawn(sampler.part(index, count)) for index in range(count)]
    for index, of_part in enumerate(counts):
        assert np.flatnonzero(of_part.sum(axis=0)).tolist() == list(range(index, ROWS, count))
    together = sum(counts)
    assert together.max() == 1
    deviation = math.sqrt(steps * rate * (1 - rate))
    assert np.all(np.abs(together.sum(axis=0) - steps * rate) < 5 * deviation)
    sizes = together.sum(axis=1)  # binomial; the variance of the sample variance is 2 s^4 / n
    assert sizes.var() == pytest.approx(ROWS * rate * (1 - rate), rel=5 * math.sqrt(2 / steps))


def test_parts_are_accounted_as_the_whole():
    sampler = PoissonSampler(X, batch_size=BATCH)
    assert sampler.part(1, 3).sampling == sampler.sampling


def test_parts_of_a_seed_are_independent_and_reproducible():
    sampler = PoissonSampler(X, batch_size=ROWS // 2, steps=200, seed=3)
    first, again, second = (drawn(sampler.part(i, 2)) for i in (0, 0, 1))
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
    digests = [SOURCES[name](order).rows_digest(9) for order in (ordered, ordered, swapped)]
    assert digests[0] == digests[1] != digests[2]


def test_texts_that_join_to_the_same_are_told_apart():
    first, second = (PoissonSampler(x, batch_size=1) for x in (["ab", "c"], ["a", "bc"]))
    assert first.rows_digest(0) != second.rows_digest(0)


def test_weights_and_targets_are_rows_as_well():
    base = {"batch_size": 2}
    samplers = [
        PoissonSampler(X, np.zeros(ROWS), **base),
        PoissonSampler(X, np.ones(ROWS), **base),
        PoissonSampler(X, np.zeros(ROWS), sample_weight=np.ones(ROWS), **base),
    ]
    assert len({sampler.rows_digest(0) for sampler in samplers}) == 3

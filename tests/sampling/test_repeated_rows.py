"""What is accepted as one pass has no row twice, whatever it is made of."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from tf_lowrank_dp.sampling.repeated_rows import repetition

ROWS = 12


def some_stage(dataset, rng, batched):
    """One more stage, and whether elements are batches behind it."""
    n = int(rng.integers(0, 9))
    stages = [
        lambda: dataset.take(n),
        lambda: dataset.skip(n),
        lambda: dataset.shard(2, n % 2),
        lambda: dataset.shard(3, n % 3),
        lambda: dataset.shuffle(ROWS),
        lambda: dataset.map(lambda row: row),
        lambda: dataset.repeat(1),
        lambda: dataset.unbatch() if batched else dataset.batch(1 + n % 3),
    ]
    chosen = int(rng.integers(len(stages)))
    return stages[chosen](), batched != (chosen == len(stages) - 1)


def some_rows(source, rng):
    dataset, batched = source, False
    for _ in range(int(rng.integers(0, 4))):
        dataset, batched = some_stage(dataset, rng, batched)
    return dataset.unbatch() if batched else dataset


def some_pipeline(rng):
    source = tf.data.Dataset.range(ROWS)
    parts = [some_rows(source, rng) for _ in range(3)]
    first = [parts[0].concatenate(parts[1]), tf.data.Dataset.zip(parts[0], parts[1])]
    if rng.random() < 0.5:
        return first[0].concatenate(parts[2])
    if rng.random() < 0.5:
        return tf.data.Dataset.zip(first[int(rng.integers(2))], parts[2])
    joined = first[0]
    return some_rows(joined, rng).concatenate(some_rows(joined, rng))


def most_often(dataset):
    """In how many elements of a pass the row is that is in most."""
    rows = [set(np.ravel(tf.nest.flatten(element)).tolist()) for element in dataset]
    found = list(itertools.chain.from_iterable(rows))
    return max(map(found.count, found), default=0)


@pytest.mark.parametrize("seed", range(150))
def test_what_is_accepted_has_each_row_once(seed):
    """Parts with a wrong border moved 4 clips for 2."""
    dataset = some_pipeline(np.random.default_rng(seed))
    if not repetition(dataset):
        assert max(most_often(dataset) for _ in range(2)) <= 1


R = tf.data.Dataset.range(ROWS)
ACCEPTED = {
    "three parts": R.take(4).concatenate(R.skip(4).take(4)).concatenate(R.skip(8)),
    "shares of shares": R.shard(2, 0)
    .shard(2, 0)
    .concatenate(R.shard(2, 1).concatenate(R.shard(4, 2))),
    "pairs of halves": tf.data.Dataset.zip(R.take(6), R.skip(6)),
    "halves in batches": R.batch(2).take(3).concatenate(R.skip(6).batch(2)),
    "nested pairs": tf.data.Dataset.zip(tf.data.Dataset.zip(R, R.map(abs)), R),
    "pairs of batches": tf.data.Dataset.zip(R.batch(4), R.map(abs).batch(4)),
    "empty": R.concatenate(R.take(0)),
}
REFUSED = {
    "a wrong border": R.take(4).concatenate(R.skip(4).take(4)).concatenate(R.skip(6)),
    "shares of other numbers": R.shard(2, 0).concatenate(R.shard(3, 0)),
    "batches and back": R.batch(3).unbatch().concatenate(R),
    "a share twice": R.shard(2, 0).concatenate(R.shard(2, 0)),
    "shares of what is shuffled": R.shuffle(9).shard(2, 0).concatenate(R.shuffle(9).shard(2, 1)),
    "pairs with a share": tf.data.Dataset.zip(R, R.shard(2, 1)),
    "pairs with what is moved on": tf.data.Dataset.zip(R, R.skip(1).concatenate(R.take(1))),
    "pairs of batches of other sizes": tf.data.Dataset.zip(R.batch(2), R.batch(3)),
    "pairs within pairs": tf.data.Dataset.zip(tf.data.Dataset.zip(R, R.skip(1)), R),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_parts_without_common_rows_are_one_pass(name):
    assert most_often(ACCEPTED[name]) == 1
    assert not repetition(ACCEPTED[name])


@pytest.mark.parametrize("name", REFUSED)
def test_parts_with_common_rows_are_not(name):
    assert repetition(REFUSED[name])

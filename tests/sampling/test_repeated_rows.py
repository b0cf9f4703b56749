"""What is accepted as one pass has no row twice, whatever it is made of."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from tf_lowrank_dp.sampling.repeated_rows import repetition

ROWS = 12


def some_stage(dataset, rng, depth):
    """One more stage, and how often rows are batched behind it."""
    n = int(rng.integers(0, 9))
    stages = [
        lambda: dataset.take(n),
        lambda: dataset.skip(n),
        lambda: dataset.shard(2, n % 2),
        lambda: dataset.shard(3, n % 3),
        lambda: dataset.shuffle(ROWS),
        lambda: dataset.map(lambda row: row),
        lambda: dataset.repeat(1),
        lambda: dataset.rebatch(1 + n % 4) if depth else dataset.scan(0, lambda s, x: (s, x)),
        lambda: dataset.unbatch() if depth else dataset.batch(1 + n % 3),
        lambda: dataset.batch(1 + n % 3),
    ]
    chosen = int(rng.integers(len(stages)))
    batched = chosen == 9 or (chosen == 8 and not depth)
    return stages[chosen](), depth + batched - (chosen == 8 and depth > 0)


def some_rows(source, rng):
    dataset, depth = source, 0
    for _ in range(int(rng.integers(0, 5))):
        dataset, depth = some_stage(dataset, rng, depth)
    for _ in range(depth):
        dataset = dataset.unbatch()
    return dataset


def some_pipeline(rng):
    source = tf.data.Dataset.range(ROWS)
    thirds = [source.take(4), source.skip(4).take(4), source.skip(8)]
    sources = [[source] * 3, thirds, [source.shard(3, i) for i in range(3)]]
    parts = [some_rows(each, rng) for each in sources[int(rng.integers(3))]]
    first = [parts[0].concatenate(parts[1]), tf.data.Dataset.zip(parts[0], parts[1])]
    if rng.random() < 0.5:
        return first[0].concatenate(parts[2])
    if rng.random() < 0.5:
        return tf.data.Dataset.zip(first[int(rng.integers(2))], parts[2])
    joined = first[0]
    return some_rows(joined, rng).concatenate(some_rows(joined, rng))


def most_often(dataset):
    """In how many elements of a pass the row is that is in most."""
    rows = [
        set(itertools.chain(*(np.ravel(leaf).tolist() for leaf in tf.nest.flatten(element))))
        for element in dataset
    ]
    found = list(itertools.chain.from_iterable(rows))
    return max(map(found.count, found), default=0)


def runs(dataset):
    """Not where batches of several sizes are batched again."""
    try:
        return most_often(dataset) >= 0
    except tf.errors.InvalidArgumentError:
        return False


@pytest.mark.parametrize("seed", range(150))
def test_what_is_accepted_has_each_row_once(seed):
    """Parts with a wrong border moved 4 clips for 2."""
    rng = np.random.default_rng(seed)
    dataset = next(filter(runs, (some_pipeline(rng) for _ in range(50))))
    if not repetition(dataset):
        assert max(most_often(dataset) for _ in range(2)) <= 1


R = tf.data.Dataset.range(ROWS)
PAIRS = tf.data.Dataset.from_tensor_slices(np.arange(ROWS).reshape(-1, 2))
WINDOWS = R.window(4, shift=2, drop_remainder=True)
SLICES = tf.data.Dataset.from_tensor_slices(np.arange(ROWS))
TWICE = R.repeat(2)
REORDERED = R.shuffle(9)
ONCE_SHUFFLED = R.apply(tf.data.experimental.shuffle_and_repeat(9, 1))
SHUFFLED_FILES = R.batch(6).flat_map(
    lambda rows: tf.data.Dataset.from_tensor_slices(rows).shuffle(6)
)
SHUFFLED_BATCHES = R.batch(ROWS).map(tf.random.shuffle).unbatch()


def neighbours(rows):
    return tf.data.Dataset.zip(rows, rows.skip(1)).map(lambda x, y: tf.stack([x, y]))


KEPT = R.shuffle(9).concatenate(R.take(0))
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
    "batches of batches": R.batch(2).batch(2).unbatch().take(3).unbatch().concatenate(R.skip(6)),
    "halves of what rows hold": PAIRS.unbatch().take(4).concatenate(PAIRS.unbatch().skip(4)),
    "halves of rows that hold several": PAIRS.take(2)
    .unbatch()
    .concatenate(PAIRS.skip(2).unbatch()),
    "halves of others' batches": R.batch(3).rebatch(2).take(2).concatenate(R.skip(4).batch(2)),
    "a share of the first rows": R.take(7).shard(2, 1).concatenate(R.skip(6)),
    "shares side by side": tf.data.Dataset.range(2).interleave(lambda index: R.shard(2, index)),
    "all of one": tf.data.Dataset.range(1).flat_map(lambda _: R),
    "without a header": R.flat_map(
        lambda x: tf.data.Dataset.from_tensor_slices([x, x]).skip(1).repeat(1)
    ),
    "shares in any order": tf.data.Dataset.range(2)
    .shuffle(2)
    .interleave(lambda index: SLICES.shard(2, index).shuffle(9)),
    "of a generator for each": SLICES.batch(6).interleave(
        lambda rows: tf.data.Dataset.from_generator(
            iter, output_signature=tf.TensorSpec([], tf.int64), args=(rows,)
        )
    ),
    "numbered": R.enumerate().map(lambda n, x: x),
    "numbered in a function": R.flat_map(
        lambda x: tf.data.Dataset.from_tensors(x).enumerate().map(lambda n, x: x)
    ),
    "labelled in a function": R.flat_map(
        lambda x: tf.data.Dataset.zip(
            tf.data.Dataset.from_tensors(x), tf.data.Dataset.from_tensors(-1).repeat()
        ).map(lambda x, label: x)
    ),
    "paired with one element again": tf.data.Dataset.zip(
        R, tf.data.Dataset.from_tensors(-1).repeat()
    ).map(lambda x, label: x),
    "whole windows in a function": tf.data.Dataset.range(1).flat_map(
        lambda x: tf.data.Dataset.range(x, x + 6).window(3, 3).flat_map(lambda w: w.batch(3))
    ),
    "scanned halves": R.take(6).scan(0, lambda s, x: (s, x)).concatenate(R.skip(6)),
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
    "batches of batches": R.batch(4).batch(2).unbatch().take(2).unbatch().concatenate(R.skip(4)),
    "rows that hold several": PAIRS.take(2).unbatch().concatenate(PAIRS.unbatch().skip(2)),
    "others' batches": PAIRS.take(2).rebatch(1).unbatch().concatenate(PAIRS.rebatch(1).skip(2)),
    "what is scanned": R.scan(0, lambda s, x: (s, x)).concatenate(R),
    "ragged batches": R.ragged_batch(4).map(lambda x: x).unbatch().concatenate(R),
    "halves of what is joined and shuffled": KEPT.take(6).concatenate(KEPT.skip(6)),
    "windows in two stages": WINDOWS.flat_map(lambda w: w.batch(4)).unbatch(),
    "windows in parts": WINDOWS.flat_map(lambda w: w.batch(2)).unbatch(),
    "windows side by side": WINDOWS.interleave(lambda w: w, cycle_length=2),
    "repeated in a function": R.flat_map(lambda x: tf.data.Dataset.from_tensors(x).repeat(2)),
    "one for each of two": tf.data.Dataset.range(2).flat_map(lambda _: R),
    "one side by side": tf.data.Dataset.range(2).interleave(lambda _: R.map(lambda x: x)),
    "some of one for each of two": tf.data.Dataset.range(2).flat_map(
        lambda _: R.shuffle(9).take(9)
    ),
    "a share of one for each of two": tf.data.Dataset.range(2).interleave(lambda _: R.shard(2, 0)),
    "one for each within one": tf.data.Dataset.from_tensors(0).flat_map(
        lambda _: tf.data.Dataset.range(2).flat_map(lambda _: R)
    ),
    "one behind itself in a function": tf.data.Dataset.range(1).flat_map(
        lambda _: R.concatenate(R)
    ),
    "epochs of arrays": tf.data.Dataset.range(2).flat_map(
        lambda _: tf.data.Dataset.from_tensor_slices(np.arange(10)).shuffle(9)
    ),
    "behind itself by apply": R.apply(lambda d: d.concatenate(d.map(abs))),
    "repeated and numbered": R.repeat(2).enumerate().map(lambda n, x: x),
    "repeated beside a number": tf.data.Dataset.zip(
        R.repeat(2), tf.data.Dataset.range(2 * ROWS)
    ).map(lambda x, n: x),
    "a side repeated": tf.data.Dataset.zip(R, SLICES.take(5).repeat()).map(lambda x, again: x),
    "shares of what is repeated": tf.data.Dataset.range(2).interleave(
        lambda index: TWICE.shard(2, index)
    ),
    "shares of what is in another order": tf.data.Dataset.range(2).interleave(
        lambda index: REORDERED.shard(2, index)
    ),
    "in another order, then shares": tf.data.Dataset.range(2).interleave(
        lambda index: R.shuffle(9).shard(2, index)
    ),
    "shares, and all of it again": tf.data.Dataset.range(2)
    .interleave(lambda index: R.shard(2, index))
    .concatenate(R.map(abs)),
    "shares of one twice": tf.data.Dataset.range(2)
    .interleave(lambda index: R.shard(2, index))
    .concatenate(tf.data.Dataset.range(2).interleave(lambda index: R.shard(2, index))),
    "itself first, by apply": R.apply(lambda d: R.map(abs).concatenate(d)),
    "shuffled and repeated once": ONCE_SHUFFLED.take(6).concatenate(ONCE_SHUFFLED.skip(6)),
    "windows, numbered": WINDOWS.enumerate().flat_map(lambda n, w: w),
    "windows in parts, joined": WINDOWS.take(2).concatenate(WINDOWS.skip(2)).flat_map(lambda w: w),
    "shares of windows": tf.data.Dataset.range(2)
    .interleave(lambda index: WINDOWS.shard(2, index))
    .flat_map(lambda w: w),
    "shares again": tf.data.Dataset.range(4).interleave(lambda index: R.shard(2, index % 2)),
    "shares, for each of what is repeated": tf.data.Dataset.range(2)
    .repeat(2)
    .interleave(lambda index: R.shard(2, index)),
    "a share and all": tf.data.Dataset.range(2).flat_map(
        lambda index: R.shard(2, index).concatenate(R)
    ),
    "in another order for each": tf.data.Dataset.range(2).flat_map(
        lambda seed: tf.data.Dataset.from_tensor_slices(np.arange(ROWS)).shuffle(ROWS, seed=seed)
    ),
    "counted in another order for each": tf.data.Dataset.range(2).flat_map(
        lambda seed: tf.data.Dataset.range(ROWS).shuffle(ROWS, seed=seed)
    ),
    "given to each, then taken": tf.data.Dataset.range(2).map(lambda _: R).flat_map(lambda d: d),
    "all in a map": tf.data.Dataset.range(2)
    .map(lambda _: R.batch(ROWS).get_single_element())
    .unbatch(),
    "neighbours in a function": tf.data.Dataset.range(1).flat_map(
        lambda x: neighbours(tf.data.Dataset.range(x, x + 6))
    ),
    "rows of windows in a function": tf.data.Dataset.range(1).flat_map(
        lambda x: tf.data.Dataset.range(x, x + 6).window(3, 1).flat_map(lambda w: w)
    ),
    "rows of windows, otherwise": WINDOWS.flat_map(
        lambda w: tf.data.Dataset.zip(w, w.map(abs)).map(lambda x, y: tf.stack([x]))
    ),
    "windows of windows": WINDOWS.flat_map(lambda w: w.window(2, 2)).flat_map(lambda w: w),
    "halves of files in another order": SHUFFLED_FILES.take(6).concatenate(SHUFFLED_FILES.skip(6)),
    "halves of batches in another order": SHUFFLED_BATCHES.take(6).concatenate(
        SHUFFLED_BATCHES.skip(6)
    ),
    "pairs within pairs": tf.data.Dataset.zip(tf.data.Dataset.zip(R, R.skip(1)), R),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_parts_without_common_rows_are_one_pass(name):
    assert most_often(ACCEPTED[name]) == 1
    assert not repetition(ACCEPTED[name])


@pytest.mark.parametrize("name", REFUSED)
def test_parts_with_common_rows_are_not(name):
    assert repetition(REFUSED[name])

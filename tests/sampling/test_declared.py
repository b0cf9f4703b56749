"""Tests of datasets whose sampling the user declares."""

import itertools
import time

import keras
import numpy as np
import pytest
import tensorflow as tf

from tf_lowrank_dp.sampling import PoissonSampler, declared_dataset


def dataset(num_examples=10, batch_size=4, drop_remainder=False):
    x = np.arange(2.0 * num_examples, dtype=np.float32).reshape(num_examples, 2)
    examples = tf.data.Dataset.from_tensor_slices((x, np.arange(num_examples)))
    return examples.batch(batch_size, drop_remainder=drop_remainder)


def labels(batches):
    return [batch["y"].numpy().tolist() for batch in batches]


class Lists(keras.utils.PyDataset):
    """Batches that are lists, which Keras takes for tuples."""

    def __len__(self):
        return 3

    def __getitem__(self, index):
        return [np.zeros((2, 3)), np.full(2, index)]


class Sequence(keras.utils.PyDataset):
    """Batches of two examples, which counts the passes over it."""

    def __init__(self, count=3):
        super().__init__()
        self.count = count
        self.events = []

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return np.zeros((2, 3)), np.full(2, index)

    def on_epoch_begin(self):
        self.events.append("begin")

    def on_epoch_end(self):
        self.events.append("end")


PASS = [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_not_stating_the_sampling_is_an_error_that_explains_the_choice():
    with pytest.raises(ValueError) as error:
        declared_dataset(dataset(), sampling=None)
    text = str(error.value)
    for phrase in ('"poisson"', '"shuffle"', "promise", "sampling_rate", "pass the arrays"):
        assert phrase in text


def test_other_statements_are_refused():
    with pytest.raises(ValueError, match="Received: sampling='uniform'"):
        declared_dataset(dataset(), sampling="uniform")


def test_shuffle_counts_passes_of_the_datasets_length():
    batches, sampling = declared_dataset(dataset(), sampling="shuffle", batch_size=4)
    assert sampling.steps_per_pass == 3
    assert labels(batches) == PASS
    assert labels(batches) == PASS
    assert int(batches.cardinality()) == 3


def test_every_row_of_the_users_batches_is_present():
    x, y, sample_weight = np.zeros((5, 2)), np.zeros(5), np.zeros(5)
    given = tf.data.Dataset.from_tensor_slices((x, y, sample_weight)).batch(2)
    batches, _ = declared_dataset(given, sampling="shuffle", batch_size=2)
    for batch in batches:
        assert set(batch) == {"x", "y", "sample_weight", "presence"}
        assert batch["presence"].dtype == tf.float32
        assert batch["presence"].numpy().tolist() == [1.0] * batch["x"].shape[0]


def test_the_static_batch_dimension_is_the_expected_size():
    batches, sampling = declared_dataset(dataset(drop_remainder=True), sampling="shuffle")
    assert sampling.batch_size == 4
    assert batches.element_spec["presence"].shape.as_list() == [4]


def test_an_expected_batch_size_that_is_not_public_is_refused():
    with pytest.raises(ValueError, match="public constant"):
        declared_dataset(dataset(), sampling="shuffle")


def test_an_infinite_dataset_is_refused_with_shuffle():
    with pytest.raises(ValueError, match="two passes"):
        declared_dataset(dataset().repeat(), sampling="shuffle", batch_size=4, steps_per_epoch=3)


def test_an_unknown_length_needs_steps_per_epoch_with_shuffle():
    unknown = dataset().flat_map(lambda *batch: tf.data.Dataset.from_tensors(batch))
    with pytest.raises(ValueError, match="steps_per_epoch"):
        declared_dataset(unknown, sampling="shuffle", batch_size=4)
    batches, sampling = declared_dataset(
        unknown, sampling="shuffle", batch_size=4, steps_per_epoch=2
    )
    assert sampling.steps_per_pass == 2
    assert labels(batches) == PASS[:2]


def test_steps_per_epoch_that_contradicts_the_length_is_refused():
    with pytest.raises(ValueError, match="number of batches in a pass over the data, 3"):
        declared_dataset(dataset(), sampling="shuffle", batch_size=4, steps_per_epoch=2)


def test_a_pass_with_more_batches_than_the_examples_fill_is_refused():
    twice = dataset(8, 4, drop_remainder=True).repeat(2)
    with pytest.raises(ValueError, match="at most 2 batches of 4"):
        declared_dataset(twice, sampling="shuffle", num_examples=8)


def test_shuffle_takes_no_rate():
    with pytest.raises(ValueError, match="no `sampling_rate`"):
        declared_dataset(dataset(), sampling="shuffle", batch_size=4, sampling_rate=0.1)


def test_an_empty_dataset_is_refused():
    with pytest.raises(ValueError, match="at least one batch"):
        declared_dataset(dataset().take(0), sampling="shuffle", batch_size=4)
    with pytest.raises(ValueError, match="at least one batch"):
        declared_dataset(iter([]), sampling="shuffle", batch_size=4, steps_per_epoch=1)


@pytest.mark.parametrize(
    ("statement", "batch_size", "rate"),
    [
        ({"num_examples": 1000, "batch_size": 10}, 10, 0.01),
        ({"num_examples": 1000, "sampling_rate": 0.0123}, 12, 0.0123),
        ({"num_examples": 1000, "sampling_rate": 1e-5}, 1, 1e-5),
        ({"num_examples": 1000, "batch_size": 10, "sampling_rate": 0.01}, 10, 0.01),
        ({"batch_size": 10, "sampling_rate": 0.3}, 10, 0.3),
    ],
)
def test_poisson_accounts_the_stated_rate(statement, batch_size, rate):
    all_rows = dataset(batch_size=2000).repeat().map(lambda *b: b)  # which may thin them out
    batches, sampling = declared_dataset(all_rows, sampling="poisson", **statement)
    assert sampling.kind == "poisson"
    assert sampling.batch_size == batch_size
    assert sampling.sampling_rate == rate
    assert sampling.num_examples == statement.get("num_examples")
    assert int(batches.cardinality()) == tf.data.INFINITE_CARDINALITY


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ({}, "sampling rate"),
        ({"batch_size": 4}, "sampling rate"),
        ({"num_examples": 10}, "sampling rate"),
        ({"sampling_rate": 0.1}, "public constant"),
        ({"sampling_rate": 0.0, "batch_size": 4}, "at most 1"),
        ({"sampling_rate": 1.5, "batch_size": 4}, "at most 1"),
        ({"sampling_rate": float("nan"), "batch_size": 4}, "at most 1"),
        ({"sampling_rate": 0.5, "batch_size": 4, "num_examples": 100}, "Leave out one"),
        ({"batch_size": 11, "num_examples": 10}, "at most `num_examples`"),
        ({"batch_size": 2.5, "num_examples": 10}, "integer"),
        ({"batch_size": 4, "num_examples": 10, "steps_per_epoch": 0}, "integer"),
    ],
)
def test_incomplete_or_impossible_statements_are_refused(statement, message):
    with pytest.raises(ValueError, match=message):
        declared_dataset(dataset(), sampling="poisson", **statement)


def test_batches_of_one_size_are_no_poisson_draws():
    with pytest.raises(ValueError, match="no Poisson draws"):
        declared_dataset(
            dataset(drop_remainder=True), sampling="poisson", batch_size=4, num_examples=10
        )


def test_a_generator_continues_where_the_last_pass_stopped():
    """Reading ahead for the shapes loses and repeats nothing."""
    source = ((np.full((2 + i % 2, 3), i), np.full(2 + i % 2, i)) for i in range(6))
    batches, _ = declared_dataset(source, sampling="shuffle", batch_size=2, steps_per_epoch=3)
    assert batches.element_spec["x"].shape.as_list() == [None, 3]
    assert labels(batches) == [[0, 0], [1, 1, 1], [2, 2]]
    assert labels(batches) == [[3, 3, 3], [4, 4], [5, 5, 5]]


def test_a_call_that_fails_takes_nothing_from_a_generator():
    source = ((np.zeros((2, 3)), np.full(2, i)) for i in range(3))
    with pytest.raises(ValueError, match="steps_per_epoch"):
        declared_dataset(source, sampling="shuffle", batch_size=2)
    batches, _ = declared_dataset(source, sampling="shuffle", batch_size=2, steps_per_epoch=3)
    assert labels(batches) == [[0, 0], [1, 1], [2, 2]]


def test_a_generator_function_starts_anew_with_each_pass():
    def source():
        for i in range(3):
            yield {"a": np.zeros((i + 1, 2)), "b": ["text"] * (i + 1)}, None, np.full(i + 1, 1.0)

    batches, _ = declared_dataset(source, sampling="shuffle", batch_size=2, steps_per_epoch=3)
    for _ in range(2):
        elements = list(batches)
        assert [int(batch["presence"].shape[0]) for batch in elements] == [1, 2, 3]
        assert set(elements[0]) == {"x", "sample_weight", "presence"}
        assert elements[2]["x"]["b"].numpy().tolist() == [b"text"] * 3
        assert elements[0]["sample_weight"].dtype == tf.float32


def test_a_pass_over_a_generator_ends_after_steps_per_epoch():
    def endless():
        while True:
            yield np.zeros((2, 1)), np.zeros(2)

    batches, sampling = declared_dataset(
        endless, sampling="shuffle", batch_size=2, steps_per_epoch=5
    )
    assert len(list(batches)) == sampling.steps_per_pass == 5


def test_a_pass_that_ends_early_is_an_error():
    """Else the data would be read more often than the passes that are accounted."""
    unknown = dataset().flat_map(lambda *batch: tf.data.Dataset.from_tensors(batch))
    batches, _ = declared_dataset(unknown, sampling="shuffle", batch_size=4, steps_per_epoch=30)
    with pytest.raises(tf.errors.FailedPreconditionError, match="expected to contain 30"):
        list(batches)


def test_generators_need_a_stated_length_and_size():
    with pytest.raises(ValueError, match="steps_per_epoch"):
        declared_dataset(iter([np.zeros((2, 1))]), sampling="shuffle", batch_size=2)
    with pytest.raises(ValueError, match="public constant"):
        declared_dataset(iter([np.zeros((2, 1))]), sampling="shuffle", steps_per_epoch=1)


def test_a_py_dataset_knows_its_length_and_is_told_about_passes():
    source = Sequence()
    batches, sampling = declared_dataset(source, sampling="shuffle", batch_size=2)
    assert sampling.steps_per_pass == 3
    for _ in range(2):
        assert labels(batches) == [[0, 0], [1, 1], [2, 2]]
    assert source.events == ["begin", "end", "begin"]


def test_logical_batches_of_a_sampler_are_not_wrapped_again():
    sampler = PoissonSampler(np.zeros((9, 2)), batch_size=3)
    with pytest.raises(ValueError, match="Pass the `PoissonSampler` itself"):
        declared_dataset(sampler.as_dataset(), sampling="shuffle", batch_size=3)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (tf.data.Dataset.from_tensor_slices((np.zeros((3, 2)), np.zeros(3))), "batch"),
        (tf.data.Dataset.from_tensors((np.zeros((3, 2)), np.zeros(2))), "same number of rows"),
        (tf.data.Dataset.from_tensors(tuple(np.zeros((4, 2)))), "4 entries"),
        (np.zeros((3, 2)), "PoissonSampler"),
        (iter([(np.zeros(2),) * 4]), "4 entries"),
    ],
)
def test_sources_that_hold_no_batches_are_refused(source, message):
    with pytest.raises(ValueError, match=message):
        declared_dataset(source, sampling="shuffle", batch_size=2, steps_per_epoch=1)


def test_a_batch_whose_leaves_disagree_is_refused_when_it_is_read():
    source = iter([(np.zeros((2, 1)), np.zeros(2)), (np.zeros((2, 1)), np.zeros(3))])
    with pytest.raises(ValueError, match="x: 2, y: 3"):
        declared_dataset(source, sampling="shuffle", batch_size=2, steps_per_epoch=2)


def test_batches_of_changing_dtype_are_refused():
    source = iter([np.zeros((2, 1)), np.zeros((2, 1), "int32")])
    with pytest.raises(ValueError, match="same structure and dtypes"):
        declared_dataset(source, sampling="shuffle", batch_size=2, steps_per_epoch=2)


@pytest.mark.parametrize("kind", ["generator", "function", "PyDataset"])
def test_a_later_batch_of_another_dtype_ends_the_pass_instead_of_being_converted(kind):
    """A table read in chunks, one of which has a missing entry, moved 8.7 clips."""
    batches = [np.full((2, 1), 2**24 + 1), np.zeros((2, 1), "int64"), np.zeros((2, 1))]

    class Source(keras.utils.PyDataset):
        num_batches = 3

        def __getitem__(self, index):
            return batches[index]

    sources = {"generator": iter(batches), "function": lambda: iter(batches), "PyDataset": Source()}
    dataset, _ = declared_dataset(
        sources[kind], sampling="shuffle", batch_size=2, steps_per_epoch=3
    )
    with pytest.raises(tf.errors.InvalidArgumentError, match="(?s)dtypes.*int64.*float32"):
        list(dataset)


def thinned(x, y):
    kept = tf.random.uniform(tf.shape(y)) < 0.4
    return tf.boolean_mask(x, kept), tf.boolean_mask(y, kept)


ROWS = tf.data.Dataset.from_tensor_slices((np.zeros((10, 2), "float32"), np.arange(10)))
NO_DRAWS = {
    "shuffled": ROWS.shuffle(10).batch(4),
    "in order": ROWS.batch(4).prefetch(2),
    "batches cut anew": ROWS.batch(7).rebatch(4),
    "larger than stated": ROWS.shuffle(10).batch(8),
    "repeated": ROWS.shuffle(10).repeat().batch(4).take(5),
    "augmented": ROWS.shuffle(10).batch(4, num_parallel_calls=2).map(lambda x, y: (x + 1.0, y)),
    "padded": ROWS.padded_batch(4),
    "paired": tf.data.Dataset.zip(
        ROWS.map(lambda x, y: x).batch(4), ROWS.map(lambda x, y: y).batch(4)
    ),
    "a share": ROWS.batch(4).shard(2, 0).skip(1),
    "more behind": ROWS.batch(4).concatenate(ROWS.batch(4)),
    "kept": tf.data.Dataset.from_generator(
        lambda: iter([(np.zeros((3, 2)), np.zeros(3))]),
        output_signature=(tf.TensorSpec([None, 2]), tf.TensorSpec([None])),
    ).cache(),
}
DRAWS = {
    "coins": ROWS.batch(10).repeat().map(thinned),
    "coins for what is kept": ROWS.cache().batch(10).cache().repeat().map(thinned),
    "of a generator": tf.data.Dataset.from_generator(
        lambda: iter([(np.zeros((3, 2)), np.zeros(3))]),
        output_signature=(tf.TensorSpec([None, 2]), tf.TensorSpec([None])),
    ).prefetch(1),
}


@pytest.mark.parametrize("data", NO_DRAWS)
def test_batches_that_are_no_draws_are_refused_as_poisson_where_the_pipeline_tells(data):
    with pytest.raises(ValueError, match="no Poisson draws|come again|at most once in a draw"):
        declared_dataset(NO_DRAWS[data], sampling="poisson", num_examples=10, batch_size=4)


@pytest.mark.parametrize("data", DRAWS)
def test_batches_that_may_be_draws_are_taken_as_stated(data):
    _, sampling = declared_dataset(DRAWS[data], sampling="poisson", num_examples=10, batch_size=4)
    assert sampling.sampling_rate == 0.4


@pytest.mark.parametrize("stated", [{"batch_size": 4}, {"num_examples": 10}])
def test_batches_of_some_rows_are_no_draws_at_the_rate_1(stated):
    """A record that comes or goes moves others to other batches: more than one contribution."""
    with pytest.raises(ValueError, match="no Poisson draws"):
        declared_dataset(ROWS.batch(4), sampling="poisson", sampling_rate=1.0, **stated)


def test_the_batch_of_all_rows_is_a_draw_at_the_rate_1():
    _, sampling = declared_dataset(
        ROWS.batch(10), sampling="poisson", num_examples=10, batch_size=10
    )
    assert sampling.sampling_rate == 1.0


LABELS = tf.data.Dataset.from_tensor_slices(np.arange(10))
TWICE = {
    "paired and repeated": tf.data.Dataset.zip(
        ROWS.map(lambda x, y: x).repeat(2), ROWS.map(lambda x, y: y).repeat(2)
    ).batch(2),
    "repeated": ROWS.shuffle(10).repeat(5).batch(2),
    "batches repeated": ROWS.batch(2).repeat(5),
    "repeated and cut": ROWS.repeat().batch(2).take(25),
    "one behind the other": ROWS.concatenate(ROWS).batch(2),
    "and some again": ROWS.concatenate(ROWS.take(10)).batch(2),
    "and augmented": ROWS.concatenate(ROWS.map(lambda x, y: (x + 1.0, y)).shuffle(10)).batch(2),
    "and some that were there": ROWS.take(6).concatenate(ROWS.skip(4)).batch(2),
    "parts of another order": ROWS.shuffle(10).take(5).concatenate(ROWS.skip(5)).batch(2),
    "parts of batches": ROWS.batch(2).take(4).concatenate(ROWS.skip(4).batch(2)),
    "mixed with itself": tf.data.Dataset.zip(ROWS.shuffle(10).batch(2), ROWS.shuffle(10).batch(2)),
    "paired after shuffling": tf.data.Dataset.zip(
        ROWS.shuffle(10).map(lambda x, y: x), ROWS.map(lambda x, y: y)
    ).batch(2),
    "windows": ROWS.window(2, 1)
    .flat_map(lambda x, y: tf.data.Dataset.zip(x, y))
    .apply(tf.data.experimental.assert_cardinality(19))
    .batch(2),
    "files whose names come again": tf.data.TextLineDataset(
        tf.data.Dataset.from_tensor_slices(["a", "b"]).repeat(2)
    ).batch(2),
    "overlapping windows as batches": LABELS.window(2, 1, drop_remainder=True).flat_map(
        lambda window: window.batch(2)
    ),
    "pairs of neighbours": tf.data.Dataset.zip(ROWS, ROWS.skip(1)).batch(2),
    "interleaved": tf.data.Dataset.choose_from_datasets(
        [ROWS, ROWS], tf.data.Dataset.range(2).repeat(10)
    )
    .apply(tf.data.experimental.assert_cardinality(20))
    .batch(2),
}
ONCE = {
    "in shares": ROWS.shard(2, 0).concatenate(ROWS.shard(2, 1)).batch(2),
    "in parts": ROWS.take(4).concatenate(ROWS.skip(4)).batch(2),
    "interleaved": tf.data.Dataset.choose_from_datasets(
        [ROWS.take(5), ROWS.skip(5)], tf.data.Dataset.range(2).repeat(5)
    )
    .apply(tf.data.experimental.assert_cardinality(10))
    .batch(2),
    "repeated once": ROWS.repeat(1).cache().shuffle(10).batch(2),
    "windows of a series": keras.utils.timeseries_dataset_from_array(
        np.zeros((19, 2)), np.zeros(10), sequence_length=10, batch_size=2
    ),
    "windows of readings": LABELS.window(5, 1, drop_remainder=True)
    .flat_map(lambda window: window.batch(5))
    .map(lambda window: (window[:-1], window[-1]))
    .apply(tf.data.experimental.assert_cardinality(10))
    .batch(2),
    "paired": tf.data.Dataset.zip(ROWS.map(lambda x, y: x), ROWS.map(lambda x, y: y)).batch(2),
    "paired shares": tf.data.Dataset.zip(ROWS.shard(2, 0), ROWS.shard(2, 1)).batch(1),
    "paired with others": tf.data.Dataset.zip(ROWS, LABELS.shuffle(10)).batch(2),
    "counted": tf.data.Dataset.zip(ROWS, tf.data.Dataset.counter()).batch(2),
    "shuffled after pairing": tf.data.Dataset.zip(ROWS.map(lambda x, y: x), LABELS)
    .shuffle(10)
    .batch(2),
    "parts, shuffled": ROWS.skip(4).shuffle(3).concatenate(ROWS.take(4).shuffle(3)).batch(2),
}


@pytest.mark.parametrize("data", TWICE)
def test_rows_that_come_again_within_a_pass_are_refused_where_the_pipeline_tells(data):
    steps = None if TWICE[data].cardinality() >= 0 else 5
    with pytest.raises(ValueError, match="at most once in a pass"):
        declared_dataset(TWICE[data], sampling="shuffle", batch_size=2, steps_per_epoch=steps)


@pytest.mark.parametrize("data", ONCE)
def test_rows_that_come_once_are_one_pass(data):
    _, sampling = declared_dataset(ONCE[data], sampling="shuffle", batch_size=2)
    assert sampling.steps_per_pass == 5


LENGTHS = ROWS.map(lambda x, y: (tf.range(y + 1), y))
FILTERED = ROWS.filter(lambda x, y: y < 9)
BY_VALUE = {
    "filter": ROWS.filter(lambda x, y: y < 9).shuffle(10).batch(4),
    "filter of batches": ROWS.batch(4).filter(lambda x, y: tf.reduce_sum(y) < 9).prefetch(1),
    "take while": ROWS.take_while(lambda x, y: y < 9).batch(4),
    "damaged": ROWS.map(lambda x, y: (x, tf.debugging.check_numerics(tf.cast(y, "float32"), "")))
    .ignore_errors()
    .batch(4),
    "buckets": LENGTHS.bucket_by_sequence_length(
        lambda x, y: tf.size(x), [4], [4, 4], padded_shapes=([10], [])
    ),
    "running sum": ROWS.scan(tf.zeros(2), lambda s, row: (s + row[0], row)).batch(4),
    "filter of each file": tf.data.Dataset.range(2)
    .flat_map(lambda file: ROWS.filter(lambda x, y: y < 9))
    .batch(4),
    "oversampled": ROWS.flat_map(
        lambda x, y: tf.data.Dataset.from_tensors((x, y)).repeat(
            tf.where(y < 9, np.int64(1), np.int64(4))
        )
    ).batch(4),
    "left out": ROWS.interleave(
        lambda x, y: tf.data.Dataset.from_tensors((x, y)).take(tf.cast(y < 9, tf.int64)),
        num_parallel_calls=2,
    ).batch(4),
    "filter of what each function reads": tf.data.Dataset.range(2)
    .interleave(lambda index: FILTERED.shard(2, index))
    .batch(4),
    "filter behind apply": ROWS.take(4)
    .apply(lambda d: d.concatenate(ROWS.skip(4).filter(lambda x, y: y < 9)))
    .batch(4),
    "running sum of each file": ROWS.batch(5)
    .flat_map(
        lambda x, y: tf.data.Dataset.from_tensor_slices((x, y)).scan(
            tf.zeros(2), lambda s, row: (s + row[0], row)
        )
    )
    .batch(4),
    "filter of the first version": tf.compat.v1.data.Dataset.from_tensor_slices(np.arange(10))
    .filter(lambda y: y < 9)
    .batch(4),
    "zipped": tf.data.Dataset.zip(
        ROWS.map(lambda x, y: x).batch(4), ROWS.map(lambda x, y: y).filter(lambda y: y < 9).batch(4)
    ),
}


@pytest.mark.parametrize("sampling", ["poisson", "shuffle"])
@pytest.mark.parametrize("data", BY_VALUE)
def test_batches_that_an_example_chooses_for_others_are_refused(data, sampling):
    """One record replaced moved 5 to 21 clips in a pass: all later batches are others."""
    stated = {"num_examples": 10} if sampling == "poisson" else {"steps_per_epoch": 2}
    with pytest.raises(ValueError, match="no example chooses for others"):
        declared_dataset(BY_VALUE[data], sampling=sampling, batch_size=4, **stated)


@tf.function
def repeated_by_a_graph():
    return ROWS.repeat(4)


HIDDEN = {
    "of a function's graph": lambda: repeated_by_a_graph().batch(2),
    "an element of another": lambda: next(iter(tf.data.Dataset.from_tensors(ROWS))).batch(2),
    "a fold": lambda: tf.data.Dataset.zip(next(iter(ROWS.repeat(4).window(20)))).batch(2),
    "behind others": lambda: ROWS.concatenate(repeated_by_a_graph()).batch(2),
    "read by functions": lambda: (
        lambda hidden: tf.data.Dataset.range(2).interleave(lambda index: hidden.shard(2, index))
    )(repeated_by_a_graph()).batch(2),
}


@pytest.mark.parametrize("sampling", ["poisson", "shuffle"])
@pytest.mark.parametrize("name", HIDDEN)
def test_data_sets_that_come_without_their_stages_are_refused(name, sampling):
    """Rows that came four times, or for each worker, moved 8 clips for 2."""
    stated = {"num_examples": 10} if sampling == "poisson" else {"steps_per_epoch": 2}
    with pytest.raises(ValueError, match="whose stages are seen.*take folds with"):
        declared_dataset(HIDDEN[name](), sampling=sampling, batch_size=2, **stated)


def test_rows_of_a_file_are_chosen_by_its_instruction():
    """As TFDS reads a part of a split."""
    instructions = tf.data.Dataset.from_tensor_slices((["a", "b"], [0, 3], [3, 2]))
    rows = instructions.interleave(
        lambda name, skip, take: (
            tf.data.TFRecordDataset(name)
            .skip(tf.cast(skip, tf.int64))
            .take(tf.cast(take, tf.int64))
        )
    )
    declared_dataset(
        rows.map(lambda _: np.zeros(2, "float32")).batch(2),
        sampling="shuffle",
        batch_size=2,
        steps_per_epoch=2,
    )


def test_numbers_beside_rows_and_what_chooses_the_next_are_not_hidden(tmp_path):
    chosen = tf.data.Dataset.choose_from_datasets(
        [ROWS.take(5), ROWS.skip(5)], tf.data.Dataset.range(2).repeat(5)
    )
    numbered = ROWS.enumerate().map(lambda n, row: row)
    for rows in (chosen, numbered, ROWS.snapshot(str(tmp_path))):
        declared_dataset(rows.batch(2), sampling="shuffle", batch_size=2, steps_per_epoch=5)


def test_what_is_filtered_beforehand_is_sampled_as_the_remedy_says():
    x, y = (np.stack(part) for part in zip(*ROWS.filter(lambda x, y: y < 9), strict=True))
    sampler = PoissonSampler(x, y, batch_size=4)
    assert sampler.sampling.kind == "poisson" and sampler.num_examples == 9


def unequal(lengths):
    return tf.data.Dataset.from_generator(
        lambda: iter([np.zeros((2, n), "float32") for n in lengths]),
        output_signature=tf.TensorSpec([None, None]),
    )


def examples(lengths):
    features = [
        {"x": tf.train.Feature(float_list=tf.train.FloatList(value=[1.0] * n))} for n in lengths
    ]
    return tf.data.Dataset.from_tensor_slices(
        [
            tf.train.Example(features=tf.train.Features(feature=each)).SerializeToString()
            for each in features
        ]
    )


EXAMPLES = examples(range(1, 9))
VARYING = {"x": tf.io.VarLenFeature("float32")}
PARSED = examples([1, 8, 2, 8]).batch(2).map(lambda x: tf.io.parse_example(x, VARYING)["x"])


def with_mean(batches):
    """Words of different numbers, padded within a map, of batches that anything has made."""
    words = keras.layers.TextVectorization(vocabulary=["w"])
    return batches.map(
        lambda x: tf.reduce_mean(tf.cast(words(tf.strings.join([x, " w"])), "float32"), 1)[:, None]
    )


def texts():
    yield ["w", "w w"]
    yield ["w w w", "w"]


MEANS = LENGTHS.padded_batch(4).map(
    lambda x, y: (tf.reduce_mean(tf.cast(x, "float32"), 1, keepdims=True), y)
)
PADDED = {
    "in shares": tf.data.Dataset.range(2).interleave(lambda index: MEANS.shard(2, index)),
    "padded": LENGTHS.padded_batch(4),
    "ragged": LENGTHS.ragged_batch(4).map(lambda x, y: (x.to_tensor(), y)),
    "words": ROWS.map(lambda x, y: tf.strings.reduce_join(tf.repeat("w ", y)))
    .batch(4)
    .map(keras.layers.TextVectorization(vocabulary=["w"])),
    "of a generator": unequal([3, 4]),
    "padded, then a mean": LENGTHS.padded_batch(4).map(
        lambda x, y: (tf.reduce_mean(tf.cast(x, "float32"), 1), y)
    ),
    "dense in another map": PARSED.map(
        lambda x: tf.reduce_mean(tf.sparse.to_dense(x), 1, keepdims=True)
    ),
    "parsed one by one, dense in batches": EXAMPLES.map(
        lambda x: tf.io.parse_single_example(x, VARYING)["x"]
    )
    .batch(4)
    .map(lambda x: tf.reduce_mean(tf.sparse.to_dense(x), 1, keepdims=True)),
    "made dense for the model": PARSED,
    "a stage that parses": EXAMPLES.batch(4)
    .apply(
        tf.data.experimental.parse_example_dataset(
            {"x": tf.io.FixedLenSequenceFeature([], "float32", allow_missing=True)}
        )
    )
    .map(lambda features: tf.reduce_mean(features["x"], 1, keepdims=True)),
    "batches of a generator": with_mean(
        tf.data.Dataset.from_generator(texts, output_signature=tf.TensorSpec([None], tf.string))
    ),
    "batches made in a function": with_mean(
        tf.data.Dataset.range(2).interleave(
            lambda _: tf.data.Dataset.from_tensor_slices([b"w", b"w w"]).batch(2)
        )
    ),
    "batches of windows": with_mean(
        tf.data.Dataset.from_tensor_slices([b"w", b"w w"] * 2)
        .window(2, 2)
        .flat_map(lambda window: window.batch(2))
    ),
    "all in one batch": with_mean(tf.data.Dataset.from_tensors([b"w", b"w w"])),
    "taken apart and batched again": with_mean(tf.data.Dataset.from_tensors([b"w", b"w w"]))
    .unbatch()
    .batch(2),
    "one batch alone": unequal([3]).apply(tf.data.experimental.assert_cardinality(1)),
    "ragged, then a mean": LENGTHS.ragged_batch(4).map(
        lambda x, y: (tf.reduce_mean(x.to_tensor(), 1), y)
    ),
    "ragged in a function, then a mean": LENGTHS.ragged_batch(4).map(
        tf.function(lambda x, y: (tf.reduce_mean(x.to_tensor(), 1), y))
    ),
    "ragged within each file, then a mean": tf.data.Dataset.range(2).flat_map(
        lambda file: LENGTHS.ragged_batch(4).map(lambda x, y: (tf.reduce_mean(x.to_tensor(), 1), y))
    ),
    "padded within each file": tf.data.Dataset.range(2).flat_map(
        lambda file: LENGTHS.padded_batch(4).map(
            lambda x, y: (tf.reduce_mean(tf.cast(x, "float32"), 1), y)
        )
    ),
    "parsed": EXAMPLES.batch(4).map(
        lambda x: tf.reduce_mean(
            tf.sparse.to_dense(tf.io.parse_example(x, {"x": tf.io.VarLenFeature("float32")})["x"]),
            1,
            keepdims=True,
        )
    ),
    "parsed sequences": EXAMPLES.batch(4).map(
        lambda x: tf.reduce_mean(
            tf.io.parse_example(
                x, {"x": tf.io.FixedLenSequenceFeature([], "float32", allow_missing=True)}
            )["x"],
            1,
            keepdims=True,
        )
    ),
    "sparse, then a mean": LENGTHS.ragged_batch(4).map(
        lambda x, y: (tf.reduce_mean(tf.sparse.to_dense(x.to_sparse()), 1), y)
    ),
    "crossed with as many as a row has": PARSED.map(
        lambda x: tf.sparse.to_dense(tf.sparse.cross_hashed([tf.cast(x, "int64")] * 2, 5))
    ).map(lambda x: tf.reduce_mean(tf.cast(x, "float32"), 1, keepdims=True)),
    "resized": LENGTHS.padded_batch(4).map(
        lambda x, y: (tf.image.resize(x[:, :, None, None], (2, 1)), y)
    ),
}


@pytest.mark.parametrize("data", PADDED)
def test_rows_padded_to_the_longest_of_their_batch_are_refused(data):
    """One long record moved the others of its batch: 6 clips for 2."""
    steps = 2 if PADDED[data].cardinality() < 0 else None
    with pytest.raises(ValueError, match="one public shape.*padded to the longest"):
        declared_dataset(PADDED[data], sampling="shuffle", batch_size=4, steps_per_epoch=steps)


@pytest.mark.parametrize(
    "data",
    [
        LENGTHS.padded_batch(4, padded_shapes=([10], [])),
        LENGTHS.ragged_batch(4).map(lambda x, y: (x.to_tensor(shape=(None, 10)), y)),
        LENGTHS.ragged_batch(4).map(lambda x, y: (x.to_tensor(shape=(tf.shape(y)[0], 10)), y)),
        LENGTHS.map(lambda x, y: (tf.RaggedTensor.from_row_lengths(x, [y + 1]).to_tensor(), y))
        .map(lambda x, y: (tf.reduce_sum(x[0])[None] * tf.ones(3, x.dtype), y))
        .batch(4),
        unequal([3, 3]),
        PARSED.map(lambda x: tf.RaggedTensor.from_sparse(x).to_tensor(shape=(None, 10))),
        ROWS.batch(4).map(
            lambda x, y: keras.layers.HashedCrossing(10, output_mode="one_hot")((y, y))
        ),
    ],
)
def test_rows_of_one_length_are_taken_and_their_shape_is_known(data):
    steps = None if data.cardinality() > 0 else 2
    batches, _ = declared_dataset(data, sampling="shuffle", batch_size=4, steps_per_epoch=steps)
    assert batches.element_spec["x"].shape[1] in (3, 10)
    assert len(list(batches.take(2))) == 2


def test_a_later_batch_of_another_shape_ends_the_pass_with_a_sentence():
    batches, _ = declared_dataset(
        unequal([3, 3, 4]), sampling="shuffle", batch_size=2, steps_per_epoch=3
    )
    with pytest.raises(tf.errors.InvalidArgumentError, match="one public shape"):
        list(batches)


@pytest.mark.parametrize("kind", ["generator", "function", "map", "list"])
def test_batches_of_a_sampler_without_presence_are_refused_from_python_too(kind):
    """Their padding was trained on, whose rows depend on how many are drawn: 5 clips for 1."""
    sampler = PoissonSampler(np.zeros((40, 2)), np.zeros(40), batch_size=8)
    function = lambda: ((1.0 + batch["x"], batch["y"]) for batch in sampler)  # noqa: E731
    sources = {
        "generator": function(),
        "function": function,
        "map": map(lambda batch: (1.0 + batch["x"], batch["y"]), sampler),
        "list": iter([(1.0 + batch["x"], batch["y"]) for batch in itertools.islice(sampler, 2)]),
    }
    with pytest.raises(ValueError, match="rows that fill a batch up"):
        declared_dataset(sources[kind], sampling="poisson", batch_size=8, num_examples=40)


def test_rows_that_were_taken_out_of_a_samplers_batches_are_draws():
    sampler = PoissonSampler(np.arange(40.0), batch_size=8, steps=4)
    source = (batch["x"][batch["presence"] > 0] for batch in sampler)
    batches, _ = declared_dataset(source, sampling="poisson", batch_size=8, num_examples=40)
    assert len(list(batches)) == 4


def test_a_generator_of_which_something_was_read_begins_no_pass():
    """A batch read to see its shape moved all passes by one: records came twice in one of them."""
    source = ((np.full((2, 1), i), np.full(2, i)) for i in range(8))
    next(source)
    with pytest.raises(ValueError, match="begun before fit"):
        declared_dataset(source, sampling="shuffle", batch_size=2, steps_per_epoch=2)


NUMBERS = tf.data.Dataset.range(8).batch(4)
UNEQUAL = {
    "views": NUMBERS.map(lambda x: (tf.repeat(x, 4, axis=0), x)),
    "views of one input": NUMBERS.map(lambda x: {"a": x, "b": tf.repeat(x, 4, axis=0)}),
    "moved on by one": NUMBERS.map(lambda x: {"a": x, "b": tf.concat([[-1], x], 0)}),
    "missing targets": NUMBERS.map(lambda x: (x, x[:2])),
    "missing weights": NUMBERS.map(lambda x: (x, x, tf.ones([2]))),
}


@pytest.mark.parametrize("data", UNEQUAL)
@pytest.mark.parametrize(
    "stated",
    [{"sampling": "shuffle"}, {"sampling": "poisson", "sampling_rate": 1.0, "num_examples": 4}],
    ids=["shuffle", "poisson"],
)
def test_arrays_of_a_batch_with_other_rows_than_each_other_end_the_pass(data, stated):
    """One input with twelve rows for each of the other took the places of all: 6.8 clips for 2."""
    source = UNEQUAL[data]
    if stated["sampling"] == "poisson":
        source = tf.data.Dataset.range(1).flat_map(lambda _: UNEQUAL[data])
    batches, _ = declared_dataset(source, batch_size=4, **stated)
    with pytest.raises(tf.errors.InvalidArgumentError, match="same number of rows.*other examples"):
        list(batches)


@pytest.mark.parametrize("kind", ["PyDataset", "generator", "function"])
def test_lists_of_a_source_are_inputs_and_targets_as_in_keras(kind):
    batches = [Lists()[index] for index in range(3)]
    source = {"PyDataset": Lists(), "generator": iter(batches), "function": lambda: iter(batches)}
    found, _ = declared_dataset(
        source[kind], sampling="shuffle", batch_size=2, num_examples=6, steps_per_epoch=3
    )
    assert labels(found) == [[0, 0], [1, 1], [2, 2]]
    assert found.element_spec["x"].shape == (None, 3)


def test_sparse_batches_become_dense_ones_and_ragged_ones_are_refused_with_the_remedy():
    dense = np.eye(4, dtype=np.float32)
    sparse = tf.data.Dataset.from_tensor_slices((tf.sparse.from_dense(dense), np.arange(4)))
    found, _ = declared_dataset(sparse.batch(2), sampling="shuffle", batch_size=2)
    np.testing.assert_array_equal(np.concatenate([batch["x"] for batch in found]), dense)
    rows = tf.ragged.constant([[1.0], [1.0, 2.0], [3.0], [4.0]])
    ragged = tf.data.Dataset.from_tensor_slices((rows, np.arange(4))).batch(2)
    with pytest.raises(ValueError, match="one public shape.*to_tensor"):
        declared_dataset(ragged, sampling="shuffle", batch_size=2)
    padded = ragged.map(lambda x, y: (x.to_tensor(shape=(None, 2)), y))
    found, _ = declared_dataset(padded, sampling="shuffle", batch_size=2)
    assert [batch["x"].shape for batch in found] == [(2, 2), (2, 2)]


def late(how, slow):
    """Batches of rows, of which `slow` takes longer than others together."""

    def read(row):
        time.sleep(0.3 if row == slow else 0.0)
        return row

    rows, told = tf.data.Dataset.range(8), {"num_parallel_calls": 4, "deterministic": False}

    def ready(row):
        return tf.ensure_shape(tf.numpy_function(read, [row], tf.int64), [])

    if how == "map":
        return rows.map(ready, **told).batch(2)
    if how == "each file":
        files = tf.data.Dataset.range(1)
        return files.flat_map(lambda file: rows.map(ready, **told)).batch(2)
    if how == "interleave":
        return rows.interleave(lambda row: tf.data.Dataset.from_tensors(ready(row)), **told).batch(
            2
        )
    options = tf.data.Options()
    options.deterministic = False
    return rows.map(ready, num_parallel_calls=4).with_options(options).batch(2)


@pytest.mark.parametrize("how", ["map", "interleave", "each file"])
@pytest.mark.parametrize("sampling", ["poisson", "shuffle"])
def test_stages_that_give_first_what_is_ready_first_are_refused(how, sampling):
    """One image that took long to decode moved 3 clips for 2, one of a slow disk 6."""
    stated = {"num_examples": 8} if sampling == "poisson" else {"steps_per_epoch": 4}
    with pytest.raises(ValueError, match="takes long to read.*Leave deterministic=False out"):
        declared_dataset(late(how, 0), sampling=sampling, batch_size=2, **stated)


def test_options_that_give_first_what_is_ready_first_are_set_back():
    batches, _ = declared_dataset(late("option", slow=0), sampling="shuffle", batch_size=2)
    found = [batch["x"].numpy().tolist() for batch in batches]
    assert found == [[0, 1], [2, 3], [4, 5], [6, 7]]


PASSES = ROWS.batch(10).repeat(5)
KEPT_DRAWS = {
    "cache": PASSES.map(thinned).cache(),
    "cache, repeated": PASSES.map(thinned).cache().repeat(2),
    "cache, then a map": PASSES.map(thinned).cache().map(lambda x, y: (2 * x, y)),
    "snapshot": PASSES.map(thinned).snapshot("somewhere"),
}


@pytest.mark.parametrize("data", KEPT_DRAWS)
def test_draws_that_are_kept_are_no_new_ones(data):
    """20 epochs of five kept draws were told as 10.6, and are 44.0."""
    with pytest.raises(ValueError, match="batches are kept"):
        declared_dataset(KEPT_DRAWS[data], sampling="poisson", num_examples=10, batch_size=4)


def test_rows_that_are_kept_and_drawn_from_anew_are_poisson_draws():
    kept = ROWS.batch(10).map(lambda x, y: (2 * x, y)).cache().repeat(5).map(thinned)
    _, sampling = declared_dataset(kept, sampling="poisson", num_examples=10, batch_size=4)
    assert sampling.sampling_rate == 0.4


TWICE_IN_A_DRAW = {
    "augmented": ROWS.concatenate(ROWS.map(lambda x, y: (2 * x, y))).batch(20),
    "repeated": ROWS.repeat(3).batch(30),
    "shuffled and repeated": ROWS.apply(tf.data.experimental.shuffle_and_repeat(10, 2)).batch(20),
}


@pytest.mark.parametrize("data", TWICE_IN_A_DRAW)
@pytest.mark.parametrize("rate", [0.5, 1.0])
def test_rows_that_come_twice_in_a_draw_are_refused(data, rate):
    """One record moved 4 and 6 clips for 2."""
    batches = TWICE_IN_A_DRAW[data]
    if rate < 1:
        batches = batches.map(thinned)
    with pytest.raises(ValueError, match="at most once in a draw"):
        declared_dataset(batches, sampling="poisson", num_examples=10, sampling_rate=rate)


def test_shuffled_and_repeated_rows_are_more_than_one_pass():
    rows = ROWS.apply(tf.data.experimental.shuffle_and_repeat(10, 2)).batch(5)
    with pytest.raises(ValueError, match="at most once in a pass"):
        declared_dataset(rows, sampling="shuffle", batch_size=5)


def running_mean(x, y):
    mean = tf.reduce_mean(tf.cast(x, "float32"))
    return x - KEPT_MEAN.assign(0.9 * KEPT_MEAN + 0.1 * mean), y


KEPT_MEAN = tf.Variable(0.0)


@pytest.mark.parametrize("sampling", ["poisson", "shuffle"])
@pytest.mark.parametrize(
    "function", [running_mean, tf.function(running_mean)], ids=["plain", "in a function"]
)
def test_maps_that_keep_something_of_an_example_for_others_are_refused(function, sampling):
    stated = {"num_examples": 10} if sampling == "poisson" else {}
    with pytest.raises(ValueError, match="treat each example by itself"):
        declared_dataset(ROWS.map(function).batch(4), sampling=sampling, batch_size=4, **stated)


def test_maps_that_draw_random_numbers_are_taken():
    layer, generator = keras.layers.GaussianNoise(1.0), tf.random.Generator.from_seed(1)
    rows = ROWS.map(lambda x, y: (layer(x, training=True) + generator.normal([2]), y))
    batches, _ = declared_dataset(rows.batch(5), sampling="shuffle", batch_size=5)
    assert all(tf.reduce_all(batch["x"] != 0) for batch in batches)

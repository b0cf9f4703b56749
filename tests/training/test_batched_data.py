"""Iterators that go on where they stopped, and data sets that are made of others'."""

import collections

import keras
import numpy as np
import pytest
import scipy
import tensorflow as tf

import tf_lowrank_dp as tfdp
from tf_lowrank_dp.sampling.batched_sources import to_dataset
from tf_lowrank_dp.sampling.upstream import handles_read

ROWS, STEPS = 6, 4


class Interrupt(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if batch == 1:
            raise KeyboardInterrupt


def passes(data, rows=ROWS):
    """Each row once in a pass of batches, for ever."""
    x, y = data()
    while True:
        for start in range(0, len(x), rows):
            yield x[start : start + rows], y[start : start + rows]


@pytest.fixture
def model(private, small_model):
    return private(small_model(), noise_multiplier=1.0)


@pytest.fixture
def shuffled():
    return {"sampling": "shuffle", "batch_size": ROWS, "steps_per_epoch": STEPS, "verbose": 0}


def test_an_iterator_that_was_left_within_a_pass_begins_no_other(model, data, shuffled):
    iterator = passes(data, rows=1)
    single = {**shuffled, "batch_size": 1, "steps_per_epoch": len(data()[0])}  # not read ahead all
    with pytest.raises(KeyboardInterrupt):
        model.fit(iterator, callbacks=[Interrupt()], **single)
    with pytest.raises(ValueError, match="beginning of a pass"):
        model.fit(iterator, **single)
    model.fit(passes(data), **shuffled)
    model.fit(lambda: passes(data), **shuffled)


def test_an_iterator_goes_on_after_whole_passes(model, data, shuffled):
    iterator = passes(data)
    model.fit(iterator, epochs=2, **shuffled)
    model.fit(iterator, **shuffled)
    assert model.optimizer.ledger.num_steps == 3 * STEPS


def test_batches_of_a_sampler_without_their_presence_are_refused(model, data):
    sampler = tfdp.PoissonSampler(*data(), batch_size=ROWS, steps=STEPS)
    pairs = sampler.as_dataset().map(lambda batch: (batch["x"], batch["y"])).prefetch(1)
    with pytest.raises(ValueError, match="rows that fill a batch up"):
        model.fit(pairs, sampling="poisson", batch_size=ROWS, num_examples=24, verbose=0)
    model.fit(sampler, verbose=0)


def changed(batch):
    return batch["x"] / 2.0, keras.utils.to_categorical(batch["y"], 4)


class OfSampler(keras.utils.PyDataset):
    def __init__(self, sampler):
        super().__init__()
        self.draws = list(sampler)
        self.sampler = sampler

    def __len__(self):
        return len(self.draws)

    def __getitem__(self, index):
        return changed(next(iter(self.sampler)))


@pytest.mark.parametrize(
    "made",
    [
        lambda sampler: (changed(batch) for batch in sampler),
        lambda sampler: lambda: map(changed, sampler),
        lambda sampler: ((batch["x"][:], batch["y"] + 0) for batch in sampler),
        OfSampler,
    ],
)
def test_batches_made_of_a_samplers_hold_none_of_its_padding(data, made):
    """Their padding was trained on: one record of 101 moved 9.8 clips for 1."""
    sampler = tfdp.PoissonSampler(*data(), batch_size=ROWS, steps=8, pad_to_multiple=50)
    with pytest.raises(ValueError, match="rows that fill a batch up"):
        to_dataset(made(sampler))


def test_rows_of_a_samplers_draws_alone_are_batches_of_ones_own(data):
    sampler = tfdp.PoissonSampler(*data(), batch_size=ROWS, steps=8)

    def drawn():
        for batch in sampler:
            there = batch["presence"] == 1
            yield batch["x"][there], batch["y"][there]

    assert len(list(to_dataset(drawn))) == 8


class Popping(keras.utils.PyDataset):
    """Gives what comes next, whatever is asked for."""

    def __init__(self):
        super().__init__()
        self.batches = (np.full((2, 1), i) for i in range(8))

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return (next(self.batches),)


def test_what_was_looked_at_of_a_py_dataset_is_the_beginning_of_its_first_pass():
    """A pass spanned two of its own: 4 clips for 2."""
    dataset = to_dataset(Popping())
    passes = [[int(x[0, 0]) for (x,) in dataset] for _ in range(2)]
    assert passes == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_a_function_of_an_iterator_that_was_left_within_a_pass_begins_no_other(
    model, data, shuffled
):
    """42 batches of 300 came twice in what was counted as one pass."""
    iterator = passes(data, rows=1)
    single = {**shuffled, "batch_size": 1, "steps_per_epoch": len(data()[0])}
    with pytest.raises(KeyboardInterrupt):
        model.fit(lambda: iterator, callbacks=[Interrupt()], **single)
    with pytest.raises(ValueError, match="beginning of a pass"):
        model.fit(lambda: iterator, **single)
    begun = passes(data)
    next(begun)
    with pytest.raises(ValueError, match="begun before fit"):
        model.fit(lambda: begun, **shuffled)


def test_batches_that_a_failed_fit_has_read_of_a_function_are_told(model, data, shuffled):
    def source():
        return passes(data)

    with pytest.raises(ValueError, match="steps_per_epoch"):
        model.fit(source, **{**shuffled, "steps_per_epoch": None})
    with pytest.warns(UserWarning, match="If data have changed, pass a new function"):
        model.fit(source, **shuffled)


def test_sparse_matrices_of_a_generator_are_dense_batches():
    rows = scipy.sparse.csr_array(np.eye(4))
    [(x,)] = to_dataset(iter([(rows,)]))
    np.testing.assert_array_equal(x, np.eye(4))


@pytest.mark.parametrize("made", [iter, tf.data.experimental.from_list])
def test_named_pairs_are_pairs_as_in_keras(made):
    pair = collections.namedtuple("Pair", "image label")(np.ones((2, 3)), np.arange(2))
    [(x, y)] = to_dataset(made([pair]))
    assert x.shape == (2, 3) and y.numpy().tolist() == [0, 1]


def test_the_variables_that_functions_of_a_data_set_read_are_known():
    layer = keras.layers.Dense(1)
    layer.build((None, 3))
    handles = {id(variable.value.handle) for variable in layer.variables}
    rows = tf.data.Dataset.from_tensor_slices(np.ones((4, 3), "float32")).batch(2)
    inside = tf.data.Dataset.zip((rows, rows.map(lambda x: (layer(x), x)))).prefetch(1)
    nested = rows.interleave(lambda x: tf.data.Dataset.from_tensors(layer(x)))
    for dataset in (inside, nested):
        assert {id(handle) for handle in handles_read(dataset)} == handles
    assert handles_read(rows) == handles_read(np.ones(3)) == ()


def test_a_model_that_learns_what_a_private_teacher_says_in_a_data_set_has_spent_what_that_has(
    model, data, private, small_model
):
    model.fit(*data(), batch_size=ROWS, verbose=0)
    batches = tf.data.Dataset.from_tensor_slices(data()).batch(ROWS)
    labelled = batches.map(lambda x, y: (x, tf.argmax(model(x), axis=-1)))
    student = private(small_model(), noise_multiplier=3.0)
    student.fit(labelled, sampling="shuffle", batch_size=ROWS, verbose=0)
    multipliers = [entry.noise_multiplier for entry in student.optimizer.ledger.entries]
    assert sorted(multipliers) == [1.0, 3.0]

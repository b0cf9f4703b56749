"""Tests of the Poisson sampler's batches: contents, padding, structures, arguments."""

import gc
import itertools
import weakref

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tf_lowrank_dp import accounting
from tf_lowrank_dp.sampling import PoissonSampler


def present(batch, key="x"):
    """Returns the rows of a batch that are examples."""
    return np.asarray(batch[key])[np.asarray(batch["presence"]) == 1.0]


@settings(max_examples=40, deadline=None)
@given(
    num_examples=st.integers(1, 60),
    fraction=st.floats(0.01, 1.0),
    multiple=st.integers(1, 20),
    seed=st.integers(0, 10**6),
)
def test_padding_neither_drops_nor_repeats_an_example(num_examples, fraction, multiple, seed):
    x = 1 + np.arange(num_examples)
    batch_size = max(1, int(fraction * num_examples))
    sampler = PoissonSampler(
        x, 2 * x, batch_size=batch_size, pad_to_multiple=multiple, steps=5, seed=seed
    )
    unpadded = PoissonSampler(x, batch_size=batch_size, pad_to_multiple=1, steps=5, seed=seed)
    for batch, reference in zip(sampler, unpadded, strict=True):
        drawn = present(batch)
        assert len(batch["x"]) % multiple == 0
        assert len(set(drawn.tolist())) == len(drawn)
        assert set(drawn.tolist()) <= set(x.tolist())
        np.testing.assert_array_equal(drawn, present(reference))
        np.testing.assert_array_equal(present(batch, "y"), 2 * drawn)
        assert not batch["x"][batch["presence"] == 0.0].any()
        assert batch["presence"].dtype == np.float32


def test_a_rate_of_one_draws_every_example():
    batch = next(iter(PoissonSampler(np.arange(10), batch_size=10)))
    assert present(batch).tolist() == list(range(10))


def test_an_empty_draw_is_one_granule_of_absent_rows():
    sampler = PoissonSampler(np.ones((10**5, 2)), batch_size=1, pad_to_multiple=4, seed=0)
    draws = list(itertools.islice(sampler, 20))
    empty = [batch for batch in draws if batch["presence"].sum() == 0]
    assert empty
    assert all(batch["x"].shape == (4, 2) for batch in empty)


def test_padded_sizes_come_from_a_few_values():
    sampler = PoissonSampler(np.arange(20_000), batch_size=400, steps=500, seed=3)
    assert sampler.pad_to_multiple == 20
    assert len({len(batch["x"]) for batch in sampler}) <= 12


def test_zero_sample_weight_is_not_padding():
    sampler = PoissonSampler(np.arange(5), batch_size=5, sample_weight=np.zeros(5))
    batch = next(iter(sampler))
    assert batch["presence"][:5].tolist() == [1.0] * 5
    assert batch["sample_weight"].dtype == np.float32


def test_class_weights_are_folded_into_sample_weights():
    y = np.array([0, 1, 2, 1])
    batch = next(iter(PoissonSampler(y, y, batch_size=4, class_weight={1: 3.0})))
    assert batch["sample_weight"].tolist() == [1.0, 3.0, 1.0, 3.0]


NESTED_X = {
    "text": np.array(["é", "b", "c", "d"]),
    "bytes": [b"p", b"q", b"r", b"s"],
    "pair": [np.arange(8.0).reshape(4, 2), np.arange(4, dtype=np.int8)],
    "tensor": tf.reshape(tf.range(24), [4, 2, 3]),
    "flags": np.array([True, False, True, False]),
}
NESTED_Y = (np.arange(4), [0.5, 1.5, 2.5, 3.5])


def test_nested_data_keeps_its_structure_and_stays_aligned():
    sampler = PoissonSampler(NESTED_X, NESTED_Y, batch_size=2, steps=20, sample_weight=[1, 2, 3, 4])
    for batch in sampler:
        count = int(batch["presence"].sum())
        rows = batch["y"][0][:count]
        x = batch["x"]
        assert list(x) == list(NESTED_X)
        assert x["text"][:count].tolist() == NESTED_X["text"][rows].tolist()
        assert x["bytes"][:count].tolist() == [NESTED_X["bytes"][i] for i in rows]
        assert isinstance(x["pair"], tuple)
        np.testing.assert_array_equal(x["pair"][1][:count], rows)
        np.testing.assert_array_equal(x["tensor"][:count, 0, 0], 6 * rows)
        np.testing.assert_array_equal(batch["y"][1][:count], rows + 0.5)
        assert [w.shape for w in batch["sample_weight"]] == [batch["presence"].shape] * 2
        np.testing.assert_array_equal(batch["sample_weight"][1][:count], rows + 1)


def test_dataset_has_the_same_batches_as_iteration():
    arguments = {"batch_size": 2, "steps": 6, "seed": 5}
    arrays = PoissonSampler(NESTED_X, NESTED_Y, **arguments)
    dataset = PoissonSampler(NESTED_X, NESTED_Y, **arguments).as_dataset()
    assert int(dataset.cardinality()) == 6
    for expected, batch in zip(arrays, dataset, strict=True):
        tf.nest.assert_same_structure(expected, batch)
        assert expected.pop("draw")[5] == batch.pop("draw")[5]
        for array, tensor in zip(tf.nest.flatten(expected), tf.nest.flatten(batch), strict=True):
            if tensor.dtype == tf.string:
                array = tf.constant(array, tf.string).numpy()
            else:
                assert tensor.dtype == tf.as_dtype(array.dtype)
            np.testing.assert_array_equal(array, tensor.numpy())


def test_rows_are_held_no_longer_than_their_dataset(monkeypatch):
    held, constant = [], tf.constant

    def noted(*args, **kwargs):
        made = constant(*args, **kwargs)
        if made.shape == (50, 3):
            held.append(weakref.ref(made))
        return made

    monkeypatch.setattr(tf, "constant", noted)
    gc.disable()
    try:
        dataset = PoissonSampler(np.ones((50, 3)), batch_size=5, steps=2).as_dataset()
        assert len(list(dataset)) == 2 and held
        del dataset
        assert [each() for each in held] == [None]
    finally:
        gc.enable()


def test_dataset_axes_are_static_except_the_batch_size():
    dataset = PoissonSampler(NESTED_X, NESTED_Y, batch_size=2).as_dataset()
    spec = dataset.element_spec
    assert spec["x"]["text"] == tf.TensorSpec((None,), tf.string)
    assert spec["x"]["tensor"] == tf.TensorSpec((None, 2, 3), tf.int32)
    assert spec["presence"] == tf.TensorSpec((None,), tf.float32)
    assert int(dataset.cardinality()) == tf.data.INFINITE_CARDINALITY


def test_a_function_over_the_dataset_is_traced_once():
    traces = []

    @tf.function
    def step(iterator):
        traces.append(1)
        return tf.shape(next(iterator)["x"])[0]

    sampler = PoissonSampler(np.zeros((500, 3)), batch_size=30, pad_to_multiple=2)
    iterator = iter(sampler.as_dataset())
    sizes = {int(step(iterator)) for _ in range(60)}
    assert len(sizes) > 3
    assert len(traces) == 1


def test_draws_are_neither_repeated_nor_skipped_by_prefetching():
    arguments = {"batch_size": 8, "steps": 30, "seed": 1}
    x = np.arange(100)
    expected = [present(batch).tolist() for batch in PoissonSampler(x, **arguments)]
    dataset = PoissonSampler(x, **arguments).as_dataset()
    assert [present(batch).tolist() for batch in dataset] == expected


def test_keras_fit_accepts_the_dataset():
    class Counting(keras.Model):
        def __init__(self):
            super().__init__()
            self.rows = self.add_weight(shape=(), initializer="zeros", trainable=False)

        def train_step(self, data):
            self.rows.assign_add(tf.reduce_sum(data["presence"]))
            return {"size": tf.reduce_sum(data["presence"])}

    model = Counting()
    model.compile(steps_per_execution=2)
    sampler = PoissonSampler(np.zeros((6, 2)), batch_size=6)
    model.fit(sampler.as_dataset(), steps_per_epoch=4, epochs=3, shuffle=False, verbose=0)
    assert float(model.rows) == 6 * 4 * 3


def test_attributes_state_the_sampling():
    sampler = PoissonSampler(np.zeros((10, 2)), batch_size=4, steps=7)
    assert sampler.num_examples == 10
    assert sampler.batch_size == 4
    assert sampler.sampling_rate == 0.4
    assert sampler.steps_per_epoch == 3
    assert sampler.steps == 7
    assert sampler.pad_to_multiple == 2
    assert not sampler.seeded


def test_sampler_and_accountant_are_one_object():
    sampler = PoissonSampler(np.zeros((10, 2)), batch_size=4)
    drawn = accounting.Sampling("poisson", num_examples=10, batch_size=4, drawn_by="library")
    assert sampler.sampling == drawn


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_size": 0}, "batch_size"),
        ({"batch_size": 2.0}, "batch_size"),
        ({"batch_size": True}, "batch_size"),
        ({"batch_size": 2, "steps": 0}, "steps"),
        ({"batch_size": 2, "seed": -1}, "seed"),
        ({"batch_size": 2, "pad_to_multiple": 0}, "pad_to_multiple"),
        ({"batch_size": 2, "y": np.zeros(9)}, "x: 10, y: 9"),
        ({"batch_size": 2, "sample_weight": np.zeros(3)}, "sample_weight: 3"),
        ({"batch_size": 2, "class_weight": {0: 1.0}}, "no targets"),
        ({"batch_size": 1, "x": np.zeros((0, 2))}, "at least one example"),
        ({"batch_size": 1, "x": {}}, "at least one array"),
        ({"batch_size": 1, "x": tf.data.Dataset.range(3)}, "declared_dataset"),
        ({"batch_size": 1, "x": (i for i in range(3))}, "declared_dataset"),
        ({"batch_size": 1, "x": lambda: None}, "declared_dataset"),
    ],
)
def test_impossible_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        PoissonSampler(**{"x": np.zeros((10, 2)), **arguments})


def test_a_batch_size_above_the_number_of_examples_is_that_number():
    with pytest.warns(UserWarning, match="Expected a batch_size of at most 10"):
        sampler = PoissonSampler(np.zeros(10), batch_size=11)
    drawn = accounting.Sampling("poisson", num_examples=10, batch_size=10, drawn_by="library")
    assert sampler.sampling == drawn


def test_numpy_integers_are_integers():
    assert PoissonSampler(np.zeros(10), batch_size=np.int64(3)).batch_size == 3


@pytest.mark.parametrize("floatx", ["float16", "bfloat16", "float64"])
def test_float64_becomes_any_floatx(floatx):
    before = keras.config.floatx()
    keras.config.set_floatx(floatx)
    try:
        sampler = PoissonSampler(
            np.arange(4.0), np.arange(4), batch_size=4, class_weight={1: 2.0}, pad_to_multiple=3
        )
        batch = next(iter(sampler.as_dataset()))
    finally:
        keras.config.set_floatx(before)
    assert batch["x"].dtype == floatx
    assert batch["sample_weight"].dtype == floatx
    assert batch["presence"].dtype == "float32"
    assert tf.cast(batch["x"], tf.float32).numpy().tolist() == [0, 1, 2, 3, 0, 0]


def test_a_pipeline_of_ours_is_not_tuned_so_that_its_iterator_ends_at_once():
    """The thread that tunes may sleep for as long as the epoch has taken, and is waited for."""
    sampler = PoissonSampler(np.zeros((9, 2)), batch_size=3, steps=2)
    assert sampler.without_draws().options().autotune.enabled is False
    assert sampler.as_dataset().options().autotune.enabled is False


@pytest.mark.parametrize(
    ("order", "dtype"), [(">f8", "float32"), (">f4", "float32"), (">i2", "int16")]
)
def test_bytes_of_another_order_are_the_same_numbers(order, dtype):
    sampler = PoissonSampler(np.arange(-2, 2).astype(order), batch_size=4, pad_to_multiple=4)
    for batch in (next(iter(sampler)), next(iter(sampler.as_dataset()))):
        assert batch["x"].dtype == dtype
        assert np.array(batch["x"]).tolist() == [-2, -1, 0, 1]

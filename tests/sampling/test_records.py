"""Records by index and their map: one row of one record, nothing kept, failures absent."""

import collections
import copy
import pickle

import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from tf_lowrank_dp.sampling import PoissonSampler, Records

N = 40
X, Y = np.arange(N * 3, dtype="float32").reshape(N, 3), np.arange(N)


def scaled(x, y):
    return 2.0 * tf.cast(x, tf.float32) + 1.0, y


class ByIndex:
    def __init__(self, broken=()):
        self.broken = broken

    def __len__(self):
        return N

    def __getitem__(self, index):
        if index in self.broken:
            raise OSError("cannot be read")
        return {"x": X[index], "y": int(Y[index])}


SOURCES = {
    "arrays": lambda: Records((X, Y), map=scaled),
    "range": lambda: Records(range(N), map=lambda i: scaled(tf.gather(X, i), i)),
    "numbers": lambda: Records([str(i) for i in Y], map=lambda i: by_name(i)),
    "by index": lambda: Records(ByIndex(), map=lambda r: scaled(r["x"], r["y"])),
    "in parallel": lambda: Records((X, Y), map=scaled, num_parallel_calls=3),
}


def by_name(name):
    index = tf.strings.to_number(name, tf.int64)
    return scaled(tf.gather(X, index), index)


def present(batch):
    return batch["y"][batch["presence"] == 1.0]


@pytest.mark.parametrize("source", SOURCES)
def test_rows_are_the_mapped_records_of_the_draw_and_padding_is_absent(source):
    """The draws are those of the arrays with the same seed, which know no map."""
    sampler = PoissonSampler(SOURCES[source](), batch_size=9, steps=6, seed=3)
    plain = PoissonSampler(X, Y, batch_size=9, steps=6, seed=3)
    for found, drawn in zip(sampler, plain, strict=True):
        np.testing.assert_array_equal(found["presence"], drawn["presence"])
        np.testing.assert_array_equal(present(found), present(drawn))
        expected = np.where(drawn["presence"][:, None] == 1.0, 2.0 * drawn["x"] + 1.0, 0.0)
        np.testing.assert_allclose(found["x"], expected)
    assert sampler.sampling == plain.sampling


def test_draws_of_any_size_and_empty_ones_keep_all_their_records():
    sampler = PoissonSampler(Records((X, Y), map=scaled), batch_size=1, steps=200)
    sizes = np.array([int(batch["presence"].sum()) for batch in sampler])
    assert (sizes == 0).any() and sizes.max() > 2
    expected = stats.binom(N, 1 / N)
    assert abs((sizes == 0).mean() - expected.pmf(0)) < 0.15


@pytest.mark.parametrize("broken", [(0,), (3, 17), (38, 39)])
def test_a_record_that_cannot_be_read_is_absent_and_no_other(broken):
    records = Records(ByIndex(broken), map=lambda r: scaled(r["x"], r["y"]))
    for batch in PoissonSampler(records, batch_size=N, steps=2, pad_to_multiple=8):
        assert len(batch["x"]) == N
        assert present(batch).tolist() == [i for i in range(N) if i not in broken]


def test_a_record_whose_map_fails_or_has_another_shape_is_absent():
    def odd(x, y):
        tf.debugging.assert_none_equal(y, tf.constant(7, tf.int64))
        return tf.zeros([tf.where(y == 9, 2, 5)]), y

    batch = next(iter(PoissonSampler(Records((X, Y), map=odd), batch_size=N)))
    assert present(batch).tolist() == [i for i in range(N) if i not in (7, 9)]


def form(value):
    """A record in another form than that of others, which has the same content otherwise."""
    return {
        "float for int": {"x": X[0], "y": 33.5},
        "another key": {"x": X[0], "y": 0, "z": 1},
        "another dtype": {"x": X[0].astype("float16"), "y": 0},
        "another axis": {"x": X[0], "y": [0]},
        "nothing": {"x": None, "y": 0},
        "a text": {"x": X[0], "y": "0"},
    }[value]


FORMS = ["float for int", "another key", "another dtype", "another axis", "nothing", "a text"]


class WithOne(ByIndex):
    """One record is of another form."""

    def __init__(self, index, record):
        super().__init__()
        self.index, self.record = index, record

    def __getitem__(self, index):
        return self.record if index == self.index else super().__getitem__(index)


@pytest.mark.parametrize("value", FORMS)
@pytest.mark.parametrize("index", [0, N - 1])
def test_one_record_of_another_form_does_not_decide_which_others_are_used(value, index):
    """All others would be absent if it were the first that is looked at."""
    records = Records(WithOne(index, form(value)), map=lambda r: (r["x"], r["y"]))
    with pytest.raises(ValueError, match="(?s)Expected records of one form.*Received.*Convert"):
        PoissonSampler(records, batch_size=N)


@pytest.mark.parametrize("value", FORMS)
def test_a_record_of_another_form_that_is_not_looked_at_is_alone_absent_or_converted(value):
    records = Records(WithOne(1, form(value)), map=lambda r: (r["x"], r["y"]))
    assert 1 not in records.tried
    batch = next(iter(PoissonSampler(records, batch_size=N)))
    others = [i for i in range(N) if i != 1]
    if value == "another dtype":  # float16 is held by float32
        assert present(batch).tolist() == [0, 0, *others[1:]]
    else:
        assert present(batch).tolist() == others


def test_whole_numbers_are_numbers_and_texts_may_be_of_any_length():
    class Texts:
        def __len__(self):
            return N

        def __getitem__(self, index):
            return {"age": np.float32(index) if index != 1 else 1, "name": "n" * index}

    records = Records(Texts(), map=lambda r: (r["age"], tf.strings.length(r["name"])))
    batch = next(iter(PoissonSampler(records, batch_size=N)))
    np.testing.assert_array_equal(batch["x"][batch["presence"] == 1.0], np.arange(N))
    np.testing.assert_array_equal(present(batch), np.arange(N))


def test_an_error_in_all_records_that_are_tried_is_raised():
    with pytest.raises(ValueError, match="(?s)Expected records that can be read.*cannot be read"):
        records = Records(ByIndex(range(1, N)), map=lambda r: tf.ensure_shape(r["x"], [4]))
        PoissonSampler(records, batch_size=4)


GENERATOR = keras.random.SeedGenerator(5)
DRAWS = {
    "stateless, fixed seed": lambda: tf.random.stateless_uniform([2], seed=(1, 2)),
    "seeded": lambda: tf.random.uniform([2], seed=7),
    "keras, fixed seed": lambda: keras.random.uniform([2], seed=3),
    "keras generator": lambda: keras.random.uniform([2], seed=GENERATOR),
}


@pytest.mark.parametrize("draw", DRAWS)
def test_random_numbers_are_new_for_each_record_and_draw_whatever_the_seed(draw):
    records = Records((X, Y), map=lambda x, y: (DRAWS[draw](), y))
    sampler = PoissonSampler(records, batch_size=N, steps=3)
    copies = [sampler, copy.deepcopy(sampler)]
    numbers = [batch["x"][:N] for each in copies for batch in each]
    # Equal numbers among 480 of 2^23 values: a chance of 1.4 % for one pair, 1e-4 for two.
    assert len(np.unique(np.concatenate(numbers))) >= 6 * N * 2 - 1


def test_a_seed_of_the_sampler_makes_a_map_in_turn_reproducible():
    def batches():
        records = Records((X, Y), lambda x, y: (tf.random.uniform([2]), y), num_parallel_calls=1)
        return [b["x"] for b in PoissonSampler(records, batch_size=5, steps=3, seed=1)]

    for a, b in zip(batches(), batches(), strict=True):
        np.testing.assert_array_equal(a, b)


COUNTER = tf.Variable(0.0)


def counts(x, y):
    COUNTER.assign_add(1.0)
    return x + COUNTER, y


def in_python(x, y):
    return tf.numpy_function(lambda a: a, [x], tf.float32), y


@pytest.mark.parametrize("source", [(X, Y), ByIndex()])
@pytest.mark.parametrize("function", [counts, in_python])
def test_a_map_that_could_keep_something_of_a_record_is_refused(source, function):
    map_ = function if isinstance(source, tuple) else lambda r: function(r["x"], r["y"])
    with pytest.raises(ValueError, match="(?s)Expected a map that treats.*Received.*__getitem__"):
        PoissonSampler(Records(source, map=map_), batch_size=4)


class Batches(keras.utils.PyDataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return X[:10], Y[:10]


class Loader(ByIndex):
    batch_size = 8


class RepeatMapDataset(ByIndex):
    """Named as Grain's."""


@pytest.mark.parametrize(
    "source",
    [Batches(), Loader(), RepeatMapDataset(), tf.data.Dataset.range(3), (i for i in X), [], len],
    ids=lambda source: type(source).__name__,
)
def test_sources_of_batches_or_repeats_or_without_index_are_refused(source):
    with pytest.raises(ValueError, match="(?s)Expected a source of single records.*Received.*Pass"):
        Records(source)


def test_a_pickled_sampler_draws_from_the_same_records():
    sampler = pickle.loads(pickle.dumps(PoissonSampler(Records((X, Y), scaled), batch_size=N)))
    assert present(next(iter(sampler))).tolist() == Y.tolist()


@pytest.mark.parametrize("given", [{"y": Y}, {"sample_weight": Y}])
def test_targets_beside_records_are_refused(given):
    with pytest.raises(ValueError, match="(?s)Expected targets.*Received.*map"):
        PoissonSampler(Records((X, Y)), batch_size=4, **given)


def test_shapes_that_differ_are_refused():
    ragged = Records(range(N), map=lambda i: tf.range(i))
    with pytest.raises(ValueError, match="(?s)Expected records of one shape.*Received.*pad"):
        PoissonSampler(ragged, batch_size=4)


def test_class_weight_is_that_of_the_records_labels():
    records = Records((X, Y % 3), map=scaled)
    sampler = PoissonSampler(records, batch_size=N, class_weight={1: 5.0, 2: 0.5})
    batch = next(iter(sampler))
    np.testing.assert_allclose(batch["sample_weight"][:N], np.array([1.0, 5.0, 0.5])[Y % 3])


def test_a_range_of_ten_million_takes_no_memory():
    records = Records(range(10, 10**7 + 10), map=lambda i: tf.cast(i, tf.float32))
    batch = next(iter(PoissonSampler(records, batch_size=16)))
    assert 10 <= batch["x"][batch["presence"] == 1.0].min()
    assert records.num_records == 10**7


TEXTS = [b"ends in 0: \0", b"\0\0", b"plain", b""] * 3


@pytest.mark.parametrize("source", [list, collections.UserList], ids=["list", "by index"])
@pytest.mark.parametrize(
    "texts",
    [TEXTS, ["caf\u00e9", "\u65e5\u672c", "plain", ""] * 3],
    ids=["zeros at the end", "letters beyond ASCII"],
)
def test_texts_of_all_kinds_are_present_as_they_are(source, texts):
    """All records of one class were absent: serialised, their labels of 0 end in a zero."""
    [batch] = PoissonSampler(Records(source(texts)), batch_size=len(texts), steps=1)
    found = batch["x"][batch["presence"] > 0].tolist()
    expected = [text if isinstance(text, bytes) else text.encode() for text in texts]
    assert sorted(found) == sorted(expected)


class OfOtherOrder:
    def __init__(self, order):
        self.order = order

    def __len__(self):
        return 5

    def __getitem__(self, index):
        return np.arange(index, index + 3).astype(self.order)


@pytest.mark.parametrize("order", [">f4", ">f8", ">i2", ">i4"])
def test_bytes_of_another_order_are_the_same_numbers(order):
    """They were read as if they were in the machine's order: 4.0 as 4.6e-41."""
    source = OfOtherOrder(order)
    batch = next(iter(PoissonSampler(Records(source), batch_size=5, pad_to_multiple=5)))
    assert batch["presence"].tolist() == [1] * 5
    assert batch["x"].tolist() == [[i, i + 1, i + 2] for i in range(5)]


class Tokens:
    """Rows as those of tables of lists, of which most are as long as allowed."""

    def __len__(self):
        return 40

    def __getitem__(self, index):
        length = 6 if index in Records(self).tried else 1 + index % 6
        return {
            "ids": [index] * length,
            "label": index % 2,
            "pair": [[0.5] * length, [1.0] * length],
        }


def test_lists_of_numbers_are_arrays_however_long_they_are():
    """Each number was a part of its own, and 7 of 40 records of other lengths were left out."""

    def padded(row):
        ids = tf.pad(row["ids"], [[0, 6 - tf.size(row["ids"])]])
        return tf.ensure_shape(ids, [6]), row["label"]

    batch = next(iter(PoissonSampler(Records(Tokens(), map=padded), batch_size=40)))
    assert batch["presence"].sum() == 40
    assert sorted(batch["x"][batch["presence"] == 1][:, 0].tolist()) == list(range(40))

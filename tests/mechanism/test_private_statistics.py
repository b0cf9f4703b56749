"""A private mean and histogram: bounded sensitivity, the stated noise, exact otherwise."""

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

import tf_lowrank_dp as tfdp
from tf_lowrank_dp.mechanism.gaussian import GaussianMechanism
from tf_lowrank_dp.mechanism.noise import NoiseGenerator

CLIP, K = 2.0, 3
GENERATOR = np.random.default_rng(0)
ROWS = GENERATOR.normal(size=(50, 4)) * np.exp(GENERATOR.normal(size=(50, 1)))
WORDS = [f"w{index}" for index in range(30)]
TEXTS = [list(GENERATOR.choice(WORDS, size)) for size in GENERATOR.integers(0, 12, 50)]
HOSTILE = [
    np.full(4, 1e30), np.full(4, np.nan), np.full(4, np.inf), np.full(4, -1e-30), np.ones(4),
    np.array([CLIP, 0, 0, 0]), np.array([3e38, -3e38, 0, 1]),
]  # fmt: skip


@pytest.fixture
def without_noise(monkeypatch):
    """What is summed, before the noise."""
    monkeypatch.setattr(GaussianMechanism, "release", lambda self, sums, noise: sums)
    monkeypatch.setattr(
        NoiseGenerator, "normal", lambda self, shapes: [tf.zeros(shape) for shape in shapes]
    )


def sum_of(rows):
    released = tfdp.private_mean(rows, l2_norm_clip=CLIP, noise_multiplier=1.0)
    return released.value * len(rows)


def counts_of(texts):
    arguments = {"tokens_per_record": K, "noise_multiplier": 1.0}
    return tfdp.private_histogram(texts, WORDS, **arguments).value


@pytest.mark.parametrize("row", HOSTILE, ids=str)
def test_a_row_moves_the_sum_by_at_most_the_clip(without_noise, row):
    difference = sum_of(np.vstack([ROWS, row])) - sum_of(ROWS)
    assert np.linalg.norm(difference) <= CLIP * (1 + 1e-9)


def test_a_row_moves_the_sum_of_a_million_by_at_most_the_clip(without_noise):
    """Where sums in float32 are rounded to multiples of 0.06, and to 0.25 where they are large."""
    rows = np.tile(np.float32([[1.1, 0.7]]), (1_000_000, 1))
    difference = sum_of(np.vstack([[[0.3, -0.4]], rows])) - sum_of(rows)
    np.testing.assert_allclose(difference, [0.3, -0.4], rtol=1e-6)


def test_the_mean_is_that_of_rows_scaled_to_the_clip(without_noise):
    norms = np.linalg.norm(ROWS, axis=1, keepdims=True)
    expected = (ROWS * np.minimum(1, CLIP / norms)).mean(axis=0)
    np.testing.assert_allclose(sum_of(ROWS) / len(ROWS), expected, rtol=1e-5)


@pytest.mark.parametrize(
    "tokens", [[], ["?"] * 9, WORDS, ["w1"] * 99, ["w1", "w1", "w2", "w3", "w4"], [None, 3, "w9"]]
)
def test_a_record_moves_the_counts_by_at_most_the_root_of_its_tokens(without_noise, tokens):
    difference = counts_of([tokens, *TEXTS]) - counts_of(TEXTS)
    assert set(difference) <= {0.0, 1.0} and difference.sum() <= K


def test_counts_are_of_records_that_hold_a_token_among_their_first(without_noise):
    expected = [sum(w in list(dict.fromkeys(text))[:K] for text in TEXTS) for w in WORDS]
    np.testing.assert_array_equal(counts_of(TEXTS), expected)


@pytest.mark.parametrize(
    "records",
    [
        lambda texts: tf.strings.split(texts),
        lambda texts: tf.data.Dataset.from_tensor_slices(texts).map(tf.strings.split),
        lambda texts: [np.array(text.split()) for text in texts],
        lambda texts: [text.encode().split() for text in texts],
    ],
    ids=["ragged", "dataset", "arrays", "bytes"],
)
@pytest.mark.parametrize("as_bytes", [False, True])
def test_tokens_are_counted_whatever_holds_them(without_noise, records, as_bytes):
    """Tensors cannot be hashed, and bytes are no text: both counted nothing, silently."""
    words = ["a", "b", "\N{GREEK SMALL LETTER ALPHA}"]
    texts = ["a b b", "b \N{GREEK SMALL LETTER ALPHA}", "", "c"]
    candidates = [word.encode() for word in words] if as_bytes else words
    found = tfdp.private_histogram(
        records(texts), candidates, tokens_per_record=2, noise_multiplier=1.0
    )
    np.testing.assert_array_equal(found.value, [1.0, 2.0, 1.0])


def test_a_dataset_of_batches_is_refused_and_without_them_it_counts(without_noise):
    """Of single tokens a batch would look like one record: one moved 141 counts."""
    rows = tf.data.Dataset.from_tensor_slices(["w1", "w2", "w1"]).map(lambda word: word[None])
    with pytest.raises(ValueError, match="would count as one"):
        counts_of(tf.data.Dataset.from_tensor_slices(["w1", "w2", "w1"]).batch(3))
    assert counts_of(rows).sum() == 3


def test_tensors_of_whole_texts_are_refused_as_texts_are():
    for text in ("a b", b"a b", tf.constant("a b")):
        with pytest.raises(ValueError, match="Split it first"):
            counts_of([text])


@pytest.mark.parametrize("record", [float("nan"), None, [["w1"]], [{"w1"}, {}], 7])
def test_a_record_that_is_no_list_of_tokens_counts_for_none(without_noise, record):
    settings = {"tokens_per_record": K, "noise_multiplier": 1.0}
    found = tfdp.private_histogram([*TEXTS, record], WORDS, **settings).value
    np.testing.assert_array_equal(found, tfdp.private_histogram(TEXTS, WORDS, **settings).value)


@pytest.mark.parametrize("last", [0.0, 2.0**-40, 1.0 / 3.0])
def test_no_bit_of_the_sum_is_released_without_noise(last):
    """Sums are float64 and normals float32: a record of 2^-40 was seen in each of 200 releases."""
    rows = np.full((1024, 4_000), 2.0**-8)
    rows[-1] = last * 2.0**-8
    released = tfdp.private_mean(rows, l2_norm_clip=CLIP, noise_multiplier=4.0).value * 1024
    multiples = released / 2.0 ** (3 - 30)
    np.testing.assert_array_equal(multiples, np.round(multiples))
    for bits in (2, 6, 10):  # uniform, whatever the sum is
        counts = np.bincount((multiples % 2**bits).astype(int), minlength=2**bits)
        assert stats.chisquare(counts).pvalue > 1e-6


def test_the_noise_is_normal_with_the_stated_deviation_and_fresh():
    z, size = 1.7, 20_000
    zeros = np.zeros((1, size))
    one, other = (tfdp.private_mean(zeros, l2_norm_clip=CLIP, noise_multiplier=z) for _ in range(2))
    counts = tfdp.private_histogram([], list(range(size)), tokens_per_record=K, noise_multiplier=z)
    for release, deviation in ((one, z * CLIP), (other, z * CLIP), (counts, z * K**0.5)):
        assert stats.kstest(release.value / deviation, "norm").pvalue > 1e-6
        assert release.event.noise_multiplier == z
    assert abs(np.corrcoef(one.value, other.value)[0, 1]) < 0.05


@pytest.mark.parametrize(
    "call",
    [
        lambda: tfdp.private_mean(ROWS, l2_norm_clip=0.0, noise_multiplier=1.0),
        lambda: tfdp.private_mean(ROWS, l2_norm_clip=np.inf, noise_multiplier=1.0),
        lambda: tfdp.private_mean(ROWS, l2_norm_clip=1.0, noise_multiplier=0.0),
        lambda: tfdp.private_mean(ROWS[:0], l2_norm_clip=1.0, noise_multiplier=1.0),
        lambda: tfdp.private_mean(["a"], l2_norm_clip=1.0, noise_multiplier=1.0),
        lambda: tfdp.private_histogram([], ["a", "a"], tokens_per_record=1, noise_multiplier=1.0),
        lambda: tfdp.private_histogram([], ["a"], tokens_per_record=0, noise_multiplier=1.0),
        lambda: tfdp.private_histogram(["a b"], ["a"], tokens_per_record=1, noise_multiplier=1.0),
    ],
)
def test_wrong_arguments_are_refused(call):
    with pytest.raises(ValueError, match="(?s)Expected.*Received"):
        call()


JOINED = {
    "batches": lambda records: records.batch(4),
    "batches, read ahead": lambda records: records.batch(4).prefetch(1),
    "batches, mapped": lambda records: records.batch(4).map(lambda x: tf.reshape(x, [-1])),
    "batches, shuffled": lambda records: records.shuffle(9).batch(4).shuffle(2).take(2).cache(),
    "padded": lambda records: records.padded_batch(4).map(lambda x: tf.reshape(x, [-1])),
    "windows": lambda records: records.window(4).flat_map(lambda x: x.batch(4)),
    "flat": lambda records: records.batch(4).flat_map(tf.data.Dataset.from_tensors),
    "a choice by value": lambda records: records.take_while(lambda x: x[0] == "a"),
    "state": lambda records: records.scan(0, lambda state, x: (state + 1, x)),
    "twice": lambda records: records.repeat(2),
    "twice, in pairs": lambda records: tf.data.Dataset.zip(
        records.repeat(2), tf.data.Dataset.range(16)
    ).map(lambda x, _: x),
    "twice, one after the other": lambda records: records.concatenate(records),
}


@pytest.mark.parametrize("join", JOINED.values(), ids=JOINED)
def test_what_joins_or_repeats_records_is_not_taken_for_records(join):
    """Batches of 4 moved the counts by 6 clips, and one record of a window all of it."""
    records = join(tf.data.Dataset.from_tensor_slices([["a", "b"]] * 8))
    with pytest.raises(ValueError, match="(?s)one record in each element.*unbatch"):
        tfdp.private_histogram(records, ["a", "b"], tokens_per_record=1, noise_multiplier=1.0)


@pytest.mark.parametrize(
    "stages",
    [
        lambda records: records.map(tf.strings.lower).shuffle(8).cache().prefetch(1),
        lambda records: records.batch(4).unbatch().filter(lambda x: True).repeat(1),
        lambda records: tf.data.Dataset.from_generator(
            lambda: iter(records), output_signature=records.element_spec
        ),
    ],
)
def test_a_pipeline_of_single_records_is_counted(stages):
    records = stages(tf.data.Dataset.from_tensor_slices([["a", "b"]] * 8))
    counts = tfdp.private_histogram(
        records, ["a", "b", "c"], tokens_per_record=2, noise_multiplier=1e-6
    ).value
    np.testing.assert_allclose(counts, [8, 8, 0], atol=1e-3)

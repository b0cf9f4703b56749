"""Tests of padding."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tf_lowrank_dp.accounting import Sampling
from tf_lowrank_dp.sampling import pad_rows, padded_size
from tf_lowrank_dp.sampling.padding import part_rows, rows_computed


@given(n=st.integers(0, 10**6), multiple=st.integers(1, 10**4))
def test_padded_size_is_the_smallest_multiple_that_holds_the_rows(n, multiple):
    size = padded_size(n, multiple)
    assert size % multiple == 0
    assert size >= max(n, 1)
    assert size - multiple < max(n, 1)


def test_an_empty_draw_is_one_granule():
    assert padded_size(0, 5) == 5


@pytest.mark.parametrize("arguments", [(-1, 4), (4, 0)])
def test_padded_size_refuses_impossible_sizes(arguments):
    with pytest.raises(ValueError, match="at least"):
        padded_size(*arguments)


@given(n=st.integers(0, 9), extra=st.integers(0, 9), trailing=st.sampled_from([(), (2,), (2, 3)]))
def test_rows_are_neither_dropped_nor_repeated_nor_reordered(n, extra, trailing):
    rows = 1 + np.arange(n * int(np.prod(trailing))).reshape(n, *trailing)
    padded = pad_rows({"a": (rows,)}, n + extra)["a"][0]
    assert padded.shape == (n + extra, *trailing)
    assert padded.dtype == rows.dtype
    np.testing.assert_array_equal(padded[:n], rows)
    assert not padded[n:].any()


@pytest.mark.parametrize(
    ("rows", "filler"),
    [
        (np.array([1.5], np.float16), 0.0),
        (np.array([7], np.uint8), 0),
        (np.array([True]), False),
        (np.array(["text"]), ""),
        (np.array([b"text"]), b""),
        (np.array(["text"], object), ""),
        (np.array([b"text"], object), b""),
    ],
)
def test_padding_has_the_empty_value_of_the_dtype(rows, filler):
    padded = pad_rows(rows, 3)
    assert padded.dtype == rows.dtype
    assert padded.tolist() == [rows[0], filler, filler]


def test_an_empty_array_of_objects_is_padded_with_strings():
    assert pad_rows(np.array([], object), 2).tolist() == ["", ""]


def test_rows_are_never_truncated():
    with pytest.raises(ValueError, match="never dropped"):
        pad_rows(np.zeros((4, 2)), 3)


@pytest.mark.parametrize(("batch_size", "rows"), [(1, 1), (1, 3), (10, 4), (64, 76), (300, 80)])
def test_rows_computed_is_the_mean_over_the_law_of_draws(batch_size, rows):
    sizes = np.arange(batch_size + 40 * int(np.sqrt(batch_size)) + 40)
    parts = np.ceil(np.maximum(sizes, 1) / rows)
    mean = (stats.poisson.pmf(sizes, batch_size) * parts * rows).sum()
    assert rows_computed(batch_size, rows) == pytest.approx(mean, rel=1e-9)


@given(
    batch_size=st.integers(1, 5000),
    most=st.none() | st.integers(1, 6000),
    kind=st.sampled_from(["poisson", "shuffle"]),
)
def test_parts_are_no_larger_than_allowed_and_waste_less_than_half(batch_size, most, kind):
    if kind == "poisson":
        sampling = Sampling.poisson(num_examples=10**6, batch_size=batch_size)
    else:
        sampling = Sampling.shuffle(batch_size=batch_size, steps_per_pass=3)
    rows = part_rows(sampling, most)
    assert 1 <= rows <= (most or rows)
    if kind == "poisson":
        assert rows_computed(batch_size, rows) <= 1.5 * batch_size
    else:
        parts = -(-batch_size // rows)
        assert parts == -(-batch_size // (most or batch_size))
        assert parts * rows - batch_size < parts

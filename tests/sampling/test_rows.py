"""Tests of the conversion of user data to rows."""

import collections

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from tf_lowrank_dp.sampling import rows


@pytest.mark.parametrize(
    ("data", "shape"),
    [
        ([1, 2, 3], (3,)),
        ((1, 2, 3), (3,)),
        ([[1.0, 2.0], [3.0, 4.0]], (2, 2)),
        ([(1, 2), (3, 4), (5, 6)], (3, 2)),
        (["a", "b"], (2,)),
        (tf.zeros([4, 5]), (4, 5)),
        (tf.Variable([1.0, 2.0]), (2,)),
        (tf.constant(["a", "b"]), (2,)),
    ],
)
def test_data_that_is_one_array(data, shape):
    assert rows.to_rows(data, "x").shape == shape


def test_lists_and_tuples_of_arrays_are_structures():
    a, b = np.zeros((2, 3)), np.zeros(2)
    assert isinstance(rows.to_rows([a, b], "x"), tuple)
    assert isinstance(rows.to_rows((["a", "b"], ["c", "d"]), "x"), tuple)
    nested = rows.to_rows({"p": [a, {"q": b}]}, "x")
    assert nested["p"][0] is a
    assert nested["p"][1]["q"] is b
    pair = collections.namedtuple("pair", ["first", "second"])(a, b)
    assert rows.to_rows(pair, "x").second is b


def test_float64_becomes_floatx_and_other_dtypes_are_kept():
    for given, expected in [
        ("float64", "float32"),
        ("float32", "float32"),
        ("float16", "float16"),
        (ml_dtypes.bfloat16, ml_dtypes.bfloat16),
        ("int64", "int64"),
        ("uint8", "uint8"),
        ("bool", "bool"),
    ]:
        array = np.zeros((3, 2), given)
        taken = rows.take_rows(array, np.array([0, 2]))
        assert taken.dtype == np.dtype(expected)
        assert rows.row_spec(array).dtype == tf.as_dtype(taken.dtype)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (3.0, "one row per example"),
        ({"a": None}, r"x\['a'\].*None"),
        ([[1, 2], [3]], "same\nshape|same shape"),
        (np.array([1, None], object), "numbers or strings"),
        (np.array(["2020-01-01"], "datetime64[D]"), "dtype that TensorFlow knows"),
        (tf.ragged.constant([[1], [2, 3]]), "one public shape.*to_tensor"),
        (tf.sparse.from_dense([[[0.0, 1.0]]]), "one public shape.*to_dense"),
    ],
)
def test_data_without_rectangular_rows_is_refused(data, message):
    with pytest.raises(ValueError, match=message):
        rows.to_rows(data, "x")


def test_unequal_numbers_of_rows_are_listed():
    with pytest.raises(ValueError, match=r"x\['a'\]: 3, x\['b'\]: 3, y: 2"):
        rows.count_rows({"x": {"a": np.zeros(3), "b": np.zeros(3)}, "y": np.zeros(2)})


@pytest.mark.parametrize("structure", [{}, {"x": ()}, {"x": np.zeros((0, 3))}])
def test_data_without_examples_is_refused(structure):
    with pytest.raises(ValueError, match="at least one"):
        rows.count_rows(structure)


LARGE = 2**24 + 1  # the first integer that float32 does not hold


@pytest.mark.parametrize(
    ("odd", "received"),
    [
        (0.5, "float32 rounds"),
        (float("nan"), "float32 rounds"),
        (np.float32(0.5), "float32 rounds"),
        (tf.constant(0.5), "float32 rounds"),
        (1j, "complex128 rounds"),
        ("1", "texts and numbers"),
        (b"1", "texts and numbers"),
    ],
    ids=["float", "nan", "float32", "tensor", "complex", "str", "bytes"],
)
@pytest.mark.parametrize("nest", [lambda row: row, lambda row: [row, 1]], ids=["flat", "nested"])
def test_one_value_of_another_kind_does_not_change_the_others_of_a_list(odd, received, nest):
    large = 2**53 + 1 if isinstance(odd, complex) else LARGE
    plain = rows.to_rows({"ids": [nest(large), nest(large + 1)]}, "x")["ids"]
    assert plain.ravel()[0] == large
    with pytest.raises(ValueError, match=f"(?s)one kind.*Received: .*{received}.*Pass an array"):
        rows.to_rows({"ids": [nest(large), nest(odd)]}, "x")


@pytest.mark.parametrize(
    "data",
    [
        [1, 0.5],
        [[1, 2], [3, float("nan")]],
        [LARGE - 1, 0.5],
        [float(LARGE), 0.5],
        [LARGE, True],
        [True, 0.5],
        [LARGE, np.int64(5)],
        ["a", b"b"],
    ],
    ids=repr,
)
def test_values_of_a_list_are_what_they_are_alone(data):
    def taken(values):
        return rows.take_rows(rows.to_rows(values, "x"), np.arange(len(values))).ravel().tolist()

    assert len(taken(data)) == np.size(data)
    alone = [taken([value])[0] for value in np.array(data, object).ravel()]
    np.testing.assert_array_equal(taken(data), [v.decode() if v == b"b" else v for v in alone])

"""Tests of the conversion of user data to rows."""

import collections

import ml_dtypes
import numpy as np
import pytest
import scipy
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


class Column:
    """As what pandas, Arrow and others hold: integers, which numpy converts if one is missing."""

    def __init__(self, values, **stated):
        self.values = values
        vars(self).update(stated)

    def __array__(self, dtype=None, copy=None):
        return np.array(self.values)

    def __getitem__(self, rows):
        return Column(self.values[rows])


def kind(**attributes):
    return type("Kind", (), attributes)()


NULLABLE = kind(numpy_dtype=np.dtype("int64"))
ARROW = kind(to_pandas_dtype=lambda self: np.int64)
STATED = {
    "nullable": {"dtype": NULLABLE},
    "categories": {"dtype": kind(categories=np.arange(3))},
    "categories of nullable ones": {"dtype": kind(categories=kind(dtype=NULLABLE))},
    "table of one column": {"dtypes": [NULLABLE]},
    "table": {"dtypes": [np.dtype("int32"), NULLABLE]},
    "Arrow": {"type": ARROW},
    "Arrow's dictionary": {"type": kind(value_type=ARROW)},
    "Arrow's table": {"schema": kind(types=[ARROW, ARROW])},
    "nothing stated": {},
}


@pytest.mark.parametrize(
    ("odd", "received"),
    [
        (0.5, "float64, int64"),
        (float("nan"), "float64, int64"),
        (np.float32(0.5), "float32, float64, int64"),
        (tf.constant(0.5), "float32, float64, int64"),
        (2**63, "float64, int64, uint64"),
        (True, "bool, int64"),
        (1j, "complex128, int64"),
        ("1", "int64, text"),
        (b"1", "int64, text"),
    ],
    ids=["float", "nan", "float32", "tensor", "large", "bool", "complex", "str", "bytes"],
)
@pytest.mark.parametrize("nest", [lambda row: row, lambda row: [row, row]], ids=["flat", "nested"])
def test_one_value_of_another_kind_does_not_change_the_others_of_a_list(odd, received, nest):
    plain = rows.to_rows({"ids": [nest(LARGE), nest(LARGE + 1)]}, "x")["ids"]
    assert plain.ravel()[0] == LARGE
    with pytest.raises(ValueError, match=f"(?s)one dtype.*Received: {received}.*Pass an array"):
        rows.to_rows({"ids": [nest(LARGE), nest(odd)]}, "x")


@pytest.mark.parametrize("stated", STATED)
def test_a_missing_entry_does_not_change_the_other_rows_of_a_column(stated):
    """One moved 16.7 clips where others were identifiers that were hashed."""
    whole = Column([LARGE, 1], **STATED[stated])
    assert rows.to_rows(whole, "x").tolist() == [LARGE, 1]
    with pytest.raises(ValueError, match=r"(?s)one dtype.*float64, int64"):
        rows.to_rows(Column([float("nan"), LARGE], **STATED[stated]), "x")


def test_columns_without_rows_or_slices_are_what_numpy_makes_of_them():
    assert rows.to_rows(tf.zeros((0, 3)), "x").shape == (0, 3)
    for values in ([1.0, np.nan], np.array([1.0, np.nan])):
        whole, unsliced = Column(values), type("Unsliced", (Column,), {"__getitem__": None})(values)
        assert rows.to_rows(whole, "x").dtype == rows.to_rows(unsliced, "x").dtype == np.float64


def test_tables_whose_columns_are_stated_to_be_of_several_dtypes_are_what_numpy_makes_of_them():
    table = Column([[1.0, 0.5], [2.0, np.nan]], dtypes=[NULLABLE, np.dtype("float64")])
    assert rows.to_rows(table, "x").dtype == np.float64


@pytest.mark.parametrize(
    "data",
    [[[1, 0.5], [2.5, LARGE]], [0.5, float("nan")], [LARGE, np.int64(5)], ["a", b"b"], [True]],
    ids=repr,
)
def test_rows_of_a_list_are_what_they_are_alone(data):
    def taken(values):
        return rows.take_rows(rows.to_rows(values, "x"), np.arange(len(values)))

    alone = [taken([row])[0] for row in data]
    if isinstance(data[0], str):
        alone = ["a", "b"]
    np.testing.assert_array_equal(taken(data), alone)


@pytest.mark.parametrize("column", [-1, 3, 10**7])
def test_entries_of_columns_that_a_sparse_matrix_does_not_have_are_refused(column):
    """They were written into other examples' rows, 10.9 clips for 2, or ended the process."""
    given = scipy.sparse.csr_matrix(([1.0, 2.0], [0, 1], [0, 1, 2]), shape=(2, 3))
    given.indices[1] = column
    with pytest.raises(ValueError, match="of the 3 columns of `x`"):
        rows.to_rows(given, "x")


def test_sparse_matrices_of_all_kinds_are_rows():
    dense = np.eye(3)[[0, 2]]
    for kind in ("bsr", "coo", "csc", "csr", "dia", "dok", "lil"):
        found = rows.to_rows(getattr(scipy.sparse, f"{kind}_matrix")(dense), "x")
        np.testing.assert_array_equal(rows.take_rows(found, np.array([1, 0])), dense[[1, 0]])

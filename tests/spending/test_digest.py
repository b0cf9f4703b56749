"""Digests tell any two values apart, in order, whatever their size and dtype."""

import os
import subprocess
import sys

import keras
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from tf_lowrank_dp.spending.digest import checksum, digests

SMALL, LARGE = 1_000, 270_001  # read by BLAKE2 on the host, and by XLA on the device
DTYPES = ["float32", "bfloat16", "float16", "float64", "int8", "int32", "int64", "uint8", "bool"]


def one(array):
    return digests([tf.Variable(array)])[0]


@pytest.fixture
def values():
    generator = np.random.default_rng(0)

    def values(size, dtype="float32"):
        drawn = generator.integers(0, 2 if dtype == "bool" else 100, size)
        return drawn.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)

    return values


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [1, 9, SMALL, LARGE])
def test_equal_values_have_equal_digests_and_a_change_of_one_another(values, size, dtype):
    array = values(size, dtype)
    digest = one(array)
    assert digest == one(array.copy()) and len(digest) in (8, 16)
    found = {digest}
    positions = {0, size // 8, size // 2, size - 1}
    for position in positions:
        other = array.copy()
        other[position] = not other[position] if dtype == "bool" else other[position] + 1
        found.add(one(other))
    assert len(found) == 1 + len(positions)


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_each_bit_counts_also_the_sign_of_zero(size):
    array, found = np.zeros(size, "uint32"), set()
    for bit in range(32):
        array[size - 2] = 1 << bit
        found.add(one(array.view("float32")))
    assert len(found) == 32


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_the_order_counts_within_and_across_the_parts_that_are_added_up(values, size):
    array, found = np.arange(size, dtype="float32"), set()
    swaps = [(0, 0), (0, 1), (5, 5 + size // 8), (3, 3 + 2 * (size // 8)), (0, size - 1), (7, 4103)]
    for a, b in swaps:
        other = array.copy()
        other[[a % size, b % size]] = other[[b % size, a % size]]
        found.add(one(other))
    found.add(one(np.roll(array, 1)))
    found.add(one(array[::-1]))
    assert len(found) == len(swaps) + 2


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_values_whose_low_bits_are_all_zero_collide_no_more_often(dtype):
    """A sum of products with odd numbers alone would keep the zeros, and collide soon."""
    generator = np.random.default_rng(1)
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    arrays = [generator.normal(size=LARGE).astype(kind).astype("float32") for _ in range(20)]
    found = [one(array) for array in arrays]
    lanes = np.frombuffer(b"".join(found), np.uint32)
    assert len(set(found)) == 20 and len(set(lanes)) == 40
    ones = np.unpackbits(lanes.view(np.uint8)).mean()  # of 1,280 fair bits: 0.5 +- 0.014
    assert abs(ones - 0.5) < 5 * 0.014


def test_constant_values_differ_by_value_and_by_length():
    found = {one(np.full(size, value, "float32")) for size in (0, 1, 2, LARGE) for value in (0, 1)}
    assert len(found) == 7  # two of length 0 are equal


def test_variables_of_keras_have_the_digest_of_their_values(values):
    arrays = [values(LARGE), values(5)]
    assert digests([keras.Variable(a) for a in arrays]) == [one(a) for a in arrays]


SCRIPT = """
import tensorflow as tf
from tf_lowrank_dp.spending.digest import checksum, digests
print(b"".join(digests([tf.zeros([3]), tf.zeros([270_001])])).hex())
"""


def test_another_process_has_another_key():
    """Nobody can prepare values that collide, and a digest in a log tells nothing."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": os.getcwd()},
    )  # fmt: skip
    here = digests([tf.zeros([3]), tf.zeros([LARGE])])
    assert done.stdout.strip() not in ("", b"".join(here).hex())


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "int64", "bool"])
@pytest.mark.parametrize("shape", [(), (7,), (4, 6), (2, 3, 5), (0, 3)])
def test_the_checksum_of_a_graph_tells_values_and_the_places_of_rows_and_columns(shape, dtype):
    value = np.random.default_rng(0).normal(size=shape).astype(dtype)
    graph = tf.function(checksum)
    first = int(checksum(tf.constant(value)))
    assert int(graph(tf.constant(value))) == first
    for axis in range(value.ndim if value.size > 1 else 0):
        other = np.roll(value, 1, axis)
        if axis in (0, value.ndim - 1) and (other != value).any():
            assert int(checksum(tf.constant(other))) != first
    if value.size and dtype != "bool":
        assert int(checksum(tf.constant(value + value.dtype.type(1)))) != first


def rounded(value):
    """To bfloat16, so that half of the bits of each word are 0."""
    return value.astype(ml_dtypes.bfloat16).astype("float32")


KINDS = {
    "normal": lambda shape: np.random.default_rng(0).normal(size=shape).astype("float32"),
    "rounded": lambda shape: rounded(np.random.default_rng(0).normal(size=shape)),
    "ones": lambda shape: np.ones(shape, "float32"),
}
OTHER_BITS = [
    lambda value: -value,
    lambda value: value * np.where(np.arange(value.shape[-1]) == 0, np.float32(-1), np.float32(1)),
    lambda value: 2 * value,
    lambda value: value / 2,
    lambda value: 256 * value,
]


@pytest.mark.parametrize("shape", [(16, 16), (64, 64), (512,), (512, 512)])
@pytest.mark.parametrize("kind", KINDS)
def test_the_checksum_of_a_graph_tells_other_signs_and_scales(kind, shape):
    """High bits of words, which products and sums of these lose where there is an even number."""
    value = KINDS[kind](shape)
    found = [int(checksum(tf.constant(other(value)))) for other in OTHER_BITS]
    assert int(checksum(tf.constant(value))) not in found
    assert len({*found}) == len(found)


@pytest.mark.parametrize("sizes", [[300_000], [300_000, 300_000]])
def test_digests_are_the_same_while_a_graph_is_traced(sizes):
    """Those of large variables became part of the graph, and a symbolic tensor has no bytes."""
    variables = [tf.Variable(tf.range(size)) for size in sizes]
    traced = []
    tf.function(lambda: traced.extend(digests(variables))).get_concrete_function()
    assert traced == digests(variables)

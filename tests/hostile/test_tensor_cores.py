"""A hostile record is clipped as well where operands lose bits on their way into a product."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.hostile.configurations import CONFIGURATIONS
from tests.hostile.harness import Harness
from tests.hostile.records import RECORDS, kinds, make_batch
from tests.hostile.tensor_cores import cut, tensor_cores
from tests.hostile.test_hostile_records import assert_within_sensitivity
from tf_lowrank_dp.mechanism.clipping import clip_factors
from tf_lowrank_dp.per_example import arithmetic
from tf_lowrank_dp.per_example.convolution import KernelGradient
from tf_lowrank_dp.per_example.kernel_offsets import Geometry
from tf_lowrank_dp.per_example.outer_product import OuterProduct

SLACK = 1.0 + 1e-5
DATA_SETS = 4


NAMES = [
    name for name, case in CONFIGURATIONS.items()
    if case.arguments.get("gradient_method") != "reweight"
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_hostile_record_is_clipped_on_tensor_cores(name):
    with tensor_cores():
        harness = Harness(CONFIGURATIONS[name])
        seen = []

        @settings(
            max_examples=DATA_SETS,
            deadline=None,
            derandomize=True,
            phases=[Phase.generate],
            database=None,
        )
        @given(chosen=kinds(harness.kind), seed=st.integers(0, 2**32 - 1))
        def check(chosen, seed):
            shapes = harness.x_shape, harness.y_shape
            batch = make_batch(harness.kind, chosen, seed, *shapes, harness.directions)
            for one in np.eye(RECORDS):
                released, _, _ = harness.release(batch, one)
                assert_within_sensitivity(harness, released)
                seen.append(max(np.linalg.norm(block) for block in released))

        check()
    assert len(seen) >= DATA_SETS and max(seen) > 0.0


def test_what_the_sum_rounds_up_once_more_is_within_the_clip():
    """Of a clipped gradient of two columns both may be rounded up, by half of what is kept."""
    generator = np.random.default_rng(3)
    x, d = (generator.normal(size=(200, 1, n)).astype(np.float32) for n in (8, 2))
    with tensor_cores():
        gradient = OuterProduct(x, d)
        assert gradient.uses_gram

        def largest(factors):
            sums = [gradient.weighted_sum(tf.one_hot(n, 200) * factors) for n in range(200)]
            return max(np.linalg.norm(np.float64(total)) for total in sums)

        exact = 1.0 / tf.sqrt(gradient.squared_norms())
        clipped = clip_factors([gradient], tf.ones([200]), 1.0)
        assert largest(exact) > 1.0003  # by their norms alone they would be released too large
        assert 0.999 < largest(clipped) <= SLACK


def test_a_pair_is_cut_once_for_norms_and_sums():
    generator = np.random.default_rng(4)
    x, d = (generator.normal(size=(5, 3, n)).astype(np.float32) for n in (60, 50))
    exact = np.einsum("bti,bto->bio", np.float64(cut(x)), np.float64(cut(d))).reshape(5, -1)
    with tensor_cores():
        gradient = OuterProduct(x, d)
        norms, bounds = gradient.squared_norms().numpy(), gradient.squared_norm_bounds().numpy()
        everyone = gradient.weighted_sum(tf.ones([5])).numpy().reshape(-1)
    squares = np.sum(exact**2, 1)
    np.testing.assert_allclose(norms, squares, rtol=1e-5)
    assert np.all(bounds >= squares) and np.all(bounds <= 1.02 * squares)
    # Ones change no operand, and a sum of what was cut is not cut again.
    np.testing.assert_allclose(everyone, exact.sum(0), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(20, 1, 64, 2), (20, 4, 60, 50), (20, 8, 6, 5)])
def test_a_pair_of_bfloat16_is_multiplied_as_it_is_and_clipped(shape):
    """In one XLA program, which may leave out what rounds to bfloat16 and back."""
    rows, positions, *sizes = shape
    generator = np.random.default_rng(6)
    pair = [
        tf.cast(generator.normal(size=(rows, positions, n)), tf.float32) * generator.normal()
        for n in sizes
    ]

    @tf.function(jit_compile=True)
    def sums(x, d):
        gradient = OuterProduct(tf.cast(x, tf.bfloat16), tf.cast(d, tf.bfloat16))
        clipped = clip_factors([gradient], tf.ones([rows]), 0.1)
        each = [
            [gradient.weighted_sum(tf.one_hot(n, rows) * factors) for n in range(rows)]
            for factors in (tf.ones([rows]), clipped)
        ]
        return gradient.squared_norms(), tf.stack(each)

    with tensor_cores():
        squares, each = sums(*pair)
    alone, clipped = np.linalg.norm(np.float64(each).reshape(2, rows, -1), axis=-1)
    np.testing.assert_allclose(np.sqrt(np.float64(squares)), alone, rtol=1e-6)
    assert np.all(clipped <= 0.1 * SLACK) and np.all(clipped > 0.1 * (1.0 - 5e-4))
    x, d = (np.float64(tf.cast(tf.cast(v, tf.bfloat16), tf.float64)) for v in pair)
    exact = np.linalg.norm(np.einsum("bti,bto->bio", x, d).reshape(rows, -1), axis=-1)
    np.testing.assert_allclose(alone, exact, rtol=2e-2)  # of operands that are cut, or rounded


def test_what_is_bfloat16_is_cut_too_in_case_that_xla_keeps_more_of_it():
    with tensor_cores():
        operand = tf.function(arithmetic.as_operand, autograph=False)
        traced = operand.get_concrete_function(tf.TensorSpec([4], tf.bfloat16))
    cuts = [op for op in traced.graph.get_operations() if op.type == "BitwiseAnd"]
    assert [tf.get_static_value(cut.inputs[1]) for cut in cuts] == [-(2**16)]


@pytest.mark.parametrize("channels", [(2, 3), (40, 40)])  # formed, and by Gram matrices
def test_a_kernel_of_bfloat16_is_clipped_by_what_is_summed(channels):
    geometry = Geometry((3,), (1,), (1,), "valid", 1, (3, *channels))
    generator = np.random.default_rng(8)
    x, d = (
        tf.cast(generator.normal(size=(6, length, width)), tf.bfloat16)
        for length, width in zip((8, 6), channels, strict=True)
    )
    with tensor_cores():
        gradient = KernelGradient(geometry, x, d)
        squares = gradient.squared_norms().numpy()
        sums = [gradient.weighted_sum(tf.one_hot(n, 6)) for n in range(6)]
    assert isinstance(gradient._formed, OuterProduct) == (channels == (40, 40))
    np.testing.assert_allclose(
        np.sqrt(squares), [np.linalg.norm(np.float64(total)) for total in sums], rtol=1e-6
    )


def nearest(values, _):
    return tf.cast(values, tf.bfloat16)


@pytest.mark.parametrize("rounded", [arithmetic._cut, nearest])
def test_two_halves_of_a_number_lose_less_than_2_to_the_minus_14(rounded):
    bits = np.random.default_rng(7).integers(0, 2**23, 10_000, np.int32) | (127 << 23)
    bits[:2] = (127 << 23) + 2**23 - 1, 127 << 23
    numbers = bits.view(np.float32)
    leading, rest = np.split(arithmetic.halves(tf.constant(numbers)).numpy(), 2)
    np.testing.assert_array_equal(leading + rest, numbers)
    parts = [np.float64(rounded(tf.constant(half), -(2**16))) for half in (leading, rest)]
    np.testing.assert_array_equal(parts[0], leading)
    assert np.max(np.abs(sum(parts) / numbers - 1.0)) < 2.0**-14


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_stays_so_when_it_is_cut(value):
    with tensor_cores():
        assert not np.isfinite(arithmetic.as_operand(tf.constant([value]))).any()


def test_on_a_cpu_nothing_is_cut():
    values = tf.constant(np.random.default_rng(0).normal(size=100).astype(np.float32))
    np.testing.assert_array_equal(arithmetic.as_operand(values), values)
    assert arithmetic.arithmetic() == arithmetic.FLOAT32


def test_reweight_is_refused_where_kernels_need_not_repeat_what_they_computed():
    with tensor_cores(), pytest.raises(ValueError, match="bit for bit.*gradient_method='auto'"):
        harness = Harness(CONFIGURATIONS["dense dpsgd per layer reweight"])
        record = ("normal", "normal", 1.0, False)
        batch = make_batch(harness.kind, [record] * RECORDS, 5, harness.x_shape, harness.y_shape,
                           harness.directions)  # fmt: skip
        harness.release(batch, np.ones(RECORDS))

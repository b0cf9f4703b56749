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

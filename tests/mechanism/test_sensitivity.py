"""Sensitivity: whatever a record holds, it moves the sum by at most the clip.

Everything is recomputed in float64 from the numbers that the lazy gradients hold.
"""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tf_lowrank_dp.mechanism.clipping import clip_factors
from tf_lowrank_dp.mechanism.gaussian import GaussianMechanism
from tf_lowrank_dp.per_example.outer_product import OuterProduct

SLACK = 1.0 + 1e-5
KINDS = (
    "materialized", "outer_product", "centred_outer_product", "formed_outer_product", "lookup",
)  # fmt: skip
FILLS = (
    "normal", "zero", "huge", "overflowing", "tiny", "denormal", "aligned",
    "one coordinate", "mixed scales", "nan", "infinity", "cancelling",
)  # fmt: skip
fills = st.lists(st.sampled_from(FILLS), min_size=1, max_size=5)
seeds = st.integers(0, 2**32 - 1)
clips = st.sampled_from([1e-3, 0.1, 1.0, 37.5, 1e4])
relaxed = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def contributions(records, factors):
    """Float64 norms of what each record adds; a factor of 0 adds nothing even to NaN."""
    squares = sum((added(record, factors) ** 2).sum(1) for record in records)
    return np.sqrt(squares)


def added(record, factors):
    """What each record of a variable adds, float64 `(b, parameters)`."""
    factors = factors.numpy().astype(np.float64)[:, None]
    with np.errstate(invalid="ignore"):
        return np.where(factors == 0.0, 0.0, record.exact().reshape(len(factors), -1) * factors)


@pytest.mark.parametrize("kind", KINDS)
@relaxed
@given(fills=fills, seed=seeds, clip=clips)
def test_one_record_contributes_at_most_the_clip(make_records, kind, fills, seed, clip):
    records = make_records(kind, fills, seed)
    factors = clip_factors([records.lazy()], tf.ones([len(fills)]), clip)
    assert np.all(contributions([records], factors) <= clip * SLACK)


@relaxed
@given(
    fills=st.lists(st.tuples(*[st.sampled_from(FILLS)] * len(KINDS)), min_size=1, max_size=4),
    seed=seeds,
    clip=clips,
)
def test_one_record_contributes_at_most_the_clip_over_all_variables(
    make_records, fills, seed, clip
):
    columns = zip(KINDS, zip(*fills, strict=True), strict=True)
    records = [make_records(kind, list(column), seed) for kind, column in columns]
    factors = clip_factors([r.lazy() for r in records], tf.ones([len(fills)]), clip)
    assert np.all(contributions(records, factors) <= clip * SLACK)


@relaxed
@given(
    fills=st.lists(st.tuples(*[st.sampled_from(FILLS)] * len(KINDS)), min_size=1, max_size=4),
    seed=seeds,
    clip=clips,
)
def test_blocks_together_contribute_at_most_the_clip(make_records, fills, seed, clip):
    columns = zip(KINDS, zip(*fills, strict=True), strict=True)
    records = [make_records(kind, list(column), seed) for kind, column in columns]
    mechanism = GaussianMechanism(clip, 0.0, num_blocks=len(KINDS))
    norms = [
        contributions(
            [r], clip_factors([r.lazy()], tf.ones([len(fills)]), mechanism.block_clips[0])
        )
        for r in records
    ]
    assert np.all(np.sqrt(sum(norm**2 for norm in norms)) <= clip * SLACK)


@relaxed
@given(fills=fills, seed=seeds, clip=clips)
def test_adding_or_removing_a_record_moves_the_sum_by_at_most_the_clip(
    make_records, fills, seed, clip
):
    """The factors of a data set and of its neighbour, each summed in float64."""
    records = [make_records(kind, fills, seed) for kind in KINDS]
    block = [r.lazy() for r in records]
    everyone = clip_factors(block, tf.ones([len(fills)]), clip)
    absent = tf.one_hot(seed % len(fills), len(fills), 0.0, 1.0)
    neighbour = clip_factors(block, absent, clip)
    squares = 0.0
    for record in records:
        difference = added(record, everyone).sum(0) - added(record, neighbour).sum(0)
        squares += (difference**2).sum()
    # Rounding of this test's own float64 sums, relative to what they add up.
    rounding = 1e-15 * len(fills) ** 2 * clip * 10
    assert np.sqrt(squares) <= clip * SLACK + rounding


@pytest.mark.parametrize("scale", (1.0, 1e3, 1e6, 1e9))
def test_positions_that_cancel_in_float32_are_still_clipped(scale):
    """Equal inputs, gradients opposite up to a hair: the norm as computed may be 0."""
    generator = np.random.default_rng(11)
    x = np.repeat(generator.normal(size=(20, 1, 6)), 2, axis=1).astype(np.float32)
    d = generator.normal(size=(20, 2, 4)).astype(np.float32) * np.float32(scale)
    d[:, 1] = -d[:, 0] * (1 + np.float32(1e-6))
    factors = clip_factors([OuterProduct(x, d)], tf.ones([20]), 1e-2)
    exact = np.einsum("bti,bto->bio", x.astype(np.float64), d.astype(np.float64))
    norms = np.linalg.norm(exact.reshape(20, -1), axis=1)
    assert np.all(norms > 0) and np.all(factors.numpy() * norms <= 1e-2 * SLACK)


def test_duplicated_records_contribute_the_clip_each():
    x = np.ones((3, 2, 6), np.float32)
    d = np.ones((3, 2, 4), np.float32)
    factors = clip_factors([OuterProduct(x, d)], tf.ones([3]), 1.0)
    exact = np.linalg.norm(np.einsum("bti,bto->bio", x, d).reshape(3, -1), axis=1)
    np.testing.assert_allclose(factors.numpy() * exact, 1.0, rtol=1e-3)


@pytest.mark.parametrize("features", (4, 784))
def test_a_product_of_tiny_inputs_and_huge_gradients_is_clipped(features):
    """The squares of the inputs underflow float32; the gradient is an ordinary number."""
    x = np.full((1, 1, features), 9e-20, np.float32)
    d = np.full((1, 1, 1), 1.2e19, np.float32)
    factor = clip_factors([OuterProduct(x, d)], tf.ones([1]), 1.0).numpy()[0]
    norm = np.sqrt(features) * np.float64(x[0, 0, 0]) * np.float64(d[0, 0, 0])
    assert norm > 1.0 and factor * norm <= SLACK

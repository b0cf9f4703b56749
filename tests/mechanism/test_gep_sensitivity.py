"""Sensitivity of GEP's blocks: whatever a record holds and however near the subspace it is.

What a record adds to each block is taken from the sums that the mechanism forms, one record at
a time, so rounding in these sums counts as well; norms are taken in float64.
"""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tf_lowrank_dp.mechanism.clipping import clip_factors
from tf_lowrank_dp.per_example.materialized import Materialized
from tf_lowrank_dp.per_example.outer_product import OuterProduct
from tf_lowrank_dp.release.coefficient_basis import CoefficientBasis
from tf_lowrank_dp.release.held_basis import HeldBasis
from tf_lowrank_dp.release.long_vectors import LEAST_RATIO

SLACK = 1.0 + 1e-5
INPUTS, OUTPUTS, ANCHORS = 12, 7, 5
KINDS = {"held": HeldBasis, "coefficients": CoefficientBasis}
RATIOS = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
seeds = st.integers(0, 2**32 - 1)
clips = st.sampled_from([1e-3, 0.3, 1.0, 1e4])
scales = st.sampled_from([1.0, 1e-3, 1e3, 1e7])
relaxed = settings(max_examples=40, deadline=None, derandomize=True)


def anchor_factors(generator, duplicated):
    x = generator.normal(size=(ANCHORS, INPUTS))
    d = generator.normal(size=(ANCHORS, OUTPUTS))
    if duplicated:
        x[1], d[1], d[2] = x[0], d[0], 0.0
    return x.astype(np.float32), d.astype(np.float32)


FILLS = {
    # A record whose inputs are an anchor's and whose output gradients are almost proportional.
    **{
        f"residual of {ratio:g}": lambda g, x, d, ratio=ratio: (
            x[0],
            d[0] * (1.0 + ratio * g.normal(size=OUTPUTS)),
        )
        for ratio in RATIOS
    },
    "inside": lambda g, x, d: (x[0], d[0]),
    "orthogonal": lambda g, x, d: (orthogonal(g, x), d[0]),
    "normal": lambda g, x, d: (g.normal(size=INPUTS), g.normal(size=OUTPUTS)),
    "zero": lambda g, x, d: (x[0] * 0.0, d[0]),
    "huge": lambda g, x, d: (x[0] * 1e9, d[0] * 1e8),
    "overflowing": lambda g, x, d: (x[0] * 1e20, d[0] * 1e20),
    "tiny": lambda g, x, d: (x[0] * 1e-12, d[0] * 1e-12),
    "denormal": lambda g, x, d: (x[0] * 1e-30, d[0] * 1e-10),
    "mixed scales": lambda g, x, d: (
        g.normal(size=INPUTS) * 10.0 ** g.integers(-6, 6, INPUTS),
        g.normal(size=OUTPUTS) * 10.0 ** g.integers(-6, 6, OUTPUTS),
    ),
    "nan": lambda g, x, d: (x[0], d[0] * np.nan),
    "infinity": lambda g, x, d: (x[0], d[0] + np.inf),
}
fills = st.lists(st.sampled_from(sorted(FILLS)), min_size=1, max_size=5)


def orthogonal(generator, x):
    """A vector that is orthogonal to all inputs of anchors."""
    vector = generator.normal(size=x.shape[1])
    return vector - np.linalg.pinv(np.float64(x)) @ (np.float64(x) @ vector)


def make(kind, names, seed, scale=1.0, duplicated=False, num_bases=ANCHORS):
    """The blocks of some records, and the number of records."""
    generator = np.random.default_rng(seed)
    x, d = anchor_factors(generator, duplicated)
    with np.errstate(all="ignore"):
        pairs = [FILLS[name](generator, np.float64(x), np.float64(d)) for name in names]
        records_x = np.stack([pair[0] for pair in pairs]).astype(np.float32)
        records_d = np.stack([pair[1] * scale for pair in pairs]).astype(np.float32)
    anchors = [(tf.constant(x), tf.constant(d)), (tf.constant(d),)]
    normal = lambda shapes: [  # noqa: E731
        tf.constant(generator.normal(size=shape), tf.float32) for shape in shapes
    ]
    basis = KINDS[kind].find(anchors, num_bases, normal, 1)
    kernel = OuterProduct(tf.constant(records_x[:, None]), tf.constant(records_d[:, None]))
    assert kernel.factors() is not None
    return basis.project([kernel, Materialized(tf.constant(records_d))])


def contributions(piece, factors):
    """Float64 norms of what each record adds to the sum of a block."""
    one_by_one = np.diag(factors)
    sums = [np.float64(piece.weighted_sum(tf.constant(row))) for row in one_by_one]
    return np.array([np.linalg.norm(total) for total in sums])


def check(pieces, clip, size):
    for piece in pieces:
        factors = clip_factors([piece], tf.ones([size]), clip).numpy()
        assert np.all(np.isfinite(factors))
        assert np.all(contributions(piece, factors) <= clip * SLACK)


@pytest.mark.parametrize("kind", KINDS)
@relaxed
@given(names=fills, seed=seeds, clip=clips, scale=scales, duplicated=st.booleans())
def test_one_record_adds_at_most_the_clip_to_each_block(kind, names, seed, clip, scale, duplicated):
    check(make(kind, names, seed, scale, duplicated), clip, len(names))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ratio", RATIOS)
@pytest.mark.parametrize("scale", [1.0, 1e7])
def test_records_nearly_inside_the_subspace_never_release_more_than_the_clip(kind, ratio, scale):
    for seed in range(20):
        pieces = make(kind, [f"residual of {ratio:g}"], seed, scale)
        for clip in (1.0, 1e-2, 1e-6):
            check(pieces, clip, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_the_residual_is_that_of_the_gradient_and_vanishes_inside(kind):
    _, residual = make(kind, ["inside", "orthogonal", "normal"], 3)
    norms = np.linalg.norm(np.float64(residual.materialize()), axis=1)
    gradient = residual_scale(3)
    assert norms[0] <= 1e-5 * gradient and norms[1] > 0.1 and norms[2] > 0.1


def residual_scale(seed):
    x, d = anchor_factors(np.random.default_rng(seed), False)
    return np.linalg.norm(d[0]) * np.sqrt(1.0 + np.sum(x[0] ** 2))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ratio", RATIOS)
def test_a_residual_counts_as_what_it_is_and_the_least_ratio_of_its_gradient(kind, ratio):
    embedding, residual = make(kind, [f"residual of {ratio:g}"] * 4, 5)
    norms = np.linalg.norm(np.float64(residual.materialize()), axis=1)
    bounds = np.sqrt(np.float64(residual.squared_norm_bounds()))
    embeddings = np.linalg.norm(np.float64(embedding.materialize()), axis=1)
    expected = np.hypot(norms, LEAST_RATIO * np.hypot(norms, embeddings))
    assert np.all(bounds >= expected * (1.0 - 1e-5)) and np.all(bounds <= 1.001 * expected)


@pytest.mark.parametrize("kind", KINDS)
def test_an_absent_or_broken_record_adds_nothing_and_disturbs_no_other(kind):
    pieces = make(kind, ["normal", "nan", "infinity", "overflowing"], 7)
    for piece in pieces:
        factors = clip_factors([piece], tf.ones([4]), 0.5).numpy()
        np.testing.assert_array_equal(factors[1:], 0.0)
        alone = piece.weighted_sum(tf.constant([factors[0], 0.0, 0.0, 0.0]))
        np.testing.assert_array_equal(piece.weighted_sum(tf.constant(factors)), alone)
        assert np.all(np.isfinite(alone))


@pytest.mark.parametrize("kind", KINDS)
@relaxed
@given(names=fills, seed=seeds, clip=clips)
def test_a_record_does_not_change_the_factors_of_others(kind, names, seed, clip):
    everyone = make(kind, ["normal", *names], seed)
    alone = make(kind, ["normal"], seed)
    for piece, single in zip(everyone, alone, strict=True):
        with_others = clip_factors([piece], tf.ones([len(names) + 1]), clip)[0]
        np.testing.assert_allclose(
            with_others, clip_factors([single], tf.ones([1]), clip)[0], rtol=1e-4
        )

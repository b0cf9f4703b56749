"""Clip factors against numpy in float64, and what a hostile record may cost the others."""

import math

import numpy as np
import pytest
import tensorflow as tf

from tests.mechanism.conftest import FINITE_FILLS
from tf_lowrank_dp.mechanism.clipping import clip_factors, unguarded_norms
from tf_lowrank_dp.mechanism.gaussian import GaussianMechanism

KINDS = ("materialized", "outer_product", "lookup")
ORDINARY = ["normal"] * 7
HOSTILE = ("nan", "infinity", "overflowing")


def ones(size):
    return tf.ones([size])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("quantile", (0.0, 0.5, 1.0))
def test_factors_are_the_smaller_of_1_and_clip_over_norm(make_records, joint_norms, kind, quantile):
    records = make_records(kind, ORDINARY, seed=1)
    norms = joint_norms([records])
    clip = float(np.quantile(norms, quantile)) * 1.01
    factors = clip_factors([records.lazy()], ones(7), clip)
    # The norm used is an upper bound, so a factor may be a little smaller and never larger.
    expected = np.minimum(1.0, clip / norms)
    assert np.all(factors.numpy() <= expected * (1 + 1e-6))
    np.testing.assert_allclose(factors, expected, rtol=1e-3)


@pytest.mark.parametrize("kind", ["materialized", "outer_product", "formed_outer_product"])
@pytest.mark.parametrize("stability", [1e-6, 0.01, 3.0])
def test_automatic_factors_keep_any_record_within_the_clip(
    make_records, joint_norms, kind, stability
):
    """Clip over the norm plus a constant, of ordinary records; never above the clip, of any."""
    for fill in FINITE_FILLS:
        records = make_records(kind, [fill] * 5, seed=4)
        norms = joint_norms([records])
        factors = clip_factors([records.lazy()], ones(5), 0.7, stability).numpy()
        assert np.all(factors * norms <= 0.7 * (1 + 1e-6)), fill
        if fill == "normal":
            np.testing.assert_allclose(factors, 0.7 / (norms + stability), rtol=1e-3)


def test_the_norm_is_joint_over_all_variables_of_a_block(make_records, joint_norms):
    records = [make_records(kind, ORDINARY, seed=n) for n, kind in enumerate(KINDS)]
    block = [record.lazy() for record in records]
    norms = joint_norms(records)
    np.testing.assert_allclose(unguarded_norms(block), norms, rtol=1e-5)
    clip = float(np.median(norms))
    expected = np.minimum(1.0, clip / norms)
    np.testing.assert_allclose(clip_factors(block, ones(7), clip), expected, rtol=1e-3)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("hostile", HOSTILE)
def test_a_hostile_record_gets_factor_0_and_costs_only_itself(make_records, kind, hostile):
    mechanism = GaussianMechanism(1.0, 0.0)
    with_hostile = make_records(kind, [*ORDINARY, hostile], seed=2)
    without = make_records(kind, ORDINARY, seed=2)
    for attribute in ("values", "d", "x", "ids"):
        if hasattr(without, attribute):
            setattr(without, attribute, getattr(with_hostile, attribute)[:-1])
    factors = clip_factors([with_hostile.lazy()], ones(8), 1.0)
    assert factors[-1] == 0.0
    np.testing.assert_array_equal(factors[:-1], clip_factors([without.lazy()], ones(7), 1.0))
    [[left]] = mechanism.clipped_sums([[with_hostile.lazy()]], ones(8))
    [[right]] = mechanism.clipped_sums([[without.lazy()]], ones(7))
    np.testing.assert_allclose(left, right, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("hostile", HOSTILE)
def test_a_hostile_part_silences_the_record_in_every_variable_of_the_block(make_records, hostile):
    kernel = make_records("outer_product", ["normal", hostile], seed=3)
    bias = make_records("materialized", ["normal", "normal"], seed=4)
    mechanism = GaussianMechanism(1e9, 0.0)
    [[kernel_sum, bias_sum]] = mechanism.clipped_sums([[kernel.lazy(), bias.lazy()]], ones(2))
    np.testing.assert_allclose(kernel_sum, kernel.exact()[0], rtol=1e-5)
    np.testing.assert_allclose(bias_sum, bias.exact()[0], rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("content", ("normal", "nan", "infinity", "overflowing"))
@pytest.mark.parametrize("clip", (1.0, math.inf))
def test_absent_rows_contribute_nothing_whatever_they_hold(make_records, kind, content, clip):
    records = make_records(kind, ["normal", content], seed=5)
    presence = tf.constant([1.0, 0.0])
    assert clip_factors([records.lazy()], presence, clip)[1] == 0.0
    [[total]] = GaussianMechanism(clip, 0.0).clipped_sums([[records.lazy()]], presence)
    norm = np.linalg.norm(records.exact()[0])
    np.testing.assert_allclose(total, records.exact()[0] * min(1.0, clip / norm), rtol=1e-3)


def test_a_zero_gradient_is_kept_whole(make_records):
    records = make_records("outer_product", ["zero"], seed=6)
    np.testing.assert_array_equal(clip_factors([records.lazy()], ones(1), 1.0), [1.0])


def test_an_infinite_clip_leaves_every_present_record_as_it_is(make_records):
    records = make_records("materialized", ["normal", "huge", "aligned"], seed=7)
    factors = clip_factors([records.lazy()], tf.constant([1.0, 1.0, 0.0]), math.inf)
    np.testing.assert_array_equal(factors, [1.0, 1.0, 0.0])


def test_no_record_changes_another_records_factor(make_records):
    records = make_records("outer_product", ["normal"] * 4, seed=8)
    together = clip_factors([records.lazy()], ones(4), 1.0)
    records.d[1:] *= 100.0
    np.testing.assert_array_equal(clip_factors([records.lazy()], ones(4), 1.0)[0], together[0])


def test_an_empty_batch_gives_zero_sums(make_records):
    for kind in KINDS:
        records = make_records(kind, [], seed=9)
        [[total]] = GaussianMechanism(1.0, 0.0).clipped_sums([[records.lazy()]], ones(0))
        np.testing.assert_array_equal(total, np.zeros(total.shape))

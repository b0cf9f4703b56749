"""Equations 5 and 6 of the RGP paper against NumPy, and what they obey."""

import numpy as np
import pytest
import tensorflow as tf

from tf_lowrank_dp import diagnostics
from tf_lowrank_dp.per_example.materialized import Materialized
from tf_lowrank_dp.per_example.parameter import MatrixView, Parameter
from tf_lowrank_dp.release.low_rank import Carriers, LowRankSpace

SHAPES = [(9, 6), (6, 9)]


def random(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def equation(gradient, u, v):
    """`|(I - U U^T) G (I - V V^T)| / |G|` as it is printed."""
    g = np.asarray(gradient, np.float64)
    middle = (np.eye(len(g)) - u @ u.T) @ g @ (np.eye(g.shape[1]) - v @ v.T)
    return np.linalg.norm(middle) / np.linalg.norm(g)


def svd(matrix, rank):
    u, _, vt = np.linalg.svd(np.asarray(matrix, np.float64), full_matrices=False)
    return u[:, :rank], vt[:rank].T


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("rank", [1, 2, 5])
def test_the_equations(shape, rank):
    gradient, history = random(*shape), random(*shape, seed=1)
    u, v = svd(history, rank)
    assert diagnostics.projection_residual(gradient, u, v.T) == pytest.approx(
        equation(gradient, u, v), rel=1e-6
    )
    assert diagnostics.historical_projection_residual(gradient, history, rank) == pytest.approx(
        equation(gradient, u, v), rel=1e-6
    )
    assert diagnostics.self_projection_residual(gradient, rank) == pytest.approx(
        equation(gradient, *svd(gradient, rank)), rel=1e-6
    )


@pytest.mark.parametrize("shape", SHAPES)
def test_nothing_is_lost_of_a_gradient_in_the_subspace(shape):
    left, right = np.linalg.qr(random(shape[0], 3))[0], np.linalg.qr(random(shape[1], 3))[0].T
    for inside in (left @ random(3, shape[1]), random(shape[0], 3) @ right):
        assert diagnostics.projection_residual(inside, left, right) < 1e-6
    product = random(shape[0], 2) @ random(2, shape[1], seed=1)
    assert diagnostics.self_projection_residual(product, 2) < 1e-6
    assert diagnostics.historical_projection_residual(product, -3.0 * product, 2) < 1e-6


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_bounds(rank):
    """Between what the best bases lose, `sqrt(sum_{i > 2r})`, and all; less with a larger rank."""
    gradient, history = random(9, 6), random(9, 6, seed=1)
    values = np.linalg.svd(gradient, compute_uv=False)
    least = np.linalg.norm(values[2 * rank :]) / np.linalg.norm(values)
    found = diagnostics.historical_projection_residual(gradient, history, rank)
    assert least <= found <= 1
    assert diagnostics.historical_projection_residual(gradient, history, rank + 1) <= found
    u, _, vt = np.linalg.svd(gradient.astype("float64"))
    best = diagnostics.projection_residual(gradient, u[:, :rank], vt[rank : 2 * rank])
    assert best == pytest.approx(least, abs=1e-6)
    assert best < diagnostics.self_projection_residual(gradient, rank)


def test_it_is_what_the_release_space_loses():
    """The lift of the exact projections is `G` minus what the equations measure."""
    gradient, history = random(9, 6), random(9, 6, seed=1)
    parameter = Parameter(tf.Variable(history), "kernel", MatrixView.of((9, 6)), False)
    space = LowRankSpace(
        [parameter], [[0]], ranks={0: 2}, source=None, normal=lambda s: [random(*t) for t in s]
    )
    left, right = diagnostics.leading_subspace(history, 2)
    carriers = {0: Carriers(tf.constant(left, tf.float32), tf.constant(right, tf.float32))}
    [block] = space.project([Materialized(gradient[None])], carriers)
    [lifted] = space.lift([[piece.weighted_sum(tf.ones([1])) for piece in block]], carriers)
    lost = np.linalg.norm(gradient - lifted) / np.linalg.norm(gradient)
    assert lost == pytest.approx(
        diagnostics.historical_projection_residual(gradient, history, 2), rel=1e-4
    )


def test_a_history_has_no_more_directions_than_its_rank():
    history = random(9, 2) @ random(2, 6, seed=1)
    left, right = diagnostics.leading_subspace(history, 5)
    assert left.shape == (9, 2) and right.shape == (2, 6)
    assert diagnostics.historical_projection_residual(random(9, 6), np.zeros((9, 6)), 3) == 1.0


def test_what_has_no_residual_is_nan():
    zero, bad, good = np.zeros((4, 3)), np.full((4, 3), np.nan), random(4, 3)
    for gradient in (zero, bad):
        assert np.isnan(diagnostics.self_projection_residual(gradient, 1))
        assert np.isnan(diagnostics.historical_projection_residual(gradient, good, 1))
    assert np.isnan(diagnostics.historical_projection_residual(good, bad, 1))


@pytest.mark.parametrize(
    "left, right, message",
    [
        (np.eye(3, 1), np.eye(1, 3), r"`left` of shape \(4, k\).*Received: \(3, 1\)"),
        (np.eye(4, 1), np.eye(3, 1), r"`right` of shape \(k, 3\).*Received: \(3, 1\)"),
        (2 * np.eye(4, 1), np.eye(1, 3), "`left` to be orthonormal"),
        (np.eye(4, 1), np.ones((1, 3)), "`right` to be orthonormal"),
    ],
)
def test_wrong_bases_are_refused(left, right, message):
    with pytest.raises(ValueError, match=message):
        diagnostics.projection_residual(random(4, 3), left, right)


@pytest.mark.parametrize("rank", [0, -1, 1.5])
def test_wrong_ranks_are_refused(rank):
    with pytest.raises(ValueError, match="Expected `rank`"):
        diagnostics.self_projection_residual(random(4, 3), rank)
    with pytest.raises(ValueError, match="Expected `rank`"):
        diagnostics.historical_projection_residual(random(4, 3), random(4, 3), rank)


def test_histories_that_are_not_finite_have_no_subspace():
    with pytest.raises(ValueError, match="Expected a finite matrix"):
        diagnostics.leading_subspace([[np.inf, 1.0]], 1)

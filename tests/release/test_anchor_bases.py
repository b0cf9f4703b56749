"""Bases of anchor directions against numpy's QR, and for anchors of any rank and size."""

import numpy as np
import pytest
import tensorflow as tf

from tests.release.gep_models import power_method
from tf_lowrank_dp.release.bases import leading_coefficients, leading_rows, orthonormal_rows


def matrix_with_spectrum(m, p, decades, seed=0):
    """Singular values from 1 down to `10^-decades`."""
    generator = np.random.default_rng(seed)
    rank = min(m, p)
    left = np.linalg.qr(generator.normal(size=(m, rank)))[0]
    right = np.linalg.qr(generator.normal(size=(p, rank)))[0]
    values = 10.0 ** -np.linspace(0.0, decades, rank)
    return (left * values @ right.T).astype(np.float32)


def projector(rows):
    return rows.T @ rows


@pytest.mark.parametrize("iterations", [1, 2])
@pytest.mark.parametrize(
    ("m", "p", "k", "decades"), [(30, 200, 10, 0), (60, 500, 30, 3), (30, 20, 15, 1)]
)
def test_rows_span_what_the_power_method_with_qr_spans(m, p, k, decades, iterations):
    matrix = matrix_with_spectrum(m, p, decades)
    start = np.random.default_rng(1).normal(size=(k, p)).astype(np.float32)
    rows = np.float64(leading_rows([tf.constant(matrix)], [tf.constant(start)], iterations)[0])
    expected = power_method(np.float64(matrix), start, iterations)
    np.testing.assert_allclose(rows @ rows.T, np.eye(k), atol=1e-5)
    assert np.linalg.norm(projector(rows) - projector(expected), 2) <= 1e-4


@pytest.mark.parametrize("iterations", [1, 2])
@pytest.mark.parametrize(("m", "p", "k", "decades"), [(30, 200, 10, 0), (60, 500, 30, 2)])
def test_coefficients_span_what_the_power_method_with_qr_spans(m, p, k, decades, iterations):
    matrix = np.float64(matrix_with_spectrum(m, p, decades))
    start = np.random.default_rng(1).normal(size=(k, m))
    gram = tf.constant(matrix @ matrix.T)
    coefficients = leading_coefficients(gram, tf.constant(start), iterations).values.numpy()
    rows, expected = coefficients @ matrix, power_method(matrix, start @ matrix, iterations)
    np.testing.assert_allclose(rows @ rows.T, np.eye(k), atol=1e-7)
    assert np.linalg.norm(projector(rows) - projector(expected), 2) <= 1e-4


ANCHORS = {
    "zero": (lambda g: np.zeros((6, 9)), 0),
    "duplicates": (lambda g: np.repeat(g.normal(size=(2, 9)), 3, axis=0), 2),
    "one is zero": (lambda g: g.normal(size=(6, 9)) * (np.arange(6) != 2)[:, None], 4),
    "tiny": (lambda g: g.normal(size=(6, 9)) * 1e-30, 4),
    "huge": (lambda g: g.normal(size=(6, 9)) * 1e37, 4),
    "different scales": (
        lambda g: g.normal(size=(6, 9)) * 10.0 ** np.arange(0, -24, -4)[:, None],
        2,
    ),
}


@pytest.mark.parametrize("name", ANCHORS)
def test_anchors_of_any_rank_give_orthonormal_rows_and_zeros_for_what_is_missing(name):
    make, rank = ANCHORS[name]
    generator = np.random.default_rng(3)
    matrix = make(generator).astype(np.float32)
    start = tf.constant(generator.normal(size=(4, 9)), tf.float32)
    rows = np.float64(leading_rows([tf.constant(matrix)], [start], 1)[0])
    gram = np.float64(matrix) @ np.float64(matrix).T
    coefficients = leading_coefficients(
        tf.constant(gram), tf.constant(generator.normal(size=(4, 6))), 1
    )
    for basis in (rows, coefficients.values.numpy() @ np.float64(matrix)):
        lengths = np.diag(basis @ basis.T)
        np.testing.assert_allclose(basis @ basis.T, np.diag(np.round(lengths)), atol=1e-5)
        found = int(np.sum(np.round(lengths)))
        assert found == rank if name != "different scales" else 1 <= found <= rank


def test_rows_are_ordered_by_what_they_hold():
    matrix = matrix_with_spectrum(20, 50, 2)
    rows = orthonormal_rows(tf.constant(matrix)).numpy()
    energies = np.linalg.norm(matrix @ rows.T, axis=0)
    assert np.all(np.diff(energies) <= 1e-6)

"""Orthonormal bases for any matrix, and the leading subspaces of low-rank ones."""

import numpy as np
import pytest
import tensorflow as tf

from tf_lowrank_dp.release.bases import low_rank_factors, orthonormal_columns

M, K = 12, 4


def _random(g, m=M, k=K):
    return g.normal(size=(m, k))


def _repeated(g):
    return np.repeat(_random(g, k=2), 2, axis=1)


def _scaled(*scales):
    return lambda g: _random(g, k=len(scales)) * np.array(scales)


MATRICES = {
    "random": _random,
    "one column": lambda g: _random(g, k=1),
    "square": lambda g: _random(g, 5, 5),
    "one by one": lambda g: _random(g, 1, 1),
    "rank 1": lambda g: _random(g, k=1) @ _random(g, 1, K),
    "rank 2": lambda g: _random(g, k=2) @ _random(g, 2, K),
    "square of rank 3": lambda g: _random(g, 6, 3) @ _random(g, 3, 6),
    "zero": lambda g: np.zeros((M, K)),
    "square zero": lambda g: np.zeros((5, 5)),
    "zero column": _scaled(1.0, 0.0, 1.0, 1.0),
    "repeated columns": _repeated,
    "opposite columns": lambda g: np.outer(g.normal(size=M), [1.0, -1.0, 1.0, -1.0]),
    "tiny columns": _scaled(1e-20, 1e-20, 1e-20),
    "huge columns": _scaled(1e20, 1e20, 1e20),
    "columns of all scales": _scaled(1e-20, 1.0, 1e20, 1e-7),
    "a huge entry": lambda g: np.where(np.arange(M * K).reshape(M, K) == 5, 1e20, _random(g)),
    "constant": lambda g: np.ones((M, K)),
    "unit vectors": lambda g: np.eye(M)[:, :K],
}


def drawn(name, seed=0, count=3):
    """A batch of matrices and of random completions, float32."""
    generator = np.random.default_rng(seed)
    matrices = np.stack([MATRICES[name](generator) for _ in range(count)]).astype(np.float32)
    return matrices, generator.normal(size=matrices.shape).astype(np.float32)


def directions(columns):
    """Unit float64 vectors along the columns that are not zero."""
    columns = np.asarray(columns, np.float64)
    columns = columns[:, np.any(columns != 0, axis=0)]
    return columns / np.linalg.norm(columns, axis=0)


@pytest.mark.parametrize("name", MATRICES)
def test_columns_are_orthonormal(name):
    basis = np.float64(orthonormal_columns(*map(tf.constant, drawn(name))))
    gram = np.swapaxes(basis, 1, 2) @ basis
    assert np.max(np.abs(gram - np.eye(basis.shape[-1]))) <= 1e-5


@pytest.mark.parametrize("name", MATRICES)
def test_the_span_contains_the_columns(name):
    matrices, completion = drawn(name)
    bases = np.float64(orthonormal_columns(tf.constant(matrices), tf.constant(completion)))
    for matrix, basis in zip(matrices, bases, strict=True):
        unit = directions(matrix)
        residual = unit - basis @ (basis.T @ unit)
        assert np.max(np.linalg.norm(residual, axis=0), initial=0.0) <= 1e-5


def test_a_zero_matrix_is_completed_by_the_span_of_the_completion():
    _, completion = drawn("zero")
    bases = np.float64(orthonormal_columns(tf.zeros_like(completion), completion))
    for basis, given in zip(bases, completion, strict=True):
        unit = directions(given)
        assert np.max(np.abs(unit - basis @ (basis.T @ unit))) <= 1e-5


@pytest.mark.parametrize("shape", [(20, 9), (9, 20), (7, 7)], ids=str)
@pytest.mark.parametrize("rank", [1, 3])
@pytest.mark.parametrize("power_iterations", [1, 2])
@pytest.mark.parametrize("magnitude", [1e-15, 1.0, 1e15])
def test_factors_span_the_singular_subspaces_of_a_matrix_of_exact_rank(
    shape, rank, power_iterations, magnitude
):
    generator = np.random.default_rng(rank)
    m, n = shape
    left = np.linalg.qr(generator.normal(size=(m, rank)))[0]
    right = np.linalg.qr(generator.normal(size=(n, rank)))[0].T
    values = np.array([3.0, 1.0, 0.3])[:rank] * magnitude
    matrix = (left * values @ right).astype(np.float32)
    start, completion = (
        generator.normal(size=(1, side, rank)).astype(np.float32) for side in (n, m)
    )
    found_left, found_right = low_rank_factors(matrix[None], start, completion, power_iterations)
    found_left, found_right = np.float64(found_left[0]), np.float64(found_right[0])
    assert found_left.shape == (m, rank) and found_right.shape == (rank, n)
    # Projectors do not depend on the choice of basis.
    np.testing.assert_allclose(found_left @ found_left.T, left @ left.T, atol=1e-4)
    np.testing.assert_allclose(found_right.T @ found_right, right.T @ right, atol=1e-4)


def numpy_power_iteration(matrix, start, power_iterations):
    """RGP, Algorithm 2, in float64."""
    right = start
    for _ in range(power_iterations):
        left = np.linalg.qr(matrix @ right)[0]
        right = matrix.T @ left
    return left, np.linalg.qr(right)[0].T


@pytest.mark.parametrize("power_iterations", [1, 2, 3])
@pytest.mark.parametrize("shape", [(20, 9), (9, 20), (60, 50)], ids=str)
def test_factors_of_a_full_matrix_are_those_of_algorithm_2(shape, power_iterations):
    generator = np.random.default_rng(power_iterations)
    m, n = shape
    matrix, start, completion = (generator.normal(size=s) for s in (shape, (n, 4), (m, 4)))
    arguments = [tf.constant(array[None], tf.float32) for array in (matrix, start, completion)]
    left, right = (np.float64(a[0]) for a in low_rank_factors(*arguments, power_iterations))
    expected_left, expected_right = numpy_power_iteration(matrix, start, power_iterations)
    np.testing.assert_allclose(left @ left.T, expected_left @ expected_left.T, atol=1e-5)
    np.testing.assert_allclose(right.T @ right, expected_right.T @ expected_right, atol=1e-5)


@pytest.mark.parametrize("shape", [(3072, 768), (4608, 512)], ids=str)
def test_factors_of_large_kernels_are_orthonormal(shape):
    generator = np.random.default_rng(0)
    m, n = shape
    arrays = [generator.normal(size=s).astype("float32") for s in ((1, m, n), (1, n, 8), (1, m, 8))]
    left, right = (np.float64(a[0]) for a in low_rank_factors(*arrays, 1))
    assert np.max(np.abs(left.T @ left - np.eye(8))) <= 1e-5
    assert np.max(np.abs(right @ right.T - np.eye(8))) <= 1e-5


def test_more_power_iterations_come_closer_to_the_leading_subspace():
    generator = np.random.default_rng(3)
    matrix = generator.normal(size=(1, 30, 20)) * 0.9 ** np.arange(20)
    leading = np.linalg.svd(matrix[0])[0][:, :3]
    start, completion = generator.normal(size=(1, 20, 3)), generator.normal(size=(1, 30, 3))
    arguments = [tf.constant(array, tf.float32) for array in (matrix, start, completion)]
    outside = []
    for power_iterations in (1, 3, 40):
        left = np.float64(low_rank_factors(*arguments, power_iterations)[0][0])
        outside.append(np.linalg.norm(leading - left @ left.T @ leading))
    assert outside[0] > 1.5 * outside[1] > 0 and outside[2] < 1e-2


@pytest.mark.parametrize("name", ["zero", "rank 1", "repeated columns", "square zero", "constant"])
def test_factors_of_a_deficient_matrix_are_orthonormal_and_span_it(name):
    matrices, _ = drawn(name, count=2)
    generator = np.random.default_rng(4)
    _, m, n = matrices.shape
    k = min(3, n)
    start, completion = generator.normal(size=(2, n, k)), generator.normal(size=(2, m, k))
    left, right = low_rank_factors(
        matrices, tf.constant(start, tf.float32), tf.constant(completion, tf.float32), 1
    )
    left, right = np.float64(left), np.float64(right)
    np.testing.assert_allclose(np.swapaxes(left, 1, 2) @ left, np.stack([np.eye(k)] * 2), atol=1e-5)
    np.testing.assert_allclose(
        right @ np.swapaxes(right, 1, 2), np.stack([np.eye(k)] * 2), atol=1e-5
    )
    spanned = left @ (np.swapaxes(left, 1, 2) @ matrices)
    np.testing.assert_allclose(spanned, matrices, atol=1e-4)

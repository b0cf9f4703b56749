"""Statistical tests of Poisson sampling, with fixed seeds and bounds of five standard errors."""

import time
from math import comb

import numpy as np
import pytest

from tf_lowrank_dp.sampling import PoissonSampler
from tf_lowrank_dp.sampling.draw import poisson_draw
from tf_lowrank_dp.sampling.randomness import seeded_generator

SETTINGS = [(40, 0.05), (40, 0.5), (25, 1.0), (12_000, 0.001)]  # the last uses Floyd's algorithm


def draws(num_examples, sampling_rate, steps, seed=0):
    generator = seeded_generator(seed, 0)
    return [poisson_draw(generator, num_examples, sampling_rate) for _ in range(steps)]


def inclusion(num_examples, sampling_rate, steps, seed=0):
    """Returns a 0/1 matrix `(steps, num_examples)`."""
    matrix = np.zeros((steps, num_examples))
    for row, indices in zip(matrix, draws(num_examples, sampling_rate, steps, seed), strict=True):
        row[indices] = 1.0
    return matrix


@pytest.mark.parametrize(("n", "q"), SETTINGS)
def test_no_index_occurs_twice(n, q):
    for indices in draws(n, q, 500):
        assert np.all(np.diff(indices) > 0)
        assert np.all((indices >= 0) & (indices < n))


@pytest.mark.parametrize(("n", "q"), SETTINGS)
def test_every_example_is_included_with_the_sampling_rate(n, q):
    steps = 4000
    counts = inclusion(n, q, steps).sum(axis=0)
    deviation = np.abs(counts - steps * q)
    bound = 5 * np.sqrt(steps * q * (1 - q)) + (5 if q < 0.01 else 0)  # skewed where q is small
    assert deviation.max() <= bound
    if q < 1.0:
        variance = steps * q * (1 - q)
        chi_square = np.sum((counts - steps * q) ** 2) / variance
        assert abs(chi_square - n) <= 5 * np.sqrt(2 * n + n / variance)


@pytest.mark.parametrize(("n", "q"), SETTINGS)
def test_sizes_have_the_binomial_mean_and_variance(n, q):
    steps = 4000
    sizes = np.array([len(indices) for indices in draws(n, q, steps, seed=1)])
    variance = n * q * (1 - q)
    assert abs(sizes.mean() - n * q) <= 5 * np.sqrt(variance / steps)
    assert abs(sizes.var() - variance) <= 5 * variance * np.sqrt((2 + 1 / n) / steps) + 0.02 * n * q


def test_sizes_have_the_binomial_distribution():
    n, q, steps = 6, 0.4, 20_000
    sizes = np.bincount([len(i) for i in draws(n, q, steps, seed=2)], minlength=n + 1)
    expected = steps * np.array([comb(n, k) * q**k * (1 - q) ** (n - k) for k in range(n + 1)])
    assert np.sum((sizes - expected) ** 2 / expected) < 30.0  # 6 degrees of freedom: p < 4e-5


def test_subsets_have_the_distribution_of_independent_coins():
    n, q, steps = 4, 0.3, 20_000
    codes = inclusion(n, q, steps, seed=3) @ (2 ** np.arange(n))
    observed = np.bincount(codes.astype(int), minlength=2**n)
    ones = np.array([bin(code).count("1") for code in range(2**n)])
    expected = steps * q**ones * (1 - q) ** (n - ones)
    assert np.sum((observed - expected) ** 2 / expected) < 50.0  # 15 degrees of freedom: p < 2e-5


@pytest.mark.parametrize("lag", [0, 1, 2])
def test_inclusions_are_independent_between_examples_and_steps(lag):
    n, q, steps = 30, 0.2, 6000
    matrix = (inclusion(n, q, steps, seed=4) - q) / np.sqrt(q * (1 - q))
    correlation = matrix[: steps - lag].T @ matrix[lag:] / (steps - lag)
    if lag == 0:
        np.fill_diagonal(correlation, 0.0)
    assert np.abs(correlation).max() <= 5 / np.sqrt(steps - lag)
    pairs = n * n - (n if lag == 0 else 0)
    degrees = pairs / 2 if lag == 0 else pairs
    chi_square = (steps - lag) * np.sum(correlation**2) / (2 if lag == 0 else 1)
    assert abs(chi_square - degrees) <= 6 * np.sqrt(2 * degrees)


def test_samplers_draw_at_the_stated_rate():
    sampler = PoissonSampler(np.arange(200), batch_size=20, steps=2000, seed=6)
    sizes = [batch["presence"].sum() for batch in sampler]
    assert abs(np.mean(sizes) - 20) <= 5 * np.sqrt(200 * 0.1 * 0.9 / 2000)


def test_cost_of_a_small_draw_does_not_grow_with_the_number_of_examples():
    def seconds(n):
        generator = seeded_generator(0, 0)
        times = []
        for _ in range(30):
            start = time.perf_counter()
            poisson_draw(generator, n, 100 / n)
            times.append(time.perf_counter() - start)
        return min(times)

    assert seconds(10**9) < 0.005  # a single pass over 10**9 indices takes seconds

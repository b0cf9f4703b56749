"""The warning about public rows that are private ones as well."""

import warnings

import numpy as np
import pytest

from tf_lowrank_dp.training.public_overlap import warn_about_overlap


def rows(n, seed):
    return np.random.default_rng(seed).normal(size=(n, 6, 8)).astype("float32")


def test_rows_that_differ_in_the_last_bit_are_the_same():
    """Embeddings of one sentence do, from one run to the next: two of them passed."""
    private, public = rows(50, 0), rows(9, 1)
    public[[2, 5]] = np.nextafter(private[[7, 30]], np.float32(9.0))
    with pytest.warns(UserWarning, match="Received: private examples"):
        warn_about_overlap(public, private)


def test_other_rows_are_not():
    private, public = rows(50, 0), rows(9, 1)
    public[2] = private[7] + 1e-3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_about_overlap(public, private)

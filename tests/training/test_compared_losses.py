"""What rounding may do to a loss, by which it is told from examples that are mixed."""

import numpy as np
import pytest
import tensorflow as tf

from tf_lowrank_dp.errors import UnsupportedModelError
from tf_lowrank_dp.training.compared_losses import check_equal, rounding

BATCH = {"x": tf.constant([1.0, 2.0])}
ONE = [tf.constant(1.0)]


def test_rounding_is_what_a_millionth_of_the_weights_moves():
    """Of 1e4 w - 1e4 it is about 1e-2, where the loss itself is 0."""
    moved = rounding(lambda batch, values: 1e4 * batch["x"] * values[0] - 1e4, BATCH, ONE, 0)
    assert 1e-3 < moved <= 1e-2 + 1e-3


def test_rounding_that_decides_whether_a_loss_is_a_number_has_no_limit():
    """The square root of 1 - w is one for w = 1, and for nothing larger."""
    moved = rounding(lambda batch, values: tf.sqrt(1.0 - values[0]) * batch["x"], BATCH, ONE, 0)
    assert moved == np.inf


def test_losses_that_differ_by_more_than_rounding_are_refused():
    assert check_equal(tf.constant(1.0), tf.constant(1.1), "it", lambda: 0.05)
    with pytest.raises(UnsupportedModelError, match=r"depends on it \(1 against 1.1\)"):
        check_equal(tf.constant(1.0), tf.constant(1.1), "it", lambda: 0.02)

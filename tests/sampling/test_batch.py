"""Tests of the logical batch record."""

import numpy as np
import pytest
import tensorflow as tf

from tf_lowrank_dp import sampling


def test_a_batch_without_targets_or_weights_has_no_keys_for_them():
    batch = sampling.make_batch(np.zeros((2, 3)), presence=np.ones(2, np.float32))
    assert set(batch) == {sampling.X, sampling.PRESENCE}
    _, y, sample_weight, _ = sampling.unpack_batch(batch)
    assert y is None
    assert sample_weight is None


def test_unpacking_inverts_making():
    parts = (np.zeros((2, 3)), np.ones(2), np.full(2, 0.5))
    presence = np.ones(2, np.float32)
    batch = sampling.make_batch(*parts, presence=presence)
    for received, expected in zip(sampling.unpack_batch(batch), (*parts, presence), strict=True):
        assert received is expected


def test_presence_is_a_channel_of_its_own():
    presence = np.ones(2, np.float32)
    batch = sampling.make_batch(np.zeros(2), np.zeros(2), np.zeros(2), presence=presence)
    assert sampling.unpack_batch(batch)[3] is presence


@pytest.mark.parametrize("element", [(1, 2), {"x": 1}, {"x": 1, "presence": 1, "ids": 2}, None])
def test_other_elements_are_no_batches(element):
    assert not sampling.is_batch(element)
    with pytest.raises(ValueError, match="logical batch"):
        sampling.unpack_batch(element)


def test_num_rows_counts_padding_and_works_with_unknown_sizes():
    batch = {"x": np.zeros((4, 2)), "presence": np.array([1, 1, 0, 0], np.float32)}
    assert sampling.num_rows(batch) == 4

    @tf.function(input_signature=[tf.TensorSpec((None,), tf.float32)])
    def count(presence):
        return sampling.num_rows({"x": presence, "presence": presence})

    assert int(count(tf.zeros([7]))) == 7

"""Threefry-2x32 against known answers, and what the noise rests on: no counter repeats."""

import numpy as np
import pytest
import tensorflow as tf

from tf_lowrank_dp.mechanism.threefry import threefry, words


def bits(key, counter):
    key, counter = (tuple(tf.constant(word, tf.uint32) for word in pair) for pair in (key, counter))
    return [int(word) for word in threefry(key, counter)]


@pytest.mark.parametrize(
    ("key", "counter", "expected"),
    [
        ((0, 0), (0, 0), [0x6B200159, 0x99BA4EFE]),
        ((2**32 - 1,) * 2, (2**32 - 1,) * 2, [0x1CB996FC, 0xBB002BE7]),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), [0xC4923A9C, 0x483DF7A0]),
    ],
)
def test_bits_are_those_that_the_authors_publish(key, counter, expected):
    """Of their library Random123, for 20 rounds."""
    assert bits(key, counter) == expected


@pytest.mark.parametrize("jit_compile", [False, True])
def test_different_counters_give_different_bits(jit_compile):
    number = np.arange(2**16, dtype=np.uint32)
    key, counter = words(tf.constant(2**63 + 5, tf.uint64)), (number, number[::-1] * 7)
    drawn = tf.function(threefry, jit_compile=jit_compile)(key, counter)
    assert len(np.unique(np.stack(drawn), axis=1).T) == 2**16
    ones = [np.unpackbits(word.numpy().view(np.uint8)).mean() for word in drawn]
    np.testing.assert_allclose(ones, 0.5, atol=4 * 0.5 / np.sqrt(2**21))


def test_words_of_a_number_are_all_of_it():
    low, high = words(tf.constant(0x0123456789ABCDEF, tf.uint64))
    assert (int(low), int(high)) == (0x89ABCDEF, 0x01234567)

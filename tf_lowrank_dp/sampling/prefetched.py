"""Batches that are made ahead of the step, without what TensorFlow tunes in the background."""

from __future__ import annotations

import tensorflow as tf

from tf_lowrank_dp.sampling.upstream import note_sampled


def prefetched(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """A sampler's batches, noted as such, and made while steps are taken.

    An iterator whose pipeline is tuned often ends only when the thread that tunes it wakes up, 10,
    20, 40, ... ms apart and up to a minute: a call of `fit`, and each epoch of ordinary training,
    lasts for up to twice as long as its steps.  Of a pipeline of ours there is nothing to tune.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    return note_sampled(dataset.prefetch(tf.data.AUTOTUNE).with_options(options))

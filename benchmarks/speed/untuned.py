"""Ordinary training of arrays without the thread by which TensorFlow tunes pipelines.

That thread wakes up 10, 20, 40, ... ms apart, and an epoch often ends only when it has: its time is
then 10, 30, 70, ... ms, and what lies between is rounded up.  Two models whose steps differ take
the same time, or one of them twice as much.
"""

import contextlib
from collections.abc import Iterator
from unittest import mock

import tensorflow as tf


def untuned(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """The same data set, whose iterator ends when it is told to."""
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)


@contextlib.contextmanager
def untuned_arrays() -> Iterator[None]:
    """Keras 3 makes its data sets of arrays `untuned`."""
    from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter

    made = ArrayDataAdapter.get_tf_dataset
    with mock.patch.object(ArrayDataAdapter, "get_tf_dataset", lambda self: untuned(made(self))):
        yield

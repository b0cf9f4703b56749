"""Draws of arrays in memory: Python draws the indices of several, TensorFlow takes their rows."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tf_lowrank_dp._types import Nested
from tf_lowrank_dp.sampling.batch import PRESENCE
from tf_lowrank_dp.sampling.rows import tensor_dtype

_AT_ONCE = 64  # draws for each call of Python, which takes about half a millisecond


def can_be_gathered(data: Nested) -> bool:
    """Whether TensorFlow may hold all rows: numbers in memory, as those of Keras' own `fit`.

    Example:

    >>> can_be_gathered({"x": np.zeros((3, 2))}), can_be_gathered({"x": np.array(["a", "b"])})
    (True, False)
    """
    return all(_is_in_memory(array) for array in tf.nest.flatten(data))


def gathered(
    data: dict,
    draws: Callable[[], Iterator[np.ndarray]],
    padded_size: Callable[[int], int],
) -> tf.data.Dataset:
    """The logical batches of draws, one after the other.

    Guarantee: each batch has the rows of one draw in its order, and padding behind them.

    Args:
        data: nested arrays `(n, ...)`.
        draws: gives the indices of each.
        padded_size: how many rows the batch of a draw has, from how many were drawn.

    Example:

    >>> draws = [np.array([0, 2]), np.array([], int)]
    >>> dataset = gathered({"x": np.array([5, 6, 7])}, lambda: iter(draws), lambda size: size + 1)
    >>> [(batch["x"].tolist(), batch["presence"].tolist())
    ...  for batch in dataset.as_numpy_iterator()]
    [([5, 7, 0], [1.0, 1.0, 0.0]), ([0], [0.0])]
    """
    with tf.device("CPU:0"):
        rows = tf.nest.map_structure(tf.constant, data)

    signature = (tf.TensorSpec((None,), tf.int64),) * 2

    def several() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        padded = (_padded(indices, padded_size(len(indices))) for indices in draws())
        while found := list(itertools.islice(padded, _AT_ONCE)):
            yield np.concatenate(found), np.cumsum([len(indices) for indices in found])

    def apart(indices: tf.Tensor, ends: tf.Tensor) -> tf.data.Dataset:
        starts = tf.concat([tf.zeros((1,), tf.int64), ends[:-1]], 0)
        places = tf.data.Dataset.from_tensor_slices((starts, ends))
        return places.map(lambda start, end: batch_of(indices[start:end]))

    def batch_of(indices: tf.Tensor) -> dict:
        def taken(tensor: tf.Tensor, array: np.ndarray) -> tf.Tensor:
            found = tf.gather_nd(tensor, indices[:, None], bad_indices_policy="IGNORE")
            return tf.cast(found, tensor_dtype(array.dtype))

        batch = tf.nest.map_structure(taken, rows, data)
        return {**batch, PRESENCE: tf.cast(indices >= 0, tf.float32)}

    return tf.data.Dataset.from_generator(several, output_signature=signature).flat_map(apart)


def _padded(indices: np.ndarray, size: int) -> np.ndarray:
    """Indices of a batch: -1 is none, of which TensorFlow makes zeros."""
    padded = np.full(size, -1)
    padded[: len(indices)] = indices
    return padded


def _is_in_memory(array: Any) -> bool:
    """Whether an array holds numbers that are no file's."""
    known = type(array) is np.ndarray and array.dtype.kind in "biufc"
    while known and array.base is not None and not isinstance(array.base, tf.Tensor):
        array = array.base
        known = type(array) is np.ndarray
    return known

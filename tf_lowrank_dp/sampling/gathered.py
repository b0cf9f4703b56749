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

_NONE = -1  # the index of padding, of which TensorFlow makes zeros
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
    dtypes = tf.nest.map_structure(lambda array: tensor_dtype(array.dtype), data)
    signature = tf.TensorSpec((None, None), tf.int64), tf.TensorSpec((None,), tf.int64)

    def several() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        drawn = draws()
        while found := list(itertools.islice(drawn, _AT_ONCE)):
            sizes = np.array([padded_size(len(indices)) for indices in found])
            padded = np.full((len(found), sizes.max()), _NONE)
            for row, indices in zip(padded, found, strict=True):
                row[: len(indices)] = indices
            yield padded, sizes

    @tf.autograph.experimental.do_not_convert
    def batch_of(drawn: tuple[tf.Tensor, tf.Tensor], rows: dict) -> dict:
        indices, size = drawn
        indices = indices[:size]

        def taken(tensor: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
            found = tf.gather_nd(tensor, indices[:, None], bad_indices_policy="IGNORE")
            return tf.cast(found, dtype)

        batch = tf.nest.map_structure(taken, rows, dtypes)
        return {**batch, PRESENCE: tf.cast(indices != _NONE, tf.float32)}

    # Rows are an element, as in Keras' own `fit`: what a map captures outlives its data set, until
    # Python looks for cycles, and each `fit` would hold its rows once more.
    with tf.device("CPU:0"):
        rows = tf.data.Dataset.from_tensors(tf.nest.map_structure(tf.constant, data)).repeat()
    drawn = tf.data.Dataset.from_generator(several, output_signature=signature).unbatch()
    return tf.data.Dataset.zip((drawn, rows)).map(batch_of)


def _is_in_memory(array: Any) -> bool:
    """Whether an array holds numbers that are no file's."""
    known = type(array) is np.ndarray and array.dtype.kind in "biufc" and 0 not in array.shape
    while known and array.base is not None and not isinstance(array.base, tf.Tensor):
        array = array.base
        known = type(array) is np.ndarray
    return known

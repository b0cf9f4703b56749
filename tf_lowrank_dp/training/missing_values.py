"""Batches in which values are missing, as data say it: by numbers that random ones never are.

What a model does with such values, such as to put in the mean of the others or to cut a batch to
its longest sequence, is seen on no other data.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator

import keras
import numpy as np
import tensorflow as tf

from tf_lowrank_dp._types import Nested

MISSING = (0.0, -1.0, -999.0, math.nan)


def with_missing(first: Nested, other: Nested) -> Iterator[tuple[Nested, Nested]]:
    """Yields pairs of batches: the first with missing values, the other without.

    Every other place is missing, or all examples are short beside full ones, in the inputs or in
    targets and weights; or one of the first features of a table is missing in an example.

    Args:
        first, other: random `{"x", "y", "sample_weight"}`, or other nested tensors `(b, ...)`.
    """
    leaves = keras.tree.flatten_with_path(first)
    tables = [leaf for _, leaf in leaves if leaf.shape.rank == 2 and leaf.dtype.is_floating]
    features = [table.shape[1] for table in tables]
    alone = [functools.partial(_alone, place) for place in range(min(max(features, default=0), 8))]
    patterns: list[Callable] = [_here_and_there, _behind, *alone]
    for value, is_missing, of_loss in itertools.product(MISSING, patterns, (False, True)):
        chosen = [(path[:1] != ("x",)) == of_loss for path, _ in leaves]
        found = [
            _with(leaf, value, is_missing) if is_chosen else leaf
            for (_, leaf), is_chosen in zip(leaves, chosen, strict=True)
        ]
        if any(new is not leaf for new, (_, leaf) in zip(found, leaves, strict=True)):
            yield keras.tree.pack_sequence_as(first, found), other


def _with(leaf: tf.Tensor, value: float, is_missing: Callable) -> tf.Tensor:
    """The leaf with a value in some places of its second axis; as it is where that cannot be."""
    if not leaf.dtype.is_floating and (not leaf.dtype.is_integer or math.isnan(value)):
        return leaf
    if value < leaf.dtype.min:
        return leaf
    rows, places = leaf.shape[0], leaf.shape[1] if leaf.shape.rank > 1 else 1
    mask = is_missing(rows, places)
    if not mask.any():
        return leaf
    mask = mask.reshape([*leaf.shape[:2], *[1] * (leaf.shape.rank - 2)])
    return tf.where(mask, tf.cast(value, leaf.dtype), leaf)


def _here_and_there(rows: int, places: int) -> np.ndarray:
    """Every other place of the first row, and those in between of the last."""
    missing = np.zeros([rows, places], bool)
    missing[0, ::2], missing[-1, 1::2] = True, True
    return missing


def _behind(rows: int, places: int) -> np.ndarray:
    """All but the first places, in all rows."""
    return np.tile(np.arange(places) >= max(places // 4, 1), [rows, 1])


def _alone(place: int, rows: int, places: int) -> np.ndarray:
    """One place of the first row."""
    missing = np.zeros([rows, places], bool)
    missing[0, place : place + 1] = True
    return missing

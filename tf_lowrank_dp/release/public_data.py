"""Public examples: data that may be looked at without any cost in privacy."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tf_lowrank_dp._types import Nested
from tf_lowrank_dp.release.space import Normal

RANDOM = "random"


@dataclasses.dataclass(frozen=True, eq=False)
class PublicData:
    """Public features, with labels or without.

    Attributes:
        features: nested arrays `(m, ...)`, as the model takes them.
        labels: nested arrays `(m, ...)`, as the loss takes them; None for labels that are drawn
            anew whenever they are needed.
        num_rows: `m`.
    """

    features: Nested
    labels: Nested
    num_rows: int

    @classmethod
    def of(cls, features: Nested, labels: Nested = RANDOM) -> PublicData:
        """From what users give.

        Args:
            features: nested arrays, or a `tf.data.Dataset` that yields batches of features and
                ends; it is read once.
            labels: "random", or nested arrays with a row for each public example.

        Raises:
            ValueError: there are no rows, or different numbers of them.
        """
        if isinstance(features, tf.data.Dataset):
            features = _read(features)
        features = tf.nest.map_structure(_array, features)
        labels = None if _is_random(labels) else tf.nest.map_structure(_array, labels)
        leaves = tf.nest.flatten([features, [] if labels is None else labels])
        counts = {len(leaf) if leaf.ndim else 0 for leaf in leaves}
        if len(counts) != 1 or counts == {0}:
            raise ValueError(
                "Expected public_data, and public_labels if given, with the same number of rows, "
                f"at least one. Received: arrays of shapes {[leaf.shape for leaf in leaves]}. "
                "Correct them."
            )
        return cls(features, labels, counts.pop())


def random_labels(normal: Normal, count: int, num_classes: int) -> tf.Tensor:
    """Uniform random classes from public random numbers, int32 `(count,)`.

    A standard normal number is mapped to its quantile.

    Args:
        normal: public random numbers.
        count: number of labels.
        num_classes: classes are the integers below.
    """
    [numbers] = normal([(count,)])
    quantiles = 0.5 * (1.0 + tf.math.erf(numbers / math.sqrt(2.0)))
    return tf.minimum(tf.cast(quantiles * num_classes, tf.int32), num_classes - 1)


def _is_random(labels: Nested) -> bool:
    return isinstance(labels, str) and labels == RANDOM


def _array(leaf: npt.ArrayLike) -> np.ndarray:
    array = np.asarray(leaf)
    return array.astype(np.float32) if array.dtype == np.float64 else array


def _read(dataset: tf.data.Dataset) -> tuple[Nested, Nested]:
    batches = list(dataset.as_numpy_iterator())
    if not batches:
        raise ValueError(
            "Expected public_data with at least one row. Received: an empty tf.data.Dataset. "
            "Correct it."
        )
    return tf.nest.map_structure(lambda *parts: np.concatenate(parts), *batches)

"""Looks for public examples among the private ones."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import keras
import numpy as np

from tf_lowrank_dp._types import Nested
from tf_lowrank_dp.sampling import PoissonSampler

_AT_ONCE = 4096


def warn_about_overlap(public: Nested, private: Nested) -> None:
    """Warns if rows of the public features are also rows of the private ones.

    Such rows get no privacy: the basis is computed from them without noise.  Only numeric
    arrays of the same structure and shape are compared, as float32.

    Args:
        public: nested arrays `(m, ...)`.
        private: nested arrays `(n, ...)`, or a `PoissonSampler` of such; anything else (a
            `tf.data.Dataset`, a generator) is not looked at.
    """
    if isinstance(private, PoissonSampler):
        private = private.features
    ours, theirs = _leaves(public), _leaves(private)
    if ours is None or theirs is None:
        return
    if [leaf.shape[1:] for leaf in ours] != [leaf.shape[1:] for leaf in theirs]:
        return
    known = set(_rows(ours))
    shared = sum(row in known for row in _rows(theirs))
    if shared:
        warnings.warn(
            f"Expected public data without private examples. Received: {shared} private examples "
            "whose features are among the public data, which are used without noise: these "
            "examples are not protected. Remove them from one of both.",
            stacklevel=3,
        )


def _leaves(structure: Nested) -> list[np.ndarray] | None:
    """The arrays of a structure, None if not all of them hold numbers in rows."""
    leaves = keras.tree.flatten(structure)
    if not leaves or any(not hasattr(leaf, "__array__") for leaf in leaves):
        return None
    arrays = [np.asarray(leaf) for leaf in leaves]
    if any(array.ndim == 0 or array.dtype.kind not in "biuf" for array in arrays):
        return None
    return arrays if len({len(array) for array in arrays}) == 1 else None


def _rows(arrays: list[np.ndarray]) -> Iterator[int]:
    """A hash of each row."""
    for start in range(0, len(arrays[0]), _AT_ONCE):
        parts = [np.asarray(a[start : start + _AT_ONCE], np.float32) for a in arrays]
        for rows in zip(*parts, strict=True):
            yield hash(b"".join(row.tobytes() for row in rows))

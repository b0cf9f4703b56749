"""Looks for public examples among the private ones."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator

import keras
import numpy as np

from tf_lowrank_dp._types import Nested
from tf_lowrank_dp.sampling import PoissonSampler

_AT_ONCE = 4096
_TOLERANCE = 1e-5


def warn_about_overlap(public: Nested, private: Nested) -> None:
    """Warns if rows of the public features are also rows of the private ones.

    Such rows get no privacy: the basis is computed from them without noise.  Only numeric
    arrays of the same structure and shape are compared, up to rounding in float32.

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
    if _is_any_shared(ours, theirs):
        warnings.warn(
            "Expected public data without private examples. Received: private examples "
            "whose features are among the public data, which are used without noise: these "
            "examples are not protected. Remove them from one of both. (Whether this is said "
            "depends on the private data: keep it out of what you publish.)",
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


def _is_any_shared(ours: list[np.ndarray], theirs: list[np.ndarray]) -> bool:
    """Whether one of their rows is among ours, but for rounding, in which embeddings differ."""
    width = sum(math.prod(leaf.shape[1:]) for leaf in ours)
    direction = np.random.default_rng(0).normal(size=width)
    public = np.concatenate(list(_parts(ours)))
    places = public @ direction
    order = np.argsort(places)
    places, public = places[order], public[order]
    for rows in _parts(theirs):
        at, reach = rows @ direction, _TOLERANCE * (np.abs(rows) @ np.abs(direction))
        first, end = (
            np.searchsorted(places, at - reach),
            np.searchsorted(places, at + reach, "right"),
        )
        for row in np.flatnonzero(end > first):
            near = public[first[row] : end[row]]
            largest = _TOLERANCE * np.max(np.abs(rows[row]), initial=0.0)
            if np.any(np.all(np.abs(near - rows[row]) <= largest, axis=1)):
                return True
    return False


def _parts(arrays: list[np.ndarray]) -> Iterator[np.ndarray]:
    """Some rows at a time, `(m, features)`."""
    for start in range(0, len(arrays[0]), _AT_ONCE):
        parts = [np.asarray(a[start : start + _AT_ONCE], np.float32) for a in arrays]
        yield np.concatenate([part.reshape(len(part), -1) for part in parts], axis=1)

"""What is in the file that Keras loads a model from, and in no store of the model's own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import h5py
import numpy as np


def stored_beside(
    store: Mapping[str, np.ndarray], names: Sequence[str]
) -> list[dict[str, np.ndarray]]:
    """All stores of a file that hold an entry of the first name, of whichever object.

    Args:
        store: that of any object, which Keras gives to `load_own_variables`.
        names: of entries.

    Returns:
        For each of these stores its entries of these names; none for a file that is not HDF5.
    """
    found: dict[str, dict[str, np.ndarray]] = {}
    for file in _files(store):
        paths: list[str] = []
        file.visit(paths.append)
        for path in paths:
            group, _, name = path.rpartition("/")
            if name in names and isinstance(file[path], h5py.Dataset):
                found.setdefault(group, {})[name] = np.asarray(file[path])
    return [entries for entries in found.values() if names[0] in entries]


def _files(store: Mapping[str, np.ndarray]) -> Iterator[h5py.File]:
    """The file of a store, or its shards: all that are there, as Keras may need no other."""
    own = getattr(store, "h5_file", None)
    if own is None:
        return
    shards: set[str] = set()
    for held_by in getattr(store, "sharding_config", {}).get("weight_map", {}).values():
        shards |= {held_by} if isinstance(held_by, str) else {*held_by}
    if not shards:
        yield own
    paths = [store.path.with_name(name) for name in sorted(shards)]  # type: ignore[attr-defined]
    for path in paths:
        if path.exists():
            with h5py.File(path, "r") as file:
                yield file

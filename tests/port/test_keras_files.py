"""Contracts of the port to the files that Keras loads, on the Keras that is installed."""

import h5py
import keras
import numpy as np
import pytest

from tf_lowrank_dp._keras.files import stored_beside


class Noting(keras.layers.Layer):
    """Stores two entries of its own, and looks for such of others when it is loaded."""

    def __init__(self, text=b""):
        super().__init__()
        self.text, self.found = text, None

    def save_own_variables(self, store):
        store["note"] = np.frombuffer(self.text, np.uint8)
        store["other"] = np.arange(3)

    def load_own_variables(self, store):
        own = store["other"]
        self.found = stored_beside(store, ["note"])
        assert np.array_equal(own, store["other"]) and "note" in store.keys()


@pytest.mark.parametrize(
    ("name", "size"), [("all.weights.h5", {}), ("all.weights.json", {"max_shard_size": 3e-7})]
)
def test_entries_of_all_objects_in_a_file_are_found_by_each(tmp_path, name, size):
    def model(*texts):
        layers = [Noting(text) for text in texts]
        return keras.Sequential([keras.Input((2,)), keras.layers.Dense(30), *layers])

    model(b"one", b"two").save_weights(tmp_path / name, **size)
    other = model(b"", b"")
    other.load_weights(tmp_path / name)
    for layer in other.layers[1:]:
        assert [bytes(each["note"]) for each in layer.found] == [b"one", b"two"]
        assert all(set(each) == {"note"} for each in layer.found)


def test_a_shard_that_is_missing_hides_no_other(tmp_path):
    """Keras loads what it needs of the rest: 0.000 was stated of such weights, for 8.04."""

    class Sharded(dict):
        path = tmp_path / "all.weights.json"
        sharding_config = {"weight_map": {"/a/vars": "here.h5", "/b/vars": ["here.h5", "gone.h5"]}}

    with h5py.File(tmp_path / "here.h5", "w") as file:
        file["a/vars/note"] = np.arange(2)
        store = Sharded()
        store.h5_file = file
    (found,) = stored_beside(store, ["note"])
    assert list(found["note"]) == [0, 1]


def test_a_store_that_is_in_no_file_of_hdf5_has_nothing_beside():
    assert stored_beside({"note": np.zeros(3)}, ["note"]) == []

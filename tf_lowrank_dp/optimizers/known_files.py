"""Files of private models that Keras loads without their optimizer: what was spent is known."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Mapping

import keras
import numpy as np

from tf_lowrank_dp._keras.files import stored_beside
from tf_lowrank_dp._keras.layers import layers_of
from tf_lowrank_dp.optimizers.ledger_in_file import ENTRIES, know_values
from tf_lowrank_dp.spending import SPENDING

_READ: weakref.WeakSet = weakref.WeakSet()  # a file has one store, which its models share


@functools.cache
def know_what_files_hold() -> None:
    """Has the ledgers in a file read with any model that Keras loads from it, private or not.

    Keras gives a ledger to nobody where a model has no optimizer, or another one: with
    `compile=False`, when weights are loaded before `compile`, or where a class makes a private
    model that it holds anew.

    Guarantee: what a file says of values in it is known from then on, and belongs to any variable
    that holds one of them when it is looked at.  The model that is loaded is, before the file is
    closed for good: what others change afterwards is noticed.
    """
    load = keras.Model.load_own_variables

    @functools.wraps(load)
    def load_own_variables(model: keras.Model, store: Mapping[str, np.ndarray]) -> None:
        if hasattr(store, "h5_file") and store not in _READ:
            _READ.add(store)
            stored = stored_beside(store, ENTRIES)
            for each in stored:
                know_values(each)
            if stored:
                _look_when_it_is_closed(store, model)
        load(model, store)

    keras.Model.load_own_variables = load_own_variables


def _look_when_it_is_closed(store: Mapping[str, np.ndarray], model: keras.Model) -> None:
    """Keras closes a file when all is loaded, and between two shards."""
    close = store.close  # type: ignore[attr-defined]

    @functools.wraps(close)
    def closed() -> None:
        close()
        SPENDING.recognise(model.weights)
        SPENDING.tell_layers(layers_of(model))

    store.close = closed  # type: ignore[attr-defined]

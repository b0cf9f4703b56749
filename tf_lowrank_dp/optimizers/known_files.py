"""Files of private models that Keras loads without their optimizer: what was spent is known."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Mapping, Sequence

import keras
import numpy as np

from tf_lowrank_dp._keras.files import stored_beside
from tf_lowrank_dp._keras.layers import layers_of
from tf_lowrank_dp.accounting import PrivacyLedger
from tf_lowrank_dp.optimizers.ledger_in_file import ENTRIES, ledger_and_values
from tf_lowrank_dp.spending import SPENDING

_READ: weakref.WeakSet = weakref.WeakSet()  # a file has one store, which its models share


@functools.cache
def know_what_files_hold() -> None:
    """Has the ledgers in a file read with any model that Keras loads from it, private or not.

    Keras gives a ledger to nobody where a model has no optimizer, or another one: with
    `compile=False`, when weights are loaded before `compile`, or where a class makes a private
    model that it holds anew.

    Guarantee: whatever else a file is loaded for, all of the model that is loaded has what any
    ledger in the file says, and so has any variable that holds, when it is looked at, a value that
    private steps have made as the file says.  What others change before or after is noticed.
    """
    load = keras.Model.load_own_variables

    @functools.wraps(load)
    def load_own_variables(model: keras.Model, store: Mapping[str, np.ndarray]) -> None:
        if hasattr(store, "h5_file") and store not in _READ:
            _READ.add(store)
            try:
                stored = stored_beside(store, ENTRIES)
            except Exception:  # Keras may load what it can read of a damaged file
                stored = [{}]
            if stored:
                _take(model, store, stored)
        load(model, store)

    keras.Model.load_own_variables = load_own_variables


def _take(
    model: keras.Model,
    store: Mapping[str, np.ndarray],
    stored: Sequence[Mapping[str, np.ndarray]],
) -> None:
    """Gives what a file says to the model that is about to be loaded, and looks at it afterwards.

    Keras closes a file when all is loaded, and between two shards.  Of variables on which something
    else was spent, values that the file does not know are left for the next look.  Where it cannot
    be read, or contradicts what is known, the prior spend is unknown: Keras notes an error raised
    here, and goes on with the layers.
    """
    layers, weights = layers_of(model), model.weights
    SPENDING.check(weights)
    new = [variable for variable in weights if not SPENDING.records([variable])]
    for each in stored:
        ledger, values = ledger_and_values(each)
        try:
            record = SPENDING.add([*layers, *weights], ledger)
        except ValueError:  # another run is under a known id
            record = SPENDING.add([*layers, *weights], PrivacyLedger(prior_spend_unknown=True))
        if values is not None:
            SPENDING.know(values, record)
    close = store.close  # type: ignore[attr-defined]

    @functools.wraps(close)
    def closed() -> None:
        close()
        SPENDING.see([*new, *SPENDING.recognise(weights)])
        SPENDING.tell_layers(layers)

    store.close = closed  # type: ignore[attr-defined]

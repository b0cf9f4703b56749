"""The ledger in the file of a private optimizer, with digests of the values that it belongs to."""

from __future__ import annotations

import contextlib
import contextvars
import warnings
import weakref
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import TypeVar

import keras
import numpy as np

from tf_lowrank_dp._keras.compiled import (
    models_compiled_with,
    record_loss_scaling,
    record_optimizer,
    writes_hdf5,
)
from tf_lowrank_dp._keras.layers import layers_of
from tf_lowrank_dp.accounting import PrivacyLedger
from tf_lowrank_dp.spending import SPENDING
from tf_lowrank_dp.spending.present import present_value
from tf_lowrank_dp.spending.record import grow_elsewhere
from tf_lowrank_dp.spending.trace import tells_of_data

_WHILE_FIT_GOES_ON = (
    "Expected a model that is saved between two of its steps. Received: a save in another thread "
    "while fit trains it, so that the optimizer in the file may have seen more steps than its "
    "ledger counts: the file says 'prior spend unknown'. Save in a callback, such as "
    "keras.callbacks.ModelCheckpoint, or after fit."
)
Private = TypeVar("Private", bound=keras.optimizers.Optimizer)
ENTRIES = _LEDGER, _VALUES, _FORMAT = "privacy_ledger", "private_values", "format"
_MADE_OF_CONFIG: weakref.WeakSet = weakref.WeakSet()  # and no file has brought a ledger since
_LOADED: contextvars.ContextVar[list[int]] = contextvars.ContextVar("loaded")


def values_of(model: keras.Model) -> list[keras.Variable]:
    """What is looked at for changes: weights, and what an optimizer keeps of gradients for them.

    How far it has come and its learning rate tell nothing of the data.
    """
    of_optimizer = getattr(getattr(model, "optimizer", None), "variables", [])
    return [*model.weights, *filter(tells_of_data, of_optimizer)]


def look_at_values(model: keras.Model) -> bool:
    """Looks at the values of a model, and at all that the steps which made them have read.

    Returns:
        Whether others than private steps are found to have changed some of the model's.
    """
    values, layers = values_of(model), layers_of(model)
    found = SPENDING.look_at(values, layers)
    SPENDING.tell_layers(layers)
    return found


def save_ledger(
    optimizer: keras.optimizers.Optimizer,
    own: Sequence[keras.Variable],
    store: MutableMapping[str, np.ndarray],
) -> None:
    """Stores what was spent on all that the optimizer belongs to.

    Guarantee: that are all models which are compiled with it, trained or not, private or not yet: a
    model that is loaded and compiled anew keeps its ledger in the next file.  Values that other
    code has changed are noticed, whoever writes it: `keras.saving.save_model` and `pickle` as well.
    The file of another thread than that in which `fit` goes on says "prior spend unknown": Keras
    writes the inner optimizer after the ledger, which may then be of later steps.

    Args:
        optimizer: a private one.
        own: variables that no other model will hold.
        store: of its file.
    """
    ledger = ledger_of(optimizer)
    if grow_elsewhere(SPENDING.records([optimizer])):
        ledger.mark_prior_spend_unknown()
        warnings.warn(_WHILE_FIT_GOES_ON, stacklevel=2)
    values = SPENDING.values_to_save(optimizer, without=own)
    # Three entries: an ordinary optimizer that has as many as the file takes them for its own, and
    # nearly all have an even number.  Else Keras loads the weights and says what it leaves out.
    store[_FORMAT] = np.array(1, np.int64)
    store[_VALUES] = values
    store[_LEDGER] = np.frombuffer(ledger.to_json().encode(), np.uint8)


def ledger_of(optimizer: keras.optimizers.Optimizer) -> PrivacyLedger:
    """What was spent on all models that are compiled with the optimizer, private or not yet."""
    for model in _link(optimizer):
        SPENDING.recognise(model.weights)
        look_at_values(model)
    return SPENDING.ledger([optimizer])


def made_of_config(optimizer: Private) -> Private:
    """Notes that an optimizer was made of a config, whose ledger a file may bring; gives it."""
    _MADE_OF_CONFIG.add(optimizer)
    return optimizer


def link(optimizer: keras.optimizers.Optimizer, model: keras.Model) -> None:
    """Notes that an optimizer keeps the ledger of all of a model that is compiled with it.

    Guarantee: where it was made of a config and has taken steps, none of them in this process, what
    was spent is unknown: others than Keras' files have brought its state and the weights, such as a
    checkpoint of Orbax, whatever else is known of some of these.
    """
    things = [*layers_of(model), *model.weights]
    SPENDING.link(optimizer, things)
    if optimizer in _MADE_OF_CONFIG and optimizer.built:
        is_trained = not all(record.is_loaded for record in SPENDING.records([optimizer]))
        if not is_trained and int(present_value(optimizer.iterations)) > 0:
            SPENDING.mark_unknown([optimizer, *optimizer.variables, *things])


@contextlib.contextmanager
def ledgers_looked_for() -> Iterator[list[int]]:
    """Gives a list of `id(optimizer)` of those whose ledger was looked for in a file inside."""
    token = _LOADED.set([])
    try:
        yield _LOADED.get()
    finally:
        _LOADED.reset(token)


def load_ledger(
    optimizer: keras.optimizers.Optimizer, store: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Adds the stored ledger to all that the optimizer belongs to, and gives the rest of the store.

    Its models are saved without loss scaling again, as they were loaded.

    Guarantee: that is all of the model that is loaded with it, frozen layers that are cut out of it
    before anything else happens included.

    Where there is none, or it is damaged, the prior spend is unknown from then on.

    Raises:
        ValueError: the stored ledger is damaged.
    """
    _LOADED.get([]).append(id(optimizer))
    _MADE_OF_CONFIG.discard(optimizer)
    for model in _link(optimizer):
        if model.optimizer is optimizer:
            record_loss_scaling(model, False)
    ledger, values = PrivacyLedger(prior_spend_unknown=True), None
    try:
        if _LEDGER in store.keys():
            values = store[_VALUES] if _VALUES in store.keys() else None
            ledger = _ledger_in(store)
    finally:
        SPENDING.adopt([optimizer], ledger, values)
    return {key: store[key] for key in store.keys() if key not in ENTRIES}


def ledger_and_values(
    store: Mapping[str, np.ndarray],
) -> tuple[PrivacyLedger, np.ndarray | None]:
    """What a store says was spent, and on which values; a damaged ledger says that it is unknown.

    Returns:
        The ledger; and what `Spending.know` takes, None where that is damaged or not there.
    """
    try:
        ledger = _ledger_in(store)
    except (KeyError, ValueError):
        ledger = PrivacyLedger(prior_spend_unknown=True)
    values = store.get(_VALUES, np.zeros(1))
    return ledger, values if values.ndim == 2 and values.dtype == np.uint64 else None


def _ledger_in(store: Mapping[str, np.ndarray]) -> PrivacyLedger:
    """Raises ValueError if it is damaged."""
    return PrivacyLedger.from_json(np.asarray(store[_LEDGER], np.uint8).tobytes().decode())


def refuse_hdf5(optimizer: keras.optimizers.Optimizer) -> None:
    """Refuses a whole model in HDF5, whoever writes it: `keras.saving.save_model` as well.

    Keras forgets what a model is compiled with as it begins to write such a file.  It is told
    again, so that the next file of Keras' own format holds the ledger.

    Raises:
        ValueError: the file would hold the weights and not what was spent on them.
    """
    if not writes_hdf5():
        return
    for model in models_compiled_with(optimizer):
        if model.optimizer is optimizer:
            record_optimizer(model, optimizer)
    raise ValueError(
        "Expected a file of Keras' own format for a model with a private optimizer. Received: "
        "one of HDF5, which does not keep what was spent. Save as '.keras', or the weights alone "
        "with save_weights, or call tfdp.make_standard(model) and compile it with an ordinary "
        "optimizer first."
    )


def _link(optimizer: keras.optimizers.Optimizer) -> list[keras.Model]:
    """Notes that the optimizer belongs to all models that are compiled with it, and gives them."""
    found = []
    for model in models_compiled_with(optimizer):
        link(optimizer, model)
        found.append(model)
    return found

"""What a model knows of the data by other ways than private steps: releases, adapted layers."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

import dp_accounting
import keras

from tf_lowrank_dp._keras.layers import layers_of
from tf_lowrank_dp.accounting import PrivacyLedger, ReleaseEntry
from tf_lowrank_dp.accounting.notes import adapted_entry, adapted_in
from tf_lowrank_dp.accounting.sampling import DrawnBy, Unit
from tf_lowrank_dp.sampling import PoissonSampler, Records
from tf_lowrank_dp.spending import SPENDING
from tf_lowrank_dp.spending.trace import Thing, refuse_unbuilt
from tf_lowrank_dp.training.budget import tell_graphs
from tf_lowrank_dp.training.function_code import layers_used_by
from tf_lowrank_dp.training.refused_history import refuse_release
from tf_lowrank_dp.training.state import (
    find_state,
    look,
    note_in_file,
    things_of,
)
from tf_lowrank_dp.training.written_beside import tell_what_is_written_beside

# For each kind of layer that can be adapted, what it is given instead.
_GIVEN = {
    keras.layers.Normalization: "mean",
    keras.layers.TextVectorization: "vocabulary",
    keras.layers.StringLookup: "vocabulary",
    keras.layers.IntegerLookup: "vocabulary",
}


def record_release(
    model: keras.Model,
    event: dp_accounting.DpEvent,
    description: str,
    *,
    unit: Unit = "example",
    drawn_by: DrawnBy = "library",
) -> None:
    """Adds a release by another mechanism to the ledger of a model that depends on it.

    For all that was computed from the private data elsewhere and went into the model: means,
    vocabularies, a hyperparameter chosen privately.  It is composed with the training, counts
    towards budgets, and is saved with the model's private optimizer.  Files of models without one
    hold no ledger, which a warning says.  Record a release once, after `make_private` and before
    training, or after weights have been loaded; whatever the model holds then depends on it.

    Args:
        model: a built Keras model, private or not.
        event: what was done, for neighbours by adding or removing one unit: any event that
            `dp_accounting.pld.PLDAccountant` supports, beside a private search any that has a
            bound by Renyi differential privacy.  In a history with shuffled passes, which
            is computed for neighbours by replacing one, only Gaussians have an epsilon.
            Steps of shuffled passes, such as a teacher's, have no such event: let the steps of
            the student ask the teacher, and they have its ledger.
        description: for statements.
        unit: "user" where each row that went into it was all of one user, for models that are
            trained with `unit_ids`.
        drawn_by: "user" where it is of steps, such as a teacher's, whose batches the library has
            not drawn (`fit(sampling=...)`): statements say so.

    Raises:
        ValueError: the event is not supported, or has no epsilon with what the model depends on;
            the description is empty; or the model is not built.

    Example:

    >>> import keras, numpy as np, tf_lowrank_dp as tfdp
    >>> x = np.random.default_rng(0).normal(size=(1_000, 2))
    >>> mean, event, description = tfdp.private_mean(x, l2_norm_clip=3.0, noise_multiplier=8.0)
    >>> layers = keras.layers.Normalization(mean=mean, variance=[1, 1]), keras.layers.Dense(1)
    >>> model = tfdp.make_private(keras.Sequential([keras.Input((2,)), *layers]))
    >>> tfdp.record_release(model, event, description)
    >>> round(tfdp.privacy_spent(model, delta=1e-5), 2)
    0.43
    """
    if find_state(model) is None:
        warnings.warn(
            f"Expected a model of make_private, whose file holds its ledger. Received: "
            f"'{model.name}', which is not private: the release counts in this process, and in no "
            "file of the model. Call tfdp.make_private(model) and compile it with a private "
            "optimizer before it is saved, or keep tfdp.privacy_statement(model, delta) beside "
            "the file.",
            stacklevel=2,
        )
    record(model, PrivacyLedger([ReleaseEntry(event, description, unit=unit, drawn_by=drawn_by)]))


def record(
    model: keras.Model, release: PrivacyLedger, things: Sequence[Thing] | None = None
) -> None:
    """Adds releases to the ledger of a built model, and to its file.

    Args:
        model: what depends on them.
        release: what was released.
        things: variables, layers and optimizers that do; None for all of the model.

    Raises:
        ValueError: as in `record_release`.
    """
    refuse_unbuilt(model)
    refuse_release(SPENDING.ledger(things_of(model)), release)
    tell_what_is_written_beside(model)
    look(model)
    things = things_of(model) if things is None else things
    SPENDING.add(things, PrivacyLedger(release.entries))  # callers may hold theirs
    note_in_file(model)
    look(model)
    tell_graphs(model)


def adapted_layers(model: keras.Model, *functions: Callable | None) -> list[str]:
    """Names of the layers of a model, or that functions use, whose state may come from `adapt`.

    Keras does not tell adapted state from state that was set: it is what was not given to the
    layer when it was made.

    Args:
        model: with the functions that its layers hold, and the methods of layers of the user's own.
        *functions: of examples, or layers; None for none.
    """
    layers = layers_of(model)
    given = [function for function in functions if function is not None]
    for function in [*given, *(own for layer in layers for own in _functions_of(layer))]:
        used = [function] if isinstance(function, keras.Layer) else layers_used_by(function)
        layers = [*layers, *(inner for each in used for inner in layers_of(each))]
    return _names_of_adapted(layers)


def adapted_parts(model: keras.Model) -> list[str]:
    """Of `adapted_layers` those of the model itself, without a look at functions: much faster."""
    return _names_of_adapted(layers_of(model))


def map_of(data: Any) -> Callable | None:
    """The map of `Records`, which a sampler may draw from."""
    records = data.records if isinstance(data, PoissonSampler) else data
    return records.map if isinstance(records, Records) else None


def losses_of(model: keras.Model) -> list[Callable]:
    """The losses that a model is compiled with, without those that it names."""
    return [loss for loss in keras.tree.flatten(getattr(model, "loss", None)) if callable(loss)]


def _functions_of(layer: keras.layers.Layer) -> list[Callable]:
    """The functions that a layer holds, and the methods of its class."""
    methods = [thing for kind in type(layer).__mro__ for thing in vars(kind).values()]
    found = [*vars(layer).values(), *methods]
    return [thing for thing in found if isinstance(thing, FunctionType)]


def _names_of_adapted(layers: Sequence[keras.layers.Layer]) -> list[str]:
    return list(dict.fromkeys(layer.name for layer in layers if _may_be_adapted(layer)))


def _may_be_adapted(layer: keras.layers.Layer) -> bool:
    if isinstance(layer, keras.layers.Discretization):
        return layer.num_bins is not None  # given instead of the boundaries
    kinds = [kind for kind in _GIVEN if isinstance(layer, kind)]
    return any(layer.get_config().get(_GIVEN[kind]) is None for kind in kinds)


def notes_of(model: keras.Model) -> list[str]:
    """What a statement says of adapted layers."""
    noted = adapted_in(SPENDING.ledger(things_of(model)).entries)
    names = dict.fromkeys([*adapted_layers(model), *noted])
    if not names:
        return []
    return [
        f"the state of {', '.join(names)} was not given as an argument. If adapt computed it from "
        "the private data, it holds exact statistics of them, which epsilon does not include."
    ]


def note_adapted_layers(model: keras.Model, names: Sequence[str]) -> None:
    """Notes for what is trained the layers of whose adapted state a warning has told."""
    trained = [model, *model.trainable_variables]
    known = adapted_in(SPENDING.ledger(trained).entries) if names else []
    new = [name for name in names if name not in known]
    if new:
        SPENDING.add(trained, PrivacyLedger(map(adapted_entry, new)))
        note_in_file(model)


def warn_about_adapted_layers(model: keras.Model, *functions: Callable | None) -> list[str]:
    """Warns where a model may have been adapted to private data, or functions of its examples.

    Returns:
        The names that it warns of.
    """
    names = adapted_layers(model, *functions)
    if names:
        warnings.warn(
            "Expected preprocessing whose state is public or was released privately. Received: "
            f"{names}, whose state was not given as an argument and may come from adapt. Exact "
            "statistics of private data are not covered by any epsilon, and are saved with the "
            "model. Pass mean=, variance=, bin_boundaries= or vocabulary=, from public data or "
            "from tfdp.private_mean and tfdp.private_histogram with tfdp.record_release.",
            stacklevel=3,
        )
    return names

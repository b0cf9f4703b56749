"""What holds while a layer is called: casts of weights, masks, variables that it creates."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

import keras
import tensorflow as tf

from tf_lowrank_dp._keras.missing import uses_private_names
from tf_lowrank_dp._types import Nested

_REFUSED = "variable while in a stateless scope"


@uses_private_names
def autocast(dtype: str | None) -> contextlib.AbstractContextManager:
    """Context in which float variables are read in this dtype; None: in their own."""
    from keras.src.backend.common.variables import AutocastScope

    return AutocastScope(dtype)


@uses_private_names
def autocast_dtype() -> str | None:
    """The dtype in which float variables are read here; None: in their own."""
    from keras.src.backend.common.variables import get_autocast_scope

    return getattr(get_autocast_scope(), "dtype", None)  # there may be no scope


def mask_of(tensor: tf.Tensor) -> tf.Tensor | None:
    """The mask that layers have attached to a tensor, if any."""
    return getattr(tensor, "_keras_mask", None)


def attach_mask(tensor: tf.Tensor, mask: tf.Tensor) -> None:
    """Has the layers that get this tensor use the mask."""
    tensor._keras_mask = mask


def masks_of(tensors: Nested) -> dict[int, tf.Tensor]:
    """The masks of nested tensors, by their position."""
    masks = [mask_of(tensor) for tensor in tf.nest.flatten(tensors)]
    return {index: mask for index, mask in enumerate(masks) if mask is not None}


def attach_masks(tensors: Nested, masks: dict[int, tf.Tensor]) -> None:
    """Attaches what `masks_of` gave."""
    for index, mask in masks.items():
        attach_mask(tf.nest.flatten(tensors)[index], mask)


@uses_private_names
def created_variables() -> list[keras.Variable]:
    """The variables that wait for a `StatelessScope(initialize_variables=False)` to end."""
    from keras.src.backend.common.global_state import get_global_attribute

    return list(get_global_attribute("uninitialized_variables", []))


def in_stateless_scope() -> bool:
    """Whether a `keras.StatelessScope` is open, which keeps assignments back."""
    from keras.src.backend.common.stateless_scope import in_stateless_scope

    return in_stateless_scope()


@contextlib.contextmanager
def values_in_scope(pairs: Iterable[tuple[keras.Variable, tf.Tensor]]) -> Iterator[None]:
    """Context in which variables have these values, within the open `keras.StatelessScope`."""
    from keras.src.backend.common.stateless_scope import get_stateless_scope

    mapping = get_stateless_scope().state_mapping
    pairs = [(id(variable), value) for variable, value in pairs]
    before = {key: mapping[key] for key, _ in pairs if key in mapping}
    mapping.update(pairs)
    try:
        yield
    finally:
        for key, _ in pairs:
            del mapping[key]
        mapping.update(before)


@uses_private_names
def call_context() -> object:
    """What the layers that are being called know of the outermost call, such as `training`."""
    from keras.src.backend.common.global_state import get_global_attribute

    return get_global_attribute("current_call_ctx")


@contextlib.contextmanager
def in_call_context(context: object) -> Iterator[None]:
    """Context in which layers are called as in an earlier `call_context`."""
    from keras.src.backend.common.global_state import set_global_attribute

    before = call_context()
    set_global_attribute("current_call_ctx", context)
    try:
        yield
    finally:
        set_global_attribute("current_call_ctx", before)


def trial_scope() -> keras.StatelessScope:
    """A scope with the values of the one that is open, if any, which forgets all changes."""
    from keras.src.backend.common.stateless_scope import get_stateless_scope

    scope = keras.StatelessScope(collect_losses=True)
    if in_stateless_scope():
        scope.state_mapping.update(get_stateless_scope().state_mapping)
    return scope


def is_refused_variable(error: ValueError) -> bool:
    """Whether Keras raised an error because a `StatelessScope` creates a variable with a value."""
    return _REFUSED in str(error)

"""Group normalisation in place of batch normalisation, which mixes the examples of a batch."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import keras

from tf_lowrank_dp import _validate
from tf_lowrank_dp._keras.layers import is_functional, layers_of
from tf_lowrank_dp._types import Nested
from tf_lowrank_dp.errors import NotPrivateError, UnsupportedModelError
from tf_lowrank_dp.training.preprocessed import is_task
from tf_lowrank_dp.training.state import find_state, ledger_of
from tf_lowrank_dp.training.symbolic_call import input_spec, mixing_normalizations

_SAME = (
    *("name", "dtype", "trainable", "axis", "epsilon", "center", "scale"),
    *("beta_initializer", "gamma_initializer", "beta_regularizer", "gamma_regularizer"),
    *("beta_constraint", "gamma_constraint"),
)


def replace_batch_normalization(model: keras.Model, groups: int = 32) -> keras.Model:
    """A copy of a model with `GroupNormalization` (Wu & He 2018) for batch normalisation.

    Each `BatchNormalization` that takes averages over a batch when the model trains is replaced.
    One that is frozen, or called with `training=False` throughout, mixes no examples and is kept.

    The number of groups of a layer is the largest divisor of its channels that is at most `groups`
    and leaves four channels or more in a group, where there are as many.

    All weights are copied, `gamma` and `beta` of the normalisations included.  What is normalised
    changes, so that a pretrained model needs training to be as good as before; to keep a
    pretrained model as it is, freeze its `BatchNormalization` layers instead.

    Args:
        model: a built Sequential or functional model, also of nested ones; left as it is.
        groups: largest number of groups, at least 1.

    Returns:
        A new `keras.Sequential` or functional model.  It must be compiled and made private itself.
        That of a KerasHub task has no preprocessor, which a warning says.

    Raises:
        UnsupportedModelError: the model, or a layer with a `BatchNormalization` inside, is written
            as a class with its own code, in which nothing can be replaced from outside; a layer
            normalises a single number, of which no group is left; or a layer has no `get_config`.
        NotPrivateError: the model was made private before, whose ledger a copy would not have.

    Example:

    >>> import keras, tf_lowrank_dp as tfdp
    >>> model = keras.Sequential([
    ...     keras.Input((8, 8, 3)), keras.layers.Conv2D(16, 3), keras.layers.BatchNormalization()])
    >>> layer = tfdp.replace_batch_normalization(model).layers[-1]
    >>> type(layer).__name__, layer.groups
    ('GroupNormalization', 4)
    """
    _validate.integer_at_least(1, groups=groups)
    _check(model)
    pairs = []
    mixing = {id(layer) for layer in mixing_normalizations(model, input_spec(model))}

    def copy_of(layer: keras.layers.Layer) -> keras.layers.Layer:
        if id(layer) in mixing:
            new = _group_normalization(layer, groups)
        else:
            _check_inside(layer, mixing)
            new = _same_layer(layer)
        if isinstance(layer, keras.layers.Layer):
            pairs.append((layer, new))
        return new

    functional = {} if isinstance(model, keras.Sequential) else {"call_function": _call}
    copy = keras.models.clone_model(model, clone_function=copy_of, recursive=True, **functional)
    if not copy.built:
        copy.build(model.input_shape)
    for layer, new in pairs:
        _copy_weights(layer, new)
    if is_task(model) and model.preprocessor is not None:
        warnings.warn(
            f"Expected a model that takes its inputs as they are. Received: '{model.name}', a task "
            "with a preprocessor; the copy is a functional model without one. Train and use it on "
            "what `preprocessor(x, y)` of the task gives.",
            stacklevel=2,
        )
    return copy


def _check(model: keras.Model) -> None:
    if not (isinstance(model, keras.Sequential) or is_functional(model)):
        raise UnsupportedModelError(
            "Expected a Sequential or functional model. Received: "
            f"{type(model).__name__}, whose layers are made and called by its own code. Use "
            "keras.layers.GroupNormalization in that code."
        )
    if not model.built:
        raise UnsupportedModelError(
            f"Expected a built model. Received: '{model.name}', which is not. Call the model once "
            "on a batch of data, or model.build(input_shape), first."
        )
    ledger = ledger_of(model)
    if find_state(model) is not None or ledger.num_steps or ledger.prior_spend_unknown:
        raise NotPrivateError(
            f"Expected a model before tfdp.make_private. Received: '{model.name}', a private one "
            "or one that was. Its ledger would not be that of a copy: replace first, then convert."
        )


def _same_layer(layer: keras.layers.Layer) -> keras.layers.Layer:
    """A new layer like this one; its functions need not be registered, as nothing is saved."""
    if type(layer) is keras.layers.Lambda:
        return keras.layers.Lambda(
            layer.function,
            mask=layer.mask,
            arguments=layer.arguments,
            name=layer.name,
            dtype=layer.dtype_policy,
        )
    functions = [f for f in vars(layer).values() if inspect.isfunction(f)]
    with keras.saving.custom_object_scope({f.__name__: f for f in functions}):
        try:
            return layer.__class__.from_config(layer.get_config())
        except (NotImplementedError, TypeError) as error:
            raise UnsupportedModelError(
                "Expected layers that can be made anew from their configuration. Received: "
                f"'{layer.name}', a {type(layer).__name__}, whose get_config does not give the "
                "arguments of its __init__. Write get_config, use keras.layers.GroupNormalization "
                "in the model's code in place of BatchNormalization, or freeze each one "
                "(layer.trainable = False), which uses the stored averages."
            ) from error


def _check_inside(layer: keras.layers.Layer, mixing: set[int]) -> None:
    for inner in layers_of(layer) if isinstance(layer, keras.layers.Layer) else ():
        if id(inner) in mixing:
            raise UnsupportedModelError(
                "Expected BatchNormalization as a layer of the model itself or of a nested "
                f"Sequential or functional model. Received: '{inner.name}' inside of "
                f"'{layer.name}', a {type(layer).__name__}, which makes and calls it in its own "
                "code. Use keras.layers.GroupNormalization in that code, or freeze it."
            )


def _group_normalization(layer: keras.layers.Layer, groups: int) -> keras.layers.GroupNormalization:
    config = layer.get_config()
    if layer.moving_mean.shape[0] == 1 and len(layer.input.shape) == 2:
        raise UnsupportedModelError(
            "Expected more than one number of an example to normalise. Received: "
            f"'{layer.name}', whose input is a single one: normalised by itself it is constant. "
            "Leave the layer out, or freeze it (layer.trainable = False), which keeps it."
        )
    channels = layer.moving_mean.shape[0]
    most = min(groups, max(1, channels // 4))
    return keras.layers.GroupNormalization.from_config(
        {
            "groups": next(n for n in range(most, 0, -1) if channels % n == 0),
            **{key: config[key] for key in _SAME},
        }
    )


def _call(layer: keras.layers.Layer, *args: Any, **kwargs: Any) -> Nested:
    """Calls a layer of the copy as the original was called; only batch normalisation has a mask."""
    if type(layer) is keras.layers.GroupNormalization:
        kwargs = {key: value for key, value in kwargs.items() if key not in ("mask", "training")}
    return layer(*args, **kwargs)


def _copy_weights(layer: keras.layers.Layer, new: keras.layers.Layer) -> None:
    if isinstance(new, keras.layers.GroupNormalization) and type(layer) is not type(new):
        for name in ("gamma", "beta"):
            if getattr(layer, name) is not None:
                getattr(new, name).assign(getattr(layer, name))
        return
    new.set_weights(layer.get_weights())
    for inner, new_inner in zip(layers_of(layer), layers_of(new), strict=True):
        new_inner.trainable = inner.trainable

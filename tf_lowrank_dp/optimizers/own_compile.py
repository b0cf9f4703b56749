"""Files of models whose class has a `compile` of its own: Keras loads them without optimizer."""

from __future__ import annotations

import functools
from typing import Any

import keras

from tf_lowrank_dp.optimizers.base import DPOptimizer


@functools.cache
def restore_private_optimizers() -> None:
    """Has private optimizers restored with all models that were saved with them.

    Keras does not compile a loaded model whose class overrides `compile` (KerasHub's tasks do), and
    skips what the file holds of its optimizer: the ledger would be lost without a word.  Models of
    other optimizers are loaded as before.
    """
    load = keras.Model.compile_from_config

    @functools.wraps(load)
    def compile_from_config(model: keras.Model, config: dict) -> None:
        overridden = type(model).compile is not keras.Model.compile
        settings = _settings(config) if overridden else None
        if settings is None:
            load(model, config)
            return
        try:
            model.compile(**settings)
        except (TypeError, ValueError):  # it takes others: the user compiles, as Keras says
            load(model, config)
        optimizer = settings["optimizer"]
        if getattr(model, "optimizer", None) is not optimizer:
            model.optimizer = optimizer
        if model.built:
            optimizer.build(model.trainable_variables)

    keras.Model.compile_from_config = compile_from_config


def _settings(config: dict) -> dict[str, Any] | None:
    """The arguments of `compile`, if the optimizer among them is private."""
    try:
        optimizer = keras.saving.deserialize_keras_object(config.get("optimizer"))
    except (TypeError, ValueError):  # of a class that nobody registered: Keras will say so
        return None
    if not isinstance(optimizer, DPOptimizer):
        return None
    rest = {key: value for key, value in config.items() if key != "optimizer"}
    return {**keras.saving.deserialize_keras_object(rest), "optimizer": optimizer}

"""Files of models whose class has a `compile` of its own: Keras loads them without optimizer."""

from __future__ import annotations

import functools
from typing import Any

import keras

from tf_lowrank_dp._keras.compiled import record_optimizer
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
        optimizer, rest = settings
        try:
            model.compile(**rest)
        except Exception:  # whatever it needs besides: the user compiles, as Keras says
            load(model, config)
        if getattr(model, "optimizer", None) is not optimizer:
            model.optimizer = optimizer
        record_optimizer(model, optimizer)  # else the next file would be without
        if model.built:
            optimizer.build(model.trainable_variables)

    keras.Model.compile_from_config = compile_from_config


def _settings(config: dict) -> tuple[DPOptimizer, dict[str, Any]] | None:
    """The private optimizer among the arguments of `compile`, and those that can be made again."""
    made = {}
    for name, value in config.items():
        try:
            made[name] = keras.saving.deserialize_keras_object(value)
        except Exception:  # of a class that nobody registered: Keras will say so
            continue
    optimizers = [each for each in keras.tree.flatten(made) if isinstance(each, DPOptimizer)]
    return (optimizers[0], made) if optimizers else None

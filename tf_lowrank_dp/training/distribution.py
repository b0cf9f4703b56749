"""Refusal of distributed training: each process or replica would sample and add noise by itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf

from tf_lowrank_dp._tensorflow import strategies_of
from tf_lowrank_dp._types import Nested
from tf_lowrank_dp.errors import UnsupportedModelError
from tf_lowrank_dp.training.metrics import variables_of_metrics
from tf_lowrank_dp.workers.join import cluster_tasks, joined

_DATA = (
    tf.distribute.DistributedDataset,
    tf.distribute.DistributedIterator,
    tf.distribute.DistributedValues,
)


def refuse_distribution(model: keras.Model | None = None, data: Nested = None) -> None:
    """Checks that training is that of one process on one device, where the ledger is right.

    Only TensorFlow's default strategy passes.  Strategies of one replica train one noise as well,
    but do nothing that `tf.device` does not, and their data are not known to be those of one
    process.

    Args:
        model: its variables, and those of its optimizer and metrics, are looked at.
        data: data set, iterator or batch (nested tensors) that is about to be used.

    Raises:
        UnsupportedModelError: says what is distributed, and the remedy.
    """
    found = _surroundings()
    if found is None and model is not None:
        found = _made_in_scope(model)
    if found is None and any(isinstance(leaf, _DATA) for leaf in tf.nest.flatten(data)):
        found = "data that a tf.distribute strategy has distributed"
    if found is not None:
        raise UnsupportedModelError(
            f"Expected private training in one process on one device. Received: {found}. Replicas "
            "and workers would each sample and add noise by themselves, which the ledger does not "
            "count. Run one process without TF_CONFIG, or join several: call workers = "
            "tfdp.join_workers() first thing, and make_private(model, workers=workers). Make and "
            "train the model outside of any "
            "tf.distribute strategy, on data that were not distributed and after keras."
            "distribution.set_distribution(None). To choose the device, use tf.device."
        )


def _surroundings() -> str | None:
    """What is distributed where this is called, in `strategy.scope()` or `strategy.run` say."""
    if tf.distribute.has_strategy():
        return f"an active strategy, {type(tf.distribute.get_strategy()).__name__}"
    distribution = keras.distribution.distribution()
    if distribution is not None:
        return f"an active keras.distribution.{type(distribution).__name__}"
    try:
        tasks = cluster_tasks()
    except UnsupportedModelError:
        return "TF_CONFIG that cannot be read"
    if sum(tasks.values()) > 1 and joined().alone:
        return f"TF_CONFIG that names several processes, {tasks}"
    return None


def _made_in_scope(model: keras.Model) -> str | None:
    """The first part of a model that was made in a strategy's scope."""
    default = tf.distribute.get_strategy()
    for name, part in _parts(model):
        for strategy in strategies_of(part):
            if strategy is not default:
                return f"{name}, made in the scope of {type(strategy).__name__}"
    return None


def _parts(model: keras.Model) -> Iterator[tuple[str, Any]]:
    yield f"model '{model.name}'", model
    variables = [*model.variables, *variables_of_metrics(model)]
    optimizer = getattr(model, "optimizer", None)
    while optimizer is not None:
        yield f"optimizer '{optimizer.name}'", optimizer
        variables += optimizer.variables
        optimizer = getattr(optimizer, "inner_optimizer", None)
    for variable in variables:
        yield f"variable '{variable.path}'", variable.value

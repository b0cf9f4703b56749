"""What users give as inputs, targets and weights, as the rows of a sampler."""

from __future__ import annotations

import warnings
from types import GeneratorType
from typing import Any

import keras
import tensorflow as tf

from tf_lowrank_dp.sampling import batch as batch_lib
from tf_lowrank_dp.sampling import rows, weights


def refuse_beside_records(y: Any, sample_weight: Any) -> None:
    """Refuses targets and weights where the records hold them."""
    if y is not None or sample_weight is not None:
        raise ValueError(
            "Expected targets and weights in the records. Received: some beside them. Let the "
            "source or its map give (x, y, sample_weight)."
        )


def warn_of_full_batches(batch_size: int, count: int, unit: str) -> None:
    """Warns of batches that hold all there is."""
    warnings.warn(
        f"Expected a batch_size of at most {count}, the number of {unit}s. Received: {batch_size}. "
        f"All {unit}s are in each step, which gets no privacy from sampling; choose a smaller "
        "batch_size for a smaller epsilon.",
        stacklevel=4,
    )


def to_data(x: Any, y: Any, sample_weight: Any, class_weight: Any) -> dict:
    """A dict of structures of rows with the keys of a logical batch, except presence."""
    if isinstance(x, tf.data.Dataset | keras.utils.PyDataset | GeneratorType) or callable(x):
        raise ValueError(
            "Expected arrays, which can be sampled. "
            f"Received: x of type {type(x).__name__}, whose order is already fixed. Pass arrays "
            "or tfdp.Records, or state how the data was sampled with `declared_dataset`."
        )
    data = {batch_lib.X: rows.to_rows(x, batch_lib.X)}
    if y is not None:
        data[batch_lib.Y] = rows.to_rows(y, batch_lib.Y)
    if sample_weight is not None:
        sample_weight = rows.to_rows(sample_weight, batch_lib.SAMPLE_WEIGHT)
    sample_weight = weights.resolve_sample_weight(
        data.get(batch_lib.Y), sample_weight, class_weight
    )
    if sample_weight is not None:
        data[batch_lib.SAMPLE_WEIGHT] = sample_weight
    return data

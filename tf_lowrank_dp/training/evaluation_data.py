"""What `evaluate`, `predict` and `validation_data` take besides what Keras takes: records."""

from __future__ import annotations

from typing import Any

from tf_lowrank_dp.sampling import PoissonSampler, Records
from tf_lowrank_dp.sampling.mapped import MappedRecords


def evaluation_data(data: Any, batch_size: int | None) -> Any:
    """Records as a data set of batches; all else as it is.

    Args:
        data: whatever a user evaluates on.
        batch_size: rows of a batch; None for Keras' 32.

    Raises:
        TypeError: it is a sampler, whose rows are random ones, some of them several times; or
            records and targets beside them, which they hold themselves.

    Example:

    >>> import numpy as np
    >>> records = Records((np.zeros((5, 2), "float32"), np.arange(5)))
    >>> [y.numpy().tolist() for x, y in evaluation_data(records, batch_size=3)]
    [[0, 1, 2], [3, 4]]
    """
    if isinstance(data, PoissonSampler):
        raise TypeError(
            "Expected data of which each row is looked at once. Received: a PoissonSampler, whose "
            "draws are random. Pass the arrays, data set or tfdp.Records that it samples from."
        )
    if isinstance(data, tuple) and any(isinstance(part, Records) for part in data):
        raise TypeError(
            "Expected tfdp.Records alone, whose records hold inputs and targets. Received: a tuple "
            "of them and others. Pass the records themselves, as tfdp.Records((x, y))."
        )
    if not isinstance(data, Records):
        return data
    return MappedRecords(data, class_weight=None, seed=None).in_order(batch_size or 32)

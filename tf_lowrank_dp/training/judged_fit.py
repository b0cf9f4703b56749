"""The graphs that a `fit` trains are looked at: by the run that goes on, or now."""

from __future__ import annotations

import keras

from tf_lowrank_dp.training.compiled_loss import CompiledLoss
from tf_lowrank_dp.training.data import TrainingData
from tf_lowrank_dp.training.judged_graphs import JudgedGraphs, SharedDrawError
from tf_lowrank_dp.training.state import state_of


def judged_graphs(
    model: keras.Model,
    loss: CompiledLoss,
    data: TrainingData,
    method: str,
    rows: int | None,
    split: bool,
) -> JudgedGraphs:
    """The graphs of the model that were looked at, now or for the run that goes on.

    Where rows share random numbers, XLA compiles whole steps, one program for each size.

    Args:
        model: built, private and compiled.
        loss: of the model, now.
        data: what `fit` trains on.
        method: the gradient method.
        rows: where XLA compiles, the number of rows of each part of a batch.
        split: whether microbatches or several workers take a step in parts.

    Raises:
        UnsupportedModelError: see `JudgedGraphs.judge`.
    """
    in_parts = split or rows is not None
    run = state_of(model).run
    if run is not None and run.judged is not None and run.sampling == data.sampling:
        known = run.loss
        is_current = known is not None and known.is_current and known.augment is loss.augment
        if is_current and run.judged.holds(data.element_spec, method, rows, in_parts):
            return run.judged
    judged = JudgedGraphs(model, loss, method, rows, in_parts)
    try:
        judged.judge(data.element_spec)
    except SharedDrawError:
        if split:
            raise
        judged = JudgedGraphs(model, loss, method)
        judged.judge(data.element_spec)
    return judged

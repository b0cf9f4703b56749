"""The graphs that a `fit` trains are looked at: by the run that goes on, or now."""

from __future__ import annotations

from typing import Any

import keras

from tf_lowrank_dp.training.compiled_loss import CompiledLoss
from tf_lowrank_dp.training.data import TrainingData
from tf_lowrank_dp.training.inference import refuse_writes_at_inference
from tf_lowrank_dp.training.judged_graphs import JudgedGraphs
from tf_lowrank_dp.training.state import state_of


def judged_graphs(
    model: keras.Model,
    loss: CompiledLoss,
    data: TrainingData,
    *asked: Any,
) -> tuple[JudgedGraphs, CompiledLoss]:
    """The graphs of the model that were looked at, now or for the run that goes on, with its loss.

    Args:
        model: built, private and compiled.
        loss: of the model, now.
        data: what `fit` trains on.
        *asked: gradient method, units, rows of each and compilation, see `JudgedGraphs`.

    Raises:
        UnsupportedModelError: see `JudgedGraphs.judge`.
    """
    run = state_of(model).run
    if run is not None and run.judged is not None and run.sampling == data.sampling:
        known = run.loss
        is_current = known is not None and known.is_current and known.augment is loss.augment
        if known is not None and is_current and run.judged.holds(data.element_spec, *asked):
            return run.judged, known
    judged = JudgedGraphs(model, loss, *asked)
    judged.judge(data.element_spec)
    refuse_writes_at_inference(model, data.element_spec["x"])
    return judged, loss

"""Private models stay private when they are loaded.

`make_private` leaves nothing in a saved model but its optimizer.  Keras compiles a loaded model
with it (`Model.compile_from_config`) and then builds the optimizer, but tells it nothing of the
model; so the model is looked up in the frame of that call.  Should Keras change, the loaded
model is simply not attached: its optimizer then refuses every ordinary step and names the remedy.
"""

from __future__ import annotations

import sys

import keras

from tf_lowrank_dp.errors import UnsupportedModelError
from tf_lowrank_dp.optimizers.base import DPOptimizer
from tf_lowrank_dp.training.make_private import make_private
from tf_lowrank_dp.training.state import find_state

_DEPTH = 12


def attach_loaded_model(optimizer: DPOptimizer) -> None:
    """Makes the model private that Keras is compiling with this optimizer while loading it."""
    frame = sys._getframe()
    for _ in range(_DEPTH):
        frame = frame.f_back
        if frame is None:
            return
        if frame.f_code.co_name != "compile_from_config":
            continue
        model = frame.f_locals.get("self")
        if isinstance(model, keras.Model) and model.optimizer is optimizer:
            _attach(model)
        return


def _attach(model: keras.Model) -> None:
    if find_state(model) is None:
        try:
            make_private(model)
        except UnsupportedModelError:
            pass  # as it was saved it cannot be trained privately; fit will say why


DPOptimizer.on_build = staticmethod(attach_loaded_model)

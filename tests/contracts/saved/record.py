"""Wrote the files beside it at commit 991cc6a, before algorithms were values; not run by tests.

    python -m tests.contracts.saved.record

Files of a later version belong into a folder of their own.
"""

import json
from pathlib import Path

import keras
import numpy as np

import tf_lowrank_dp as tfdp

FOLDER = Path(__file__).parent
BUDGET = {"l2_norm_clip": 0.7, "epsilon": 3.0, "delta": 1e-3, "accountant": "rdp"}
HISTORY = {"rank": 1, "carriers_from": "history", "warmup_steps": 1, "power_iterations": 2}
OPTIMIZERS = {
    "dpsgd": (tfdp.DPSGDOptimizer, {"clipping": "per_layer", "gradient_scale": {"head": 0.5}}),
    "rgp": (tfdp.RGPOptimizer, {**HISTORY, "exclude": ["head"]}),
    "lsg": (tfdp.LSGOptimizer, {**HISTORY, "sparsity": 0.25, "sparsity_start_step": 1}),
}


def small_model():
    """Two dense layers whose first weights are `start`, and a private optimizer to come."""
    layers = [keras.layers.Dense(8, activation="tanh", name="hidden")]
    layers = [keras.Input((12,)), *layers, keras.layers.Dense(2, name="head")]
    model = keras.Sequential(layers, name="small")
    for variable in model.trainable_variables:
        variable.assign(start(variable.shape))
    return model


def start(shape):
    """Weights to begin with, a formula."""
    return np.cos(np.arange(np.prod(shape), dtype=np.float32)).reshape(shape) / 4


def data():
    return np.sin(np.arange(96, dtype=np.float32)).reshape(8, 12), np.ones((8, 2), np.float32)


def compiled(name):
    make, arguments = OPTIMIZERS[name]
    model = tfdp.make_private(small_model())
    optimizer = make(keras.optimizers.Adam(0.01), **arguments, **BUDGET, planned_steps=6)
    model.compile(optimizer, loss="mse", jit_compile=False)
    return model


def main():
    facts = {}
    for name in OPTIMIZERS:
        model = compiled(name)
        model.fit(*data(), batch_size=4, epochs=1, verbose=0)
        model.save(FOLDER / f"{name}.keras")
        model.save_weights(FOLDER / f"{name}.weights.h5")
        optimizer = model.optimizer
        assert optimizer.ledger.num_steps == 2
        facts[name] = {
            "weights": [np.array(v).tolist() for v in model.trainable_variables],
            "sigma": optimizer.calibrated_noise_multiplier,
            "epsilon": tfdp.privacy_spent(model, 1e-3),
            "config": {k: v for k, v in optimizer.get_config().items() if k != "optimizer"},
        }
    (FOLDER / "facts.json").write_text(json.dumps(facts) + "\n")


if __name__ == "__main__":
    main()

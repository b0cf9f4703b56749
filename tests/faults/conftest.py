"""A tiny private model and its data, as each start of one script would build them."""

import keras
import numpy as np
import pytest

import tf_lowrank_dp as tfdp

ROWS, BATCH = 24, 6  # four steps an epoch
DELTA = 1e-3


@pytest.fixture
def data():
    generator = np.random.default_rng(0)
    x = generator.normal(size=(ROWS, 5)).astype("float32")
    return x, generator.integers(0, 3, ROWS).astype("int32")


@pytest.fixture
def build():
    """Builds the model; makes it private and compiles it."""

    def build(ledger_path=None, steps_per_execution=1, compiled=True, **budget):
        keras.utils.set_random_seed(0)
        dense = keras.layers.Dense
        model = keras.Sequential([keras.Input((5,)), dense(4, activation="tanh"), dense(3)])
        tfdp.make_private(model, ledger_path=ledger_path)
        if compiled:
            budget = budget or {"noise_multiplier": 1.5}
            model.compile(
                tfdp.DPSGDOptimizer(
                    "adam", l2_norm_clip=1.0, delta=DELTA, accountant="rdp", **budget
                ),
                loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                steps_per_execution=steps_per_execution,
                jit_compile=False,
            )
        return model

    return build


@pytest.fixture
def fit(data):
    def fit(model, epochs=1, **arguments):
        return model.fit(*data, batch_size=BATCH, epochs=epochs, verbose=0, **arguments)

    return fit


def _contents(model):
    """Weights, inner optimizer's state and ledger, to be compared."""
    variables = [*model.variables, *model.optimizer.variables]
    arrays = [np.array(keras.ops.convert_to_numpy(v)).tobytes() for v in variables]
    return arrays, tfdp.privacy_statement(model, DELTA), model.optimizer.ledger.to_json()


@pytest.fixture
def contents_of():
    return _contents

"""Files that an earlier version saved load: weights, ledger, sigma, `W_0` and settings are theirs.

`tests/contracts/saved/record.py` made them, after two steps of six that were planned.
"""

import json

import keras
import numpy as np
import pytest

import tf_lowrank_dp as tfdp
from tests.contracts.saved.record import FOLDER, OPTIMIZERS, compiled, data, start
from tf_lowrank_dp.training.state import ledger_of

FACTS = json.loads((FOLDER / "facts.json").read_text())
each_optimizer = pytest.mark.parametrize("name", OPTIMIZERS)
each_format = pytest.mark.parametrize("suffix", ["keras", "weights.h5"])


def loaded(name, suffix):
    path = FOLDER / f"{name}.{suffix}"
    if suffix == "keras":
        return keras.models.load_model(path)
    model = compiled(name)
    model.optimizer.build(model.trainable_variables)  # Keras restores built optimizers only
    model.load_weights(path)
    return model


@each_format
@each_optimizer
def test_files_of_an_earlier_version_load_with_all_that_they_hold(name, suffix):
    model, facts = loaded(name, suffix), FACTS[name]
    optimizer = model.optimizer
    for variable, expected in zip(model.trainable_variables, facts["weights"], strict=True):
        np.testing.assert_array_equal(variable, np.float32(expected))
    assert int(optimizer.iterations) == optimizer.ledger.num_steps == 2
    assert tfdp.privacy_spent(model, 1e-3) == pytest.approx(facts["epsilon"])
    assert optimizer.calibrated_noise_multiplier == facts["sigma"]
    assert type(optimizer) is OPTIMIZERS[name][0]
    # Keras numbers the optimizers of a process in their names.
    config = {key: value for key, value in facts["config"].items() if key != "name"}
    assert {key: optimizer.get_config()[key] for key in config} == config


@each_optimizer
def test_a_file_without_digests_keeps_its_ledger_when_its_model_is_compiled_anew(name):
    model = loaded(name, "keras")
    model.compile("sgd", "mse")
    assert ledger_of(model).num_steps == 2


@each_format
@pytest.mark.parametrize("name", ["rgp", "lsg"])
def test_the_history_of_an_earlier_version_goes_on_from_its_first_weights(name, suffix):
    model = tfdp.make_private(loaded(name, suffix))
    for _ in range(2):
        assert list(model.optimizer.initial_weights) == [0]
        first = model.optimizer.initial_weights[0].numpy()
        np.testing.assert_allclose(first, start((12, 8)), atol=1e-6)
        model.fit(*data(), batch_size=4, epochs=1, verbose=0)
    assert model.optimizer.ledger.num_steps == 6
    assert model.optimizer.calibrated_noise_multiplier == FACTS[name]["sigma"]
    assert tfdp.privacy_spent(model, 1e-3) <= 3.0

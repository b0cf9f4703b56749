"""Files that were saved when the model object owned the ledger load, with what was spent.

`data/` holds a model after four of twelve planned steps with `RGPOptimizer`, its weights, and its
ledger file; `expected.json` says what they were when they were saved.
"""

import json
import shutil
from pathlib import Path

import keras
import numpy as np
import pytest

import tf_lowrank_dp as tfdp
from tf_lowrank_dp.accounting import PrivacyLedger

DATA = Path(__file__).parent / "data"
EXPECTED = json.loads((DATA / "expected.json").read_text())
BUDGET = {"epsilon": 3.0, "planned_steps": 12}


def check(model, x):
    np.testing.assert_allclose(model.predict(x[:2], verbose=0), EXPECTED["predictions"], rtol=1e-5)
    assert model.optimizer.ledger == PrivacyLedger.from_json(EXPECTED["ledger"])
    assert tfdp.privacy_spent(model) == pytest.approx(EXPECTED["epsilon"])
    assert model.optimizer.calibrated_noise_multiplier == EXPECTED["noise_multiplier"]
    assert "unknown" not in tfdp.privacy_statement(model)


def test_a_model_loads_and_trains_on_within_its_budget(data, fit):
    model = keras.models.load_model(DATA / "model.keras")
    check(model, data[0])
    fit(tfdp.make_private(model), epochs=2)
    assert model.optimizer.ledger.num_steps == 12
    assert 2.9 <= tfdp.privacy_spent(model) <= 3.0
    with pytest.raises(tfdp.PrivacyBudgetExceededError):
        fit(model)


def test_weights_bring_their_ledger(build, data):
    model = build(compiled=False)
    model.compile(
        tfdp.RGPOptimizer(
            "adam", rank=2, warmup_steps=2, l2_norm_clip=1.0, delta=1e-3, accountant="rdp", **BUDGET
        )
    )
    model.optimizer.build(model.trainable_variables)
    model.load_weights(DATA / "model.weights.h5")
    check(model, data[0])


def test_a_ledger_file_and_the_checkpoint_beside_it_count_a_step_once(tmp_path):
    path = shutil.copy(DATA / "ledger.jsonl", tmp_path)
    model = tfdp.make_private(keras.models.load_model(DATA / "model.keras"), ledger_path=path)
    assert model.optimizer.ledger.num_steps == 4
    assert tfdp.privacy_spent(model) == pytest.approx(EXPECTED["epsilon"])

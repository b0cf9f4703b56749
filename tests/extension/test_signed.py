"""An algorithm of somebody else, made through the extension kit alone."""

import keras
import numpy as np
import pytest

import tf_lowrank_dp as tfdp
from tests.contracts.test_optimizers import NOISY, compiled, fit, make_data
from tests.extension.fitting import check_step
from tests.extension.signed import Signed, SignedOptimizer


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_a_step_of_fit_is_the_mean_of_the_clipped_gradients_times_the_sign(sign):
    keras.utils.set_random_seed(0)
    layers = [keras.layers.Dense(6, "tanh"), keras.layers.Dense(2)]
    model = keras.Sequential([keras.Input((4,)), *layers])
    generator = np.random.default_rng(0)
    x, y = (generator.normal(size=(16, n)).astype("float32") for n in (4, 2))
    check_step(model, x, y, SignedOptimizer, sign, offset=100.0 * sign)


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_it_is_trained_saved_and_goes_on_with_its_state(sign, tmp_path):
    model = compiled(SignedOptimizer("adam", offset=100.0 * sign, **NOISY))
    fit(model)
    assert "signed" in str(tfdp.privacy_statement(model))
    assert model.optimizer.algorithm_state["sign"].numpy() == sign
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert type(loaded.optimizer) is SignedOptimizer and loaded.optimizer.offset == 100.0 * sign
    assert loaded.optimizer.algorithm_state["sign"].numpy() == sign
    loaded.optimizer.algorithm_state.keep("sign", np.float32(2.0))
    fit(tfdp.make_private(loaded))
    assert loaded.optimizer.algorithm_state["sign"].numpy() == 2.0
    assert loaded.optimizer.ledger.num_steps == 6


def test_it_needs_no_optimizer_class_to_be_trained():
    """With a positive sign it is DP-SGD, bit for bit."""
    free = {"l2_norm_clip": 0.5, "noise_multiplier": 1.0, "seed": 5}
    models = [
        compiled(tfdp.extend.DPOptimizer("sgd", Signed(100.0), **free)),
        compiled(tfdp.DPSGDOptimizer("sgd", **free)),
    ]
    for model in models:
        model.fit(*make_data(), batch_size=8, verbose=0)
    for one, other in zip(*(model.trainable_variables for model in models), strict=True):
        np.testing.assert_array_equal(one, other)


def test_its_settings_are_checked_and_shown():
    with pytest.raises(ValueError, match="finite offset"):
        SignedOptimizer(offset=float("nan"), **NOISY)
    assert SignedOptimizer(offset=2.0, **NOISY).get_config()["offset"] == 2.0

"""A layer of somebody else, captured through the extension kit alone."""

import keras
import numpy as np
import pytest

import tf_lowrank_dp as tfdp
from tests import oracle
from tests.contracts.case import LayerCase
from tests.contracts.checks import check, check_probe, losses_of, make_batch
from tests.contracts.layer_cases import build_model
from tests.contracts.release_spaces import check_release_spaces
from tests.extension.fitting import check_step
from tests.extension.tied_autoencoder import TiedAutoencoder

CASES = [
    LayerCase("small", lambda: TiedAutoencoder(3), (5,)),
    LayerCase("wide", lambda: TiedAutoencoder(9), (12,)),
    LayerCase("sequence", lambda: TiedAutoencoder(4), (6, 5)),
]
each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


@each_case
@pytest.mark.parametrize("mode", ["eager", "xla"])
def test_norms_and_sums_equal_the_oracle(case, mode):
    keras.utils.set_random_seed(1)
    model, batch = build_model(case), make_batch(case, 3)
    check(model, batch, "bookkeeping", mode, 1e-5)
    check_probe(model, batch)


@each_case
def test_every_release_space_gives_the_gradient_where_nothing_is_left_out(case):
    keras.utils.set_random_seed(1)
    model, batch = build_model(case), make_batch(case, 3)
    expected = oracle.per_example_gradients(model, losses_of(model), batch)
    check_release_spaces(model, batch, expected, 1e-5)


def autoencoder(seed=0):
    keras.utils.set_random_seed(seed)
    return keras.Sequential([keras.Input((8,)), TiedAutoencoder(5, name="tied")])


def rows(size=16):
    generator = np.random.default_rng(2)
    return generator.normal(size=(size, 8)).astype("float32")


def test_a_step_of_fit_is_the_mean_of_the_clipped_gradients():
    check_step(autoencoder(), rows(), rows(), tfdp.DPSGDOptimizer)


def test_it_is_captured_and_its_kernel_is_a_matrix_to_the_low_rank_algorithms():
    model = tfdp.make_private(autoencoder())
    noise = {"l2_norm_clip": 1.0, "noise_multiplier": 1.0}
    model.compile(tfdp.RGPOptimizer("sgd", rank=1, include=["tied/kernel"], **noise), loss="mse")
    assert "fallback" not in str(tfdp.explain(model))
    summary = tfdp.diagnostics.release_summary(model)
    assert summary.released == 1 * (8 + 5) + 5 + 8, summary


def test_its_capture_takes_no_name_among_those_that_keras_loads():
    names = keras.saving.get_custom_objects()
    assert not [name for name in names if name.endswith("CapturedTiedAutoencoder")]


def test_saving_and_loading_see_the_layer_of_its_author(tmp_path):
    model = tfdp.make_private(autoencoder())
    noise = {"l2_norm_clip": 1.0, "noise_multiplier": 1.0}
    model.compile(tfdp.DPSGDOptimizer("sgd", **noise), loss="mse")
    model.fit(rows(), rows(), batch_size=8, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert [type(layer) for layer in (model.layers[-1], loaded.layers[-1])] == [TiedAutoencoder] * 2
    np.testing.assert_array_equal(loaded(rows()), model(rows()))

"""The ledger belongs to the model and forgets nothing."""

import gc
import weakref

import keras
import numpy as np
import pytest

import tf_lowrank_dp as tfdp
from tf_lowrank_dp.accounting import LedgerEntry, PrivacyLedger, Sampling

DELTA = 1e-3
ARGUMENTS = {"noise_multiplier": 1.5, "accountant": "rdp", "delta": DELTA}


def epsilon_after(steps):
    entry = LedgerEntry(Sampling.poisson(24, 6), 1.5, steps=steps)
    return pytest.approx(PrivacyLedger([entry]).epsilon(DELTA, accountant="rdp"))


def spent(model):
    return tfdp.privacy_spent(model, DELTA)


@pytest.fixture
def fitted(private, small_model, data):
    """A private model after four steps, and a function that takes four more."""

    def fit(model):
        model.fit(*data(), batch_size=6, verbose=0)

    model = private(small_model(), "adam", **ARGUMENTS)
    fit(model)
    return model, fit


def test_several_fits_add_up(fitted):
    model, fit = fitted
    assert spent(model) == epsilon_after(4)
    fit(model)
    assert spent(model) == epsilon_after(8)


def test_recompiling_keeps_what_was_spent(fitted, private):
    model, fit = fitted
    private(model, "sgd", **ARGUMENTS)
    assert spent(model) == epsilon_after(4)
    fit(model)
    assert spent(model) == epsilon_after(8)


def test_recompiling_with_another_clip_and_noise_opens_a_line_of_its_own(fitted, private):
    model, fit = fitted
    private(model, "sgd", **{**ARGUMENTS, "noise_multiplier": 3.0, "l2_norm_clip": 0.1})
    fit(model)
    entries = [LedgerEntry(Sampling.poisson(24, 6), z, steps=4) for z in (1.5, 3.0)]
    expected = PrivacyLedger(entries).epsilon(DELTA, accountant="rdp")
    assert spent(model) == pytest.approx(expected)


def test_conversion_to_standard_and_back_keeps_what_was_spent(fitted, private):
    model, fit = fitted
    tfdp.make_standard(model)
    assert tfdp.privacy_spent(model, DELTA) > 0
    private(model, "adam", **ARGUMENTS)
    assert spent(model) == epsilon_after(4)
    fit(model)
    assert spent(model) == epsilon_after(8)


def test_converting_again_keeps_what_was_spent(fitted):
    model, fit = fitted
    tfdp.make_private(model, microbatch_size=2)
    assert spent(model) == epsilon_after(4)
    fit(model)
    assert spent(model) == epsilon_after(8)


def test_freezing_a_layer_between_fits_keeps_what_was_spent(fitted):
    model, fit = fitted
    model.layers[0].trainable = False
    fit(model)
    assert spent(model) == epsilon_after(8)


def test_a_saved_model_is_loaded_with_its_ledger_and_goes_on_once_it_is_private(fitted, tmp_path):
    model, fit = fitted
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert spent(loaded) == epsilon_after(4)
    with pytest.raises(tfdp.NotPrivateError, match="make_private.*after loading"):
        fit(loaded)
    assert spent(loaded) == epsilon_after(4)
    fit(tfdp.make_private(loaded))
    assert spent(loaded) == epsilon_after(8)
    assert int(loaded.optimizer.iterations) == 8


@pytest.mark.parametrize("name", ["model.h5", "model.hdf5"])
def test_a_format_without_a_place_for_the_ledger_is_refused(fitted, tmp_path, name):
    model, _ = fitted
    with pytest.raises(ValueError, match="does not keep what was spent"):
        model.save(tmp_path / name)
    assert not (tmp_path / name).exists()
    model.save(tmp_path / "model.keras")
    assert spent(keras.models.load_model(tmp_path / "model.keras")) == epsilon_after(4)


def test_such_a_format_is_refused_by_keras_own_function_and_the_next_file_holds_the_ledger(
    fitted, tmp_path
):
    model, _ = fitted
    with pytest.raises(ValueError, match="does not keep what was spent"):
        keras.models.save_model(model, tmp_path / "model.h5")
    keras.models.save_model(model, tmp_path / "model.keras")
    assert spent(keras.models.load_model(tmp_path / "model.keras")) == epsilon_after(4)
    tfdp.make_standard(model).compile("sgd")
    keras.models.save_model(model, tmp_path / "model.h5")
    loaded = keras.models.load_model(tmp_path / "model.h5")
    assert (loaded.get_weights()[0] == model.get_weights()[0]).all()


def test_saving_without_the_private_optimizer_warns_that_the_ledger_stays_behind(fitted, tmp_path):
    model, _ = fitted
    model.compile("sgd")
    with pytest.warns(UserWarning, match="what was spent is not saved"):
        model.save(tmp_path / "model.keras")


def test_a_loaded_model_keeps_its_ledger_when_it_is_recompiled_before_it_is_asked(
    fitted, tmp_path, private
):
    model, fit = fitted
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    private(loaded, "sgd", **ARGUMENTS)
    assert spent(loaded) == epsilon_after(4)


def test_a_loaded_model_made_standard_keeps_its_ledger_and_its_inner_optimizer(fitted, tmp_path):
    model, _ = fitted
    model.save(tmp_path / "model.keras")
    loaded = tfdp.make_standard(keras.models.load_model(tmp_path / "model.keras"))
    assert type(loaded.optimizer) is keras.optimizers.Adam
    assert tfdp.privacy_spent(loaded, DELTA) > 0


def test_a_calibrated_multiplier_is_kept_by_a_saved_model(private, small_model, data, tmp_path):
    arguments = {"epsilon": 3.0, "planned_steps": 8, "delta": DELTA, "accountant": "rdp"}
    model = private(small_model(), **arguments)
    model.fit(*data(), batch_size=6, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = tfdp.make_private(keras.models.load_model(tmp_path / "model.keras"))
    loaded.fit(*data(), batch_size=6, verbose=0)
    multipliers = [m.optimizer.calibrated_noise_multiplier for m in (model, loaded)]
    assert multipliers[0] == multipliers[1]
    assert spent(model) < spent(loaded) <= 3.0
    with pytest.raises(tfdp.PrivacyBudgetExceededError):
        loaded.fit(*data(), batch_size=6, verbose=0)


def test_saved_weights_bring_their_ledger(fitted, tmp_path, private, small_model):
    model, fit = fitted
    model.save_weights(tmp_path / "model.weights.h5")
    other = private(small_model(), "adam", **ARGUMENTS)
    other.optimizer.build(other.trainable_variables)
    other.load_weights(tmp_path / "model.weights.h5")
    assert spent(other) == epsilon_after(4)
    fit(other)
    assert spent(other) == epsilon_after(8)


def test_saved_weights_bring_their_ledger_when_the_model_is_recompiled_before_it_is_asked(
    fitted, tmp_path, private, small_model
):
    fitted[0].save_weights(tmp_path / "model.weights.h5")
    other = private(small_model(), "adam", **ARGUMENTS)
    other.optimizer.build(other.trainable_variables)
    other.load_weights(tmp_path / "model.weights.h5")
    other.compile(tfdp.DPSGDOptimizer("sgd", l2_norm_clip=1.0, **ARGUMENTS))
    assert spent(other) == epsilon_after(4)


def test_loading_earlier_weights_refunds_nothing(fitted, tmp_path):
    model, fit = fitted
    model.save_weights(tmp_path / "early.weights.h5")
    fit(model)
    model.load_weights(tmp_path / "early.weights.h5")
    assert spent(model) == epsilon_after(8)
    fit(model)
    assert spent(model) == epsilon_after(12)


def test_an_interrupted_fit_counts_the_steps_it_took(fitted, data):
    model, _ = fitted

    class Stop(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 1:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model.fit(*data(), batch_size=6, verbose=0, callbacks=[Stop()])
    assert spent(model) == epsilon_after(6)


def test_a_checkpoint_inside_fit_holds_the_steps_until_then(private, small_model, data, tmp_path):
    model = private(small_model(), **ARGUMENTS)
    checkpoint = keras.callbacks.ModelCheckpoint(tmp_path / "{epoch}.keras")
    model.fit(*data(), batch_size=6, epochs=2, verbose=0, callbacks=[checkpoint])
    loaded = tfdp.make_private(keras.models.load_model(tmp_path / "1.keras"))
    assert spent(loaded) == epsilon_after(4)


def test_neither_config_nor_file_holds_a_key(private, small_model, data, tmp_path):
    model = private(small_model(), seed=987654321987, **ARGUMENTS)
    model.fit(*data(), batch_size=6, verbose=0)
    model.save(tmp_path / "model.keras")
    key = model.__dict__["_privacy_state"].run.engine.noise._key.numpy()[0]
    texts = [repr(model.optimizer), str(model.optimizer.get_config()), str(model.get_config())]
    assert not any(str(key) in text for text in texts)
    content = (tmp_path / "model.keras").read_bytes()
    assert key.tobytes() not in content and str(key).encode() not in content
    assert all("noise" not in v.path for v in [*model.variables, *model.optimizer.variables])


def test_a_deleted_model_is_garbage(private, small_model, data):
    model = private(small_model(), **ARGUMENTS)
    model.fit(*data(), batch_size=6, verbose=0)
    spent(model)
    reference = weakref.ref(model)
    keras.backend.clear_session()
    del model
    gc.collect()
    assert reference() is None


@pytest.mark.parametrize("ordinary", ["sgd", "adam", "lion"])
@pytest.mark.parametrize(("trained", "built"), [(False, False), (True, False), (True, True)])
def test_weights_load_into_an_ordinary_model_whatever_it_is_compiled_with(
    private, small_model, data, tmp_path, ordinary, trained, built
):
    """An optimizer of as many variables as the file has entries for its own had failed to load."""
    model, other = private(small_model(), "adam"), small_model()
    if trained:
        model.fit(*data(), batch_size=6, verbose=0)
    model.save_weights(tmp_path / "model.weights.h5")
    other.compile(ordinary, "sparse_categorical_crossentropy")
    if built:
        other.fit(*data(), verbose=0)
    other.load_weights(tmp_path / "model.weights.h5")
    for mine, theirs in zip(model.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_array_equal(mine, theirs)

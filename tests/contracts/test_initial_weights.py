"""`W_0`, the weights that RGP's history begins with: kept, saved and restored."""

import keras
import numpy as np
import pytest

import tf_lowrank_dp as tfdp
from tests.contracts.test_optimizers import CASES, NOISY, compiled, fit, make_data, weights


def test_the_history_begins_with_the_weights_before_the_first_step():
    model = compiled(CASES["rgp_history"].optimizer("sgd", **NOISY))
    before = weights(model)
    fit(model)
    fit(model)
    assert list(model.optimizer.initial_weights) == [0]
    for index, value in model.optimizer.initial_weights.items():
        np.testing.assert_array_equal(value, before[index])


def test_a_new_optimizer_begins_a_new_history():
    model = compiled(CASES["rgp_history"].optimizer("sgd", **NOISY))
    fit(model)
    start = weights(model)
    model.compile(CASES["rgp_history"].optimizer("sgd", **NOISY), loss=model.loss)
    model.jit_compile = False
    fit(model)
    assert list(model.optimizer.initial_weights) == [0]
    for index, value in model.optimizer.initial_weights.items():
        np.testing.assert_array_equal(value, start[index])


def test_initial_weights_loaded_into_a_traced_model_are_used_by_its_next_step():
    """A restored backup changes the value that compiled steps read, not only the attribute."""
    model = compiled(CASES["rgp_history"].optimizer("sgd", **NOISY))
    fit(model)
    traced = dict(model.optimizer.initial_weights)
    store = {}
    model.optimizer.save_own_variables(store)
    changed = {
        key: value + 1.0 if key.startswith("initial") else value for key, value in store.items()
    }
    model.optimizer.load_own_variables(changed)
    for index, value in traced.items():
        np.testing.assert_array_equal(value, store[f"initial_weights_{index}"] + 1.0)


def test_initial_weights_stay_with_their_variable_when_a_layer_before_it_is_frozen():
    keras.utils.set_random_seed(0)
    layers = [keras.layers.Dense(12, name=name) for name in ("one", "two", "three")]
    model = keras.Sequential([keras.Input((12,)), *layers])
    tfdp.make_private(model)
    optimizer = tfdp.RGPOptimizer("sgd", rank=1, **NOISY)
    model.compile(optimizer, loss="mse", jit_compile=False)
    before = weights(model)
    x = np.ones((8, 12), "float32")
    model.fit(x, x, batch_size=4, epochs=1, verbose=0)
    layers[0].trainable = False
    tfdp.diagnostics.release_summary(model)  # looks only
    model.fit(x, x, batch_size=4, epochs=1, verbose=0)
    assert list(optimizer.initial_weights) == [0]  # of "two"; the output layer is not among them
    np.testing.assert_array_equal(optimizer.initial_weights[0], before[2])


def initial_weights(model):
    return {index: value.numpy() for index, value in model.optimizer.initial_weights.items()}


def trained(epochs=1):
    model = compiled(CASES["rgp_history"].optimizer("sgd", **NOISY))
    fit(model, epochs)
    return model


def test_a_backup_restores_the_initial_weights(tmp_path):
    """The second model starts from other weights, but its history is that of the first."""

    class Stop(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 1:
                raise KeyboardInterrupt

    def backup():
        return keras.callbacks.BackupAndRestore(tmp_path / "backup", delete_checkpoint=False)

    first = compiled(CASES["rgp_history"].optimizer("sgd", **NOISY))
    arguments = {"batch_size": 8, "epochs": 2, "verbose": 0}
    with pytest.raises(KeyboardInterrupt):
        first.fit(*make_data(), callbacks=[backup(), Stop()], **arguments)
    second = compiled(CASES["rgp_history"].optimizer("sgd", **NOISY), seed=3)
    second.fit(*make_data(), callbacks=[backup()], **arguments)
    expected = initial_weights(first)
    assert list(expected) == [0] and list(initial_weights(second)) == [0]
    np.testing.assert_array_equal(initial_weights(second)[0], expected[0])
    assert int(second.optimizer.iterations) == 6


def test_saved_weights_hold_the_initial_weights_and_the_steps(tmp_path):
    first, second = trained(), trained()
    first.save_weights(tmp_path / "model.weights.h5")
    fit(second)
    second.load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_array_equal(initial_weights(second)[0], initial_weights(first)[0])
    assert int(second.optimizer.iterations) == 3


def test_a_load_that_fails_leaves_the_initial_weights_as_they_were(tmp_path, monkeypatch):
    first, second = trained(), compiled(CASES["rgp_history"].optimizer("sgd", **NOISY), seed=3)
    fit(second)
    first.save_weights(tmp_path / "model.weights.h5")
    before = initial_weights(second)[0]
    load = type(second.optimizer).load_own_variables

    def load_and_fail(self, store):
        load(self, store)
        assert np.any(initial_weights(second)[0] != before)
        raise OSError("no more")

    monkeypatch.setattr(type(second.optimizer), "load_own_variables", load_and_fail)
    with pytest.raises(ValueError, match="no more"):
        second.load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_array_equal(initial_weights(second)[0], before)


def test_without_warmup_the_first_carriers_are_random_and_training_moves_every_kernel():
    model = compiled(tfdp.RGPOptimizer("adam", rank=2, warmup_steps=0, include=["hidden"], **NOISY))
    before = weights(model)
    fit(model, epochs=3)
    for old, new in zip(before, weights(model), strict=True):
        assert np.all(np.isfinite(new)) and np.any(new != old)

"""Files of private models that Keras loads without their optimizer: what was spent is known."""

import dataclasses

import h5py
import keras
import numpy as np
import pytest

import tf_lowrank_dp as tfdp
from tf_lowrank_dp.accounting import PrivacyLedger
from tf_lowrank_dp.training.state import ledger_of

DELTA = 1e-3


@keras.saving.register_keras_serializable("known_files")
class Pair(keras.Model):
    """Makes the model that is trained privately itself, as it does again when it is loaded."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.judge = keras.Sequential([keras.Input((5,)), keras.layers.Dense(3)])
        self.maker = keras.layers.Dense(5)

    def call(self, x):
        return self.judge(self.maker(x))


def of_layers(*units):
    return keras.Sequential([keras.Input((5,)), *map(keras.layers.Dense, units)])


def of_one_layer():
    return of_layers(3)


@pytest.fixture
def train(private, data):
    def train(model):
        private(model, noise_multiplier=1.0).fit(*data(), batch_size=6, verbose=0)
        return model

    return train


@pytest.fixture
def fitted(train):
    return train(of_one_layer())


def without_compile(train, path):
    model = train(of_one_layer())
    model.save(path / "model.keras")
    return model, keras.models.load_model(path / "model.keras", compile=False)


def weights_alone(train, path):
    model, other = train(of_one_layer()), of_one_layer()
    model.save_weights(path / "model.weights.h5")
    other.load_weights(path / "model.weights.h5")
    return model, other


def weights_before_compile(train, path):
    model, other = weights_alone(train, path)
    optimizer = tfdp.DPSGDOptimizer("sgd", l2_norm_clip=1.0, noise_multiplier=1.0)
    tfdp.make_private(other).compile(optimizer, "mse")
    return model, other


def shards(train, path):
    model, other = train(of_layers(40, 3)), of_layers(40, 3)
    model.save_weights(path / "model.weights.json", max_shard_size=1e-6)
    assert len([*path.glob("*.h5")]) > 1
    other.load_weights(path / "model.weights.json")
    return model, other


def kernels_that_are_merged(train, path):
    """A file holds the sum of a kernel and its adapters, of which there is no digest."""
    model = of_layers(3)
    model.layers[0].enable_lora(1)
    model.layers[0].bias.trainable = False
    train(model).save(path / "model.keras")
    return model, keras.models.load_model(path / "model.keras", compile=False)


def a_part_of_a_class_that_makes_it(train, path):
    pair = Pair()
    pair(np.zeros((1, 5)))
    train(pair.judge)
    pair.save(path / "pair.keras")
    return pair, keras.models.load_model(path / "pair.keras")


@pytest.mark.parametrize(
    "brought",
    [
        without_compile,
        weights_alone,
        weights_before_compile,
        shards,
        kernels_that_are_merged,
        a_part_of_a_class_that_makes_it,
    ],
)
def test_a_file_that_is_loaded_without_its_optimizer_brings_what_was_spent(
    train, tmp_path, brought
):
    """0.00 was stated of a loaded class that makes the model which it trains, for 18.79."""
    model, other = brought(train, tmp_path)
    assert tfdp.privacy_spent(other, DELTA) == tfdp.privacy_spent(model, DELTA) > 1.0
    assert not ledger_of(other).prior_spend_unknown


def test_what_others_change_of_a_file_before_anybody_asks_is_noticed(fitted, data, tmp_path):
    """0.00, taken as public, was stated of a classifier that ordinary steps had trained on."""
    fitted.save(tmp_path / "model.keras")
    other = keras.models.load_model(tmp_path / "model.keras", compile=False)
    other.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    other.fit(*data(), verbose=0)
    assert ledger_of(other).num_steps == ledger_of(fitted).num_steps > 0
    assert ledger_of(other).prior_spend_unknown and not ledger_of(fitted).prior_spend_unknown


def test_what_others_changed_before_a_file_was_loaded_stays_unknown(
    fitted, private, data, step_in_a_graph, tmp_path
):
    """A head learns from features that somebody changes and puts back by the file."""
    fitted.save_weights(tmp_path / "model.weights.h5")
    fitted.trainable = False
    model = private(keras.Sequential([keras.Input((5,)), fitted, keras.layers.Dense(3)]))
    sampler = tfdp.PoissonSampler(*data(), batch_size=6, steps=3)
    step = step_in_a_graph(model, sampler)
    for number, batch in enumerate(sampler.as_dataset()):
        if number == 1:
            fitted.layers[0].kernel.assign_add(np.ones((5, 3)))
        step(batch)
    same = keras.Sequential([keras.Input((5,)), *fitted.layers])
    same.load_weights(tmp_path / "model.weights.h5")
    assert ledger_of(model).prior_spend_unknown


def test_files_that_are_loaded_one_after_another_are_known(private, data, tmp_path):
    model, other = private(of_layers(4, 3), noise_multiplier=1.0), of_layers(4, 3)
    for epoch in range(3):
        model.fit(*data(), batch_size=6, verbose=0)
        model.save_weights(tmp_path / f"{epoch}.weights.h5")
        other.load_weights(tmp_path / f"{epoch}.weights.h5")
        assert ledger_of(other) == ledger_of(model)
        assert not ledger_of(other).prior_spend_unknown
    other.load_weights(tmp_path / "0.weights.h5")
    assert ledger_of(other).num_steps == ledger_of(model).num_steps  # it only grows
    assert not ledger_of(other).prior_spend_unknown


def test_a_file_in_which_no_ledger_can_be_found_is_unknown(fitted, tmp_path, monkeypatch):
    """Keras notes errors of single objects, and loads the rest: 0.00 was stated for 8.04."""

    def fail(store, names):
        raise OSError("truncated file")

    fitted.save_weights(tmp_path / "model.weights.h5")
    monkeypatch.setattr("tf_lowrank_dp.optimizers.known_files.stored_beside", fail)
    other = of_one_layer()
    other.load_weights(tmp_path / "model.weights.h5", skip_mismatch=True)
    np.testing.assert_array_equal(other.get_weights()[0], fitted.get_weights()[0])
    assert ledger_of(other).prior_spend_unknown


def test_a_ledger_that_contradicts_what_is_known_is_unknown(fitted, tmp_path):
    fitted.save_weights(tmp_path / "first.weights.h5")
    fitted.save_weights(tmp_path / "second.weights.h5")
    with h5py.File(tmp_path / "second.weights.h5", "a") as file:
        ledger = ledger_of(fitted)
        (entry,) = ledger.entries
        other_run = dataclasses.replace(entry, noise_multiplier=9.0)
        del file["optimizer/vars/privacy_ledger"]
        text = PrivacyLedger([other_run]).to_json().encode()
        file["optimizer/vars/privacy_ledger"] = np.frombuffer(text, np.uint8)
    other = of_one_layer()
    other.load_weights(tmp_path / "first.weights.h5")
    other.load_weights(tmp_path / "second.weights.h5", skip_mismatch=True)
    assert ledger_of(other).num_steps == ledger.num_steps
    assert ledger_of(other).prior_spend_unknown


def test_a_model_that_was_loaded_without_its_optimizer_writes_no_ledger(fitted, tmp_path):
    """By which those who protect other data than the file's leave it behind, in a process each."""
    files = tmp_path / "first.keras", tmp_path / "second.keras"
    fitted.save(files[0])
    keras.models.load_model(files[0], compile=False).save(files[1])
    assert [b"privacy_ledger" in file.read_bytes() for file in files] == [True, False]


@pytest.mark.skipif(not hasattr(keras.callbacks, "OrbaxCheckpoint"), reason="no such callback")
def test_a_checkpoint_that_keeps_no_ledger_is_refused_before_anything_is_spent(fitted, data):
    """0.00 was stated of a model that was loaded from one, for 12.06."""
    before = ledger_of(fitted).num_steps
    kind = keras.callbacks.OrbaxCheckpoint
    callback = kind.__new__(kind)  # which needs orbax-checkpoint to be made otherwise
    with pytest.raises(ValueError, match="BackupAndRestore"):
        fitted.fit(*data(), batch_size=6, verbose=0, callbacks=[callback])
    assert ledger_of(fitted).num_steps == before


@pytest.mark.parametrize("asked", ["the model", "its optimizer", "after make_private", "a head"])
def test_a_state_with_steps_of_which_nothing_is_known_is_unknown(fitted, asked):
    """As Keras loads a checkpoint of Orbax: the model of its config, and then the state."""
    config = keras.saving.serialize_keras_object(fitted)
    model, copy = (keras.saving.deserialize_keras_object(config) for _ in range(2))
    model.set_state_tree(fitted.get_state_tree(value_format="numpy_array"))
    if asked == "its optimizer":
        assert model.optimizer.ledger.prior_spend_unknown
    elif asked == "after make_private":
        tfdp.make_private(model)
    elif asked == "a head":
        head = keras.Sequential([keras.Input((5,)), model, keras.layers.Dense(3)])
        assert ledger_of(head).prior_spend_unknown
    assert ledger_of(model).prior_spend_unknown
    assert not ledger_of(copy).prior_spend_unknown  # whose weights are new


def test_such_a_state_is_unknown_whatever_is_known_of_some_of_its_values(train, data, tmp_path):
    """2.82 was stated for 18.45 where an older file of the model had been loaded as well."""
    fitted = train(of_layers(4, 3))
    fitted.save(tmp_path / "older.keras")
    known = keras.models.load_model(tmp_path / "older.keras")
    fitted.layers[0].trainable = False
    fitted.compile(fitted.optimizer, loss=fitted.loss)
    fitted.fit(*data(), batch_size=6, verbose=0)
    model = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(fitted))
    model.set_state_tree(fitted.get_state_tree(value_format="numpy_array"))
    model.set_weights(fitted.get_weights())  # Keras has other paths for the frozen ones
    assert ledger_of(model).num_steps == ledger_of(known).num_steps > 0  # by the frozen layer
    assert ledger_of(model).prior_spend_unknown and not ledger_of(known).prior_spend_unknown


def test_values_of_other_files_are_public(fitted, tmp_path):
    tfdp.make_standard(fitted).save_weights(tmp_path / "other.weights.h5")
    other = of_one_layer()
    other.load_weights(tmp_path / "other.weights.h5")
    text = tfdp.privacy_statement(other, DELTA)
    assert "initial weights taken as public" in text.splitlines()[0]


@pytest.mark.parametrize("entry", ["privacy_ledger", "private_values"])
def test_of_a_damaged_file_it_is_known_that_something_was_spent(fitted, tmp_path, entry):
    path = tmp_path / "model.weights.h5"
    fitted.save_weights(path)
    steps = ledger_of(fitted).num_steps
    with h5py.File(path, "a") as file:
        del file[f"optimizer/vars/{entry}"]
        file[f"optimizer/vars/{entry}"] = np.arange(5, dtype=np.uint8)
    other = of_one_layer()
    other.load_weights(path)
    assert ledger_of(other).prior_spend_unknown == (entry == "privacy_ledger")
    assert ledger_of(other).num_steps == (0 if entry == "privacy_ledger" else steps)

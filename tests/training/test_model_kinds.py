"""Sequential, functional and subclassed models; several inputs and outputs, as lists and dicts."""

import keras
import numpy as np
import pytest


def sgd():
    return keras.optimizers.SGD(0.1, momentum=0.9)


def functional_with_dicts():
    keras.utils.set_random_seed(1)
    inputs = {"a": keras.Input((5,), name="a"), "b": keras.Input((2,), name="b")}
    joined = keras.layers.Concatenate()([keras.layers.Dense(4, "relu")(inputs["a"]), inputs["b"]])
    outputs = {
        "value": keras.layers.Dense(1, name="value")(joined),
        "class": keras.layers.Dense(3, name="class")(joined),
    }
    return keras.Model(inputs, outputs)


def functional_with_lists():
    keras.utils.set_random_seed(2)
    a, b = keras.Input((5,)), keras.Input((2,))
    shared = keras.layers.Dense(3, "tanh")  # one layer, used twice
    hidden = shared(a)
    again = shared(keras.layers.Concatenate()([hidden, b]))
    return keras.Model([a, b], [keras.layers.Dense(1)(hidden), keras.layers.Dense(1)(again)])


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__()
        self.hidden = keras.layers.Dense(4, "tanh")
        self.head = keras.layers.Dense(3)

    def call(self, inputs, training=False):
        return self.head(self.hidden(inputs))

    def describe(self):
        return "mine"


def subclassed():
    keras.utils.set_random_seed(3)
    model = Subclassed()
    model(np.zeros((1, 5), "float32"))
    return model


@pytest.fixture
def two_inputs():
    generator = np.random.default_rng(5)
    return [generator.normal(size=(24, n)).astype("float32") for n in (5, 2)]


@pytest.fixture
def two_targets():
    generator = np.random.default_rng(6)
    return generator.normal(size=(24, 1)).astype("float32"), generator.integers(0, 3, 24)


def test_subclassed_models_train_as_before_and_keep_class_and_methods(twins, data):
    _, own = twins(subclassed, data(), sgd)
    assert type(own) is Subclassed and own.describe() == "mine"


@pytest.mark.parametrize("loss_weights", [None, {"value": 0.3, "class": 2.0}])
def test_dicts_of_inputs_and_outputs_train_as_before(twins, two_inputs, two_targets, loss_weights):
    x = dict(zip(("a", "b"), two_inputs, strict=True))
    y = dict(zip(("value", "class"), two_targets, strict=True))
    loss = {
        "value": "mse",
        "class": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    }
    twins(functional_with_dicts, (x, y), sgd, loss=loss, loss_weights=loss_weights)


@pytest.mark.parametrize("loss_weights", [None, [0.5, 1.5]])
def test_lists_of_inputs_and_outputs_train_as_before(twins, two_inputs, two_targets, loss_weights):
    x, y = tuple(two_inputs), (two_targets[0], -two_targets[0])
    twins(functional_with_lists, (x, y), sgd, loss=["mse", "mae"], loss_weights=loss_weights)


def test_poisson_sampling_takes_dicts_of_arrays(private, two_inputs, two_targets):
    model = functional_with_dicts()
    losses = {"value": "mse", "class": keras.losses.SparseCategoricalCrossentropy(from_logits=True)}
    private(model, "sgd", losses, l2_norm_clip=1.0, noise_multiplier=1.0)
    history = model.fit(
        dict(zip(("a", "b"), two_inputs, strict=True)),
        dict(zip(("value", "class"), two_targets, strict=True)),
        batch_size=6,
        epochs=2,
        verbose=0,
    )
    assert np.all(np.isfinite(history.history["loss"]))
    assert set(history.history) == {"loss", "value_loss", "class_loss"}


def test_a_nested_model_trains_as_before(twins, data, small_model):
    def build():
        inner = small_model(outputs=4)
        return keras.Sequential([keras.Input((5,)), inner, keras.layers.Dense(3)])

    twins(build, data(), sgd)


def test_frozen_layers_stay_as_they_are(twins, data, small_model):
    def build():
        model = small_model()
        model.layers[0].trainable = False
        return model

    _, own = twins(build, data(), sgd)
    np.testing.assert_array_equal(own.layers[0].kernel, build().layers[0].kernel)


def test_evaluate_predict_and_export_work(private, data, small_model, tmp_path):
    model = private(small_model(), metrics=["accuracy"], l2_norm_clip=1.0, noise_multiplier=1.0)
    x, y = data()
    model.fit(x, y, batch_size=8, verbose=0, validation_split=0.25)
    found = model.evaluate(x, y, verbose=0, return_dict=True)
    predicted = model.predict(x, verbose=0)
    assert predicted.shape == (24, 3)
    assert found["accuracy"] == pytest.approx(np.mean(predicted.argmax(-1) == y))
    model.export(tmp_path / "exported", verbose=False)
    assert (tmp_path / "exported" / "saved_model.pb").exists()

"""What a callback writes into variables that steps read and nobody trains is told.

Guarantee (`WrittenBeside`): `fit` warns once of any such variable of more than one value.
"""

import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_lowrank_dp as tfdp

NEVER_TRAINED = "the steps read and nobody trains"


@keras.saving.register_keras_serializable("tests")
class Bank(keras.layers.Layer):
    """Takes prototypes off, which nobody trains."""

    def __init__(self, size=3, **arguments):
        super().__init__(**arguments)
        self.size = size

    def build(self, shape):
        self.kept = self.add_weight(shape=(self.size,), trainable=False, initializer="zeros")

    def call(self, x):
        return x - self.kept


@pytest.fixture
def case(private, data):
    """Builds a model, and the variable that its steps read."""

    def build(where, size=3):
        bank, foreign = Bank(size), tf.Variable(tf.zeros([size]))
        layers = [keras.layers.Dense(3), *([bank] if where == "weight" else [])]
        model = keras.Sequential([keras.Input((5,)), *layers])
        entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")

        def loss(y, logits):
            return entropy(y, logits - foreign if where == "loss" else logits)

        private(model, noise_multiplier=2.0, delta=1e-3, loss=loss)
        return model, bank.kept if where == "weight" else foreign

    return build


class Fills(keras.callbacks.Callback):
    """With what it is given, in one hook."""

    def __init__(self, variable, value, hook="on_epoch_end", within=None):
        super().__init__()
        self.within = within
        setattr(self, hook, lambda *_, logs=None: self.fill(variable, value))

    def fill(self, variable, value):
        if self.within is None:
            variable.assign(value)
            return
        with tfdp.post_processing(self.within):
            variable.assign_add(value)


def warned_of(model, data, *callbacks):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        model.fit(*data(), batch_size=8, epochs=3, verbose=0, callbacks=[*callbacks])
    return sum(NEVER_TRAINED in str(each.message) for each in found)


@pytest.mark.parametrize("where", ["weight", "loss"])
def test_a_bank_that_a_callback_fills_is_warned_of(where, case, data):
    for hook in ("on_epoch_end", "on_epoch_begin", "on_train_batch_end"):
        model, variable = case(where)
        assert warned_of(model, data, Fills(variable, data()[0].mean(0)[:3], hook)) == 1


@pytest.mark.parametrize("where", ["weight", "loss"])
def test_a_function_of_a_stock_callback_is_one_of_the_users(where, case, data):
    model, variable = case(where)
    fill = keras.callbacks.LambdaCallback(on_epoch_end=lambda *_: variable.assign(np.ones(3)))
    assert warned_of(model, data, fill) == 1


def test_who_writes_nothing_is_not_warned(case, data):
    model, variable = case("weight")
    nothing = Fills(variable, np.zeros(3))
    assert warned_of(model, data, nothing, keras.callbacks.EarlyStopping("loss")) == 0
    model, variable = case("loss")
    assert warned_of(model, data, Fills(variable, np.zeros(3))) == 0


def test_a_schedule_of_one_number_is_not_warned_of(case, data):
    model, variable = case("loss", size=1)
    assert warned_of(model, data, Fills(variable, [0.5])) == 0


def test_what_is_stated_to_be_computed_of_released_values_is_on_record(case, data):
    """So that no other model that reads the bank takes it for public either."""
    model, variable = case("weight")
    fill = Fills(variable, np.full(3, 0.5, "float32"), within=model)
    assert warned_of(model, data, fill) == 0
    spent = tfdp.privacy_spent(model, 1e-3)
    assert spent > 0.0
    other = keras.Sequential([keras.Input((3,)), model.layers[-1]])
    assert tfdp.privacy_spent(other, 1e-3) == spent

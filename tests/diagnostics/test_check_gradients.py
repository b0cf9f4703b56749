"""`check_gradients` passes where the gradients are right and names what is wrong."""

import keras
import numpy as np
import pytest

import tf_lowrank_dp as tfdp
from tf_lowrank_dp.gradient_methods.methods import METHODS
from tf_lowrank_dp.per_example.materialized import Materialized


@pytest.fixture
def model():
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [keras.Input((5,)), keras.layers.Dense(4, "tanh"), keras.layers.Dense(3, name="head")]
    )
    tfdp.make_private(model)
    optimizer = tfdp.DPSGDOptimizer("sgd", l2_norm_clip=1.0, noise_multiplier=1.0)
    model.compile(optimizer, loss="mse")
    return model


@pytest.fixture
def rows():
    generator = np.random.default_rng(0)
    return [generator.normal(size=(4, n)).astype("float32") for n in (5, 3)]


def test_right_gradients_pass_and_spend_nothing(model, rows):
    weights = [np.array(v) for v in model.trainable_variables]
    assert tfdp.check_gradients(model, *rows) < 1e-5
    assert tfdp.privacy_spent(model, 1e-5) == 0.0
    for before, after in zip(weights, model.trainable_variables, strict=True):
        np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize("factor", [1.01, np.nan, np.inf])
def test_wrong_gradients_are_refused_by_name(model, rows, monkeypatch, factor):
    bookkeeping = METHODS["bookkeeping"]

    def wrong(*args):
        found = bookkeeping(*args)
        found.gradients[-1] = Materialized(found.gradients[-1].materialize() * factor)
        return found

    monkeypatch.setitem(METHODS, "auto", wrong)
    with pytest.raises(AssertionError, match="(?s)Expected.*Received"):
        tfdp.check_gradients(model, *rows)


def test_sample_weight_is_part_of_the_loss(model, rows):
    assert tfdp.check_gradients(model, *rows, sample_weight=np.array([0.0, 1.0, 2.0, 3.0])) < 1e-5


class Sampling(keras.layers.Layer):
    """Draws where Keras' examples do: in call, with a seed generator."""

    def __init__(self):
        super().__init__()
        self.seed_generator = keras.random.SeedGenerator(0)

    def call(self, x):
        return x + keras.random.normal(keras.ops.shape(x), seed=self.seed_generator)


@pytest.mark.parametrize("method", sorted(METHODS))
def test_random_layers_raise_no_false_alarm(rows, method):
    layers = [keras.layers.Dense(4), keras.layers.Dropout(0.5), Sampling(), keras.layers.Dense(3)]
    model = keras.Sequential([keras.Input((5,)), *layers])
    tfdp.make_private(model)
    optimizer = tfdp.DPSGDOptimizer(
        "sgd", l2_norm_clip=1.0, noise_multiplier=1.0, gradient_method=method
    )
    model.compile(optimizer, loss="mse")
    seeds = [np.array(v) for v in model.non_trainable_variables]
    assert tfdp.check_gradients(model, *rows) < 1e-5
    for before, after in zip(seeds, model.non_trainable_variables, strict=True):
        np.testing.assert_array_equal(before, after)


def test_bfloat16_raises_no_false_alarm(rows):
    policy = keras.dtype_policies.DTypePolicy("mixed_bfloat16")
    layers = [keras.layers.Dense(32, "gelu", dtype=policy) for _ in range(4)]
    model = keras.Sequential([keras.Input((5,)), *layers, keras.layers.Dense(3)])
    tfdp.make_private(model)
    model.compile(tfdp.DPSGDOptimizer("sgd", l2_norm_clip=1.0, noise_multiplier=1.0), loss="mse")
    assert tfdp.check_gradients(model, *rows) > 1e-4  # above the tolerance for float32


class Normalized(keras.layers.Layer):
    """A cell whose own layer is built when it is called first, as Keras does in `fit`."""

    def __init__(self):
        super().__init__()
        self.units = self.state_size = 3
        self.cell, self.norm = keras.layers.SimpleRNNCell(3), keras.layers.LayerNormalization()

    def call(self, x, states):
        output, states = self.cell(x, states)
        return self.norm(output), states


def test_a_model_that_is_not_built_yet_is_built():
    layers = [keras.layers.Dense(2), keras.layers.RNN(Normalized())]
    model = keras.Sequential([keras.Input((4, 2)), *layers])
    tfdp.make_private(model)
    model.compile(tfdp.DPSGDOptimizer("sgd", l2_norm_clip=1.0, noise_multiplier=1.0), loss="mse")
    assert tfdp.check_gradients(model, np.ones((2, 4, 2), "float32"), np.ones((2, 3))) < 1e-4

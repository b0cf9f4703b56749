"""Layers that call others where those cannot be recorded are differentiated as a whole, unasked."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_lowrank_dp as tfdp
from tests.contracts.case import LayerCase
from tests.contracts.checks import check, check_probe, make_batch
from tests.contracts.layer_cases import build_model

L, ops = keras.layers, keras.ops


class Holding(L.Layer):
    """A layer that gives another one to a function."""

    def __init__(self, layer, function):
        super().__init__()
        self.layer, self.function = layer, function

    def build(self, shape):
        self.layer.build((None, shape[-1]))  # not inside of a loop

    def call(self, x):
        return self.function(self.layer, x)


def called(layer, x):
    return layer(x)


def in_a_loop(layer, x):
    return ops.moveaxis(ops.map(layer, ops.moveaxis(x, 1, 0)), 0, 1)


def in_a_while_loop(layer, x):
    return ops.while_loop(lambda i, h: i < 2, lambda i, h: (i + 1, layer(h)), (0, x))[1]


def time_first(layer, x):
    rows = layer(ops.reshape(ops.transpose(x, (1, 0, 2)), (-1, x.shape[2])))
    return ops.transpose(ops.reshape(rows, (x.shape[1], -1, rows.shape[1])), (1, 0, 2))


def held(function, depth=1):
    def make():
        layer = L.Dense(5, "tanh")
        for number in range(depth):
            layer = Holding(layer, function if number == 0 else called)
        return layer

    return make


CASES = [
    LayerCase("map", held(in_a_loop), (4, 5)),
    LayerCase("while loop", held(in_a_while_loop), (4, 5)),
    LayerCase("time first", held(time_first), (4, 5)),
    LayerCase("inside of another layer", held(time_first, depth=2), (4, 5)),
]
by_name = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


@by_name
def test_gradients_are_those_of_examples_one_at_a_time(case):
    keras.utils.set_random_seed(1)
    model, batch = build_model(case), make_batch(case, 3)
    check(model, batch, "bookkeeping", "graph", 2e-5)
    check_probe(model, batch)
    assert "fallback of the whole of holding" in str(tfdp.explain(model))


def test_the_loop_of_a_layer_around_takes_the_larger_one():
    keras.utils.set_random_seed(1)
    inner = Holding(L.Dense(5), called)
    model = build_model(LayerCase("outer", lambda: Holding(inner, in_a_loop), (4, 5)))
    check(model, make_batch(CASES[0], 3), "bookkeeping", "graph", 2e-5)


def test_they_train_in_fit():
    model = tfdp.make_private(build_model(CASES[0]))
    model.compile(tfdp.DPSGDOptimizer("sgd", l2_norm_clip=1.0, noise_multiplier=1.0), "mse")
    before = [v.numpy() for v in model.trainable_variables]
    model.fit(np.ones((12, 4, 5)), np.ones((12, 3)), batch_size=4, verbose=0)
    for value, variable in zip(before, model.trainable_variables, strict=True):
        assert np.any(variable.numpy() != value), variable.path


class LoopingModel(keras.Model):
    """The loop is in the model itself, around which there is no layer."""

    def __init__(self):
        super().__init__()
        self.dense, self.last = L.Dense(5), L.Dense(3)

    def build(self, shape):
        self.dense.build((None, 5))
        self.last.build((None, 5))

    def call(self, x):
        return self.last(ops.mean(in_a_loop(self.dense, x), 1))


@pytest.mark.parametrize("gradient_method", ["auto", "vectorized"])
def test_a_loop_in_the_model_itself_is_refused_and_the_remedy_trains(gradient_method):
    model = LoopingModel()
    model(tf.zeros((1, 4, 5)))
    tfdp.make_private(model)
    optimizer = tfdp.DPSGDOptimizer(
        "sgd", l2_norm_clip=1.0, noise_multiplier=1.0, gradient_method=gradient_method
    )
    model.compile(optimizer, "mse")
    arrays = np.ones((12, 4, 5)), np.ones((12, 3))
    if gradient_method == "auto":
        with pytest.raises(tfdp.UnsupportedModelError, match="gradient_method='vectorized'"):
            model.fit(*arrays, batch_size=4, verbose=0)
        assert tfdp.privacy_spent(model, 1e-3) == 0.0
        return
    model.fit(*arrays, batch_size=4, verbose=0)
    assert tfdp.privacy_spent(model, 1e-3) > 0.0


def test_a_trainer_that_centres_what_turns_out_to_be_called_in_a_loop_asks_to_be_made_again():
    model = keras.Sequential(
        [keras.Input((4, 5)), Holding(L.Dense(5, "tanh"), in_a_loop), L.Flatten(), L.Dense(2)]
    )
    tfdp.make_private(model)
    model.compile(
        tfdp.DPSGDOptimizer("sgd", l2_norm_clip=1.0, noise_multiplier=1.0, centering=True)
    )
    sampler = tfdp.PoissonSampler(np.ones((8, 4, 5), "float32"), batch_size=4, steps=1)

    def forward(batch):
        return ops.sum(ops.square(model(batch["x"])), -1), ()

    trainer = tfdp.PrivateTrainer(model, sampler)
    with pytest.raises(RuntimeError, match="(?s)Expected.*Received.*Make the PrivateTrainer again"):
        [trainer.gradients(forward, batch) for batch in sampler]
    assert tfdp.privacy_spent(model, 1e-5) == 0.0
    trainer = tfdp.PrivateTrainer(model, sampler)
    for batch in sampler:
        trainer.apply(trainer.gradients(forward, batch))
    assert tfdp.privacy_spent(model, 1e-5) > 0.0


class ScanningModel(keras.Model):
    """A model whose cell runs in a scan, by itself or in a layer."""

    def __init__(self, cell, whole):
        super().__init__()
        self.whole, self.scan, self.last = whole, Scan(cell) if whole else cell, L.Dense(3)

    def call(self, x):
        return self.last(self.scan(x) if self.whole else scanned(self.scan, x))


class Scan(L.Layer):
    def __init__(self, cell):
        super().__init__()
        self.cell = cell

    def call(self, x):
        return scanned(self.cell, x)


def scanned(cell, x):
    if not cell.built:
        cell.build((None, x.shape[-1]))

    def step(state, x):
        output, state = cell(x, [state])
        return state[0], output

    first = ops.zeros((ops.shape(x)[0], 5))
    return ops.scan(step, first, ops.transpose(x, (1, 0, 2)))[0]


@pytest.mark.parametrize("cell", [L.GRUCell, L.SimpleRNNCell])
def test_a_cell_in_a_scan_of_the_model_itself_is_refused_and_the_remedy_trains(cell):
    """It had ended with a KeyError of a number."""
    for whole in (False, True):
        model = ScanningModel(cell(5), whole)
        model(tf.zeros((2, 4, 5)))
        tfdp.make_private(model)
        model.compile(tfdp.DPSGDOptimizer("sgd", l2_norm_clip=1.0, noise_multiplier=1.0), "mse")
        arrays = np.ones((12, 4, 5)), np.ones((12, 3))
        if whole:
            model.fit(*arrays, batch_size=4, verbose=0)
            assert tfdp.privacy_spent(model, 1e-3) > 0.0
        else:
            with pytest.raises(tfdp.UnsupportedModelError, match="Put the loop into a layer"):
                model.fit(*arrays, batch_size=4, verbose=0)
            assert tfdp.privacy_spent(model, 1e-3) == 0.0

"""What counts as an update that no code but the libraries' makes, on no variables but its own."""

import functools

import keras
import pytest
import tensorflow as tf

import tf_lowrank_dp as tfdp
from tf_lowrank_dp.training.known_code import is_library_object

schedules = keras.optimizers.schedules


class Own(keras.optimizers.SGD):
    pass


class Penalty(keras.regularizers.Regularizer):
    def __call__(self, w):
        return 0.0


def with_attribute(thing, name, value):
    setattr(thing, name, value)
    return thing


LIBRARIES = {
    "adam": lambda: keras.optimizers.Adam(),
    "adam of another rate": lambda: with_attribute(keras.optimizers.Adam(), "learning_rate", 0.1),
    "scaled": lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD()),
    "schedule": lambda: keras.optimizers.SGD(schedules.CosineDecay(0.1, 10), momentum=0.9),
    "averaged": lambda: keras.optimizers.Adam(use_ema=True, weight_decay=0.1),
    "L2": lambda: keras.regularizers.L2(0.1),
    "norms": lambda: keras.constraints.MaxNorm(),
    "steps": lambda: keras.optimizers.SGD(schedules.PiecewiseConstantDecay([5], [0.1, 0.2])),
    "ours": lambda: tfdp.WeightStandardization(),
}
OTHERS = {
    "subclass": lambda: Own(),
    "penalty": lambda: Penalty(),
    "function": lambda: lambda w: w,
    "part of a function": lambda: functools.partial(keras.ops.multiply, 2.0),
    "rate by a function": lambda: keras.optimizers.SGD(lambda: 0.1),
    "patched": lambda: with_attribute(keras.optimizers.SGD(), "update_step", lambda *_: None),
    "around another": lambda: keras.optimizers.LossScaleOptimizer(Own()),
    "another's variable": lambda: with_attribute(keras.regularizers.L2(), "l2", tf.Variable(1.0)),
    "method of a variable": lambda: keras.optimizers.SGD(tf.Variable(0.1).read_value),
    "method of a layer": lambda: keras.layers.Dense(1).call,
    "layer": lambda: keras.layers.Dense(1),
    "variable in a list": lambda: with_attribute(
        schedules.PiecewiseConstantDecay([5], [0.1, 0.2]), "values", [0.1, tf.Variable(0.1)]
    ),
    "schedule of a variable": lambda: keras.optimizers.SGD(
        schedules.CosineDecay(tf.Variable(0.1), 10)
    ),
}


def is_of_libraries(thing):
    is_optimizer = isinstance(thing, keras.optimizers.Optimizer)
    return is_library_object(thing, {id(v) for v in thing.variables} if is_optimizer else ())


@pytest.mark.parametrize("name", LIBRARIES)
def test_what_keras_and_this_library_bring_is_of_libraries(name):
    assert is_of_libraries(LIBRARIES[name]())


@pytest.mark.parametrize("name", OTHERS)
def test_what_others_wrote_or_put_into_it_is_not(name):
    assert not is_of_libraries(OTHERS[name]())


def test_a_class_that_was_patched_is_not(monkeypatch):
    monkeypatch.setattr(keras.optimizers.SGD, "update_step", lambda *_: None)
    assert not is_of_libraries(keras.optimizers.SGD())


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "Adafactor", "Lion", "Muon", "Ftrl"])
def test_an_optimizer_that_has_made_steps_is(name):
    optimizer, weights = getattr(keras.optimizers, name)(), keras.Variable(tf.ones((3, 3)))
    optimizer.apply([tf.ones((3, 3))], [weights])
    assert is_library_object(optimizer, {id(v) for v in (weights, *optimizer.variables)})
    assert not is_library_object(optimizer, {id(v) for v in optimizer.variables})

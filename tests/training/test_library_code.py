"""What counts as an update that no code but the libraries' makes, on no variables but its own."""

import functools

import keras
import pytest
import tensorflow as tf

import tf_lowrank_dp as tfdp
from tf_lowrank_dp.training.library_code import is_library_object

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
    "adam that was built": lambda: with_attribute(keras.optimizers.Adam(), "learning_rate", 0.1),
    "scaled": lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD()),
    "schedule": lambda: keras.optimizers.SGD(schedules.CosineDecay(0.1, 10), momentum=0.9),
    "averaged": lambda: keras.optimizers.Adam(use_ema=True, weight_decay=0.1),
    "L2": lambda: keras.regularizers.L2(0.1),
    "norms": lambda: keras.constraints.MaxNorm(),
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
    "schedule of a variable": lambda: keras.optimizers.SGD(
        schedules.CosineDecay(tf.Variable(0.1), 10)
    ),
}


@pytest.mark.parametrize("name", LIBRARIES)
def test_what_keras_and_this_library_bring_is_of_libraries(name):
    assert is_library_object(LIBRARIES[name]())


@pytest.mark.parametrize("name", OTHERS)
def test_what_others_wrote_or_put_into_it_is_not(name):
    assert not is_library_object(OTHERS[name]())


def test_a_class_that_was_patched_is_not(monkeypatch):
    monkeypatch.setattr(keras.optimizers.SGD, "update_step", lambda *_: None)
    assert not is_library_object(keras.optimizers.SGD())


def test_an_optimizer_that_has_slots_is():
    optimizer = keras.optimizers.Adam()
    optimizer.build([keras.Variable([1.0])])
    assert is_library_object(optimizer)

"""Algorithms are values: signatures in full, settings that cannot change, state kept by name."""

import dataclasses
import inspect

import numpy as np
import pytest
import tensorflow as tf

import tf_lowrank_dp as tfdp
from tests.contracts.test_optimizers import NOISY, compiled, fit
from tf_lowrank_dp import algorithms
from tf_lowrank_dp.algorithms.algorithm import settings_of
from tf_lowrank_dp.optimizers import DPOptimizer

OPTIMIZERS = [
    tfdp.DPSGDOptimizer,
    tfdp.RGPOptimizer,
    tfdp.LSGOptimizer,
    tfdp.GEPOptimizer,
    tfdp.SparseDPSGDOptimizer,
    tfdp.DPPowerSGDOptimizer,
]
each_optimizer = pytest.mark.parametrize("make", OPTIMIZERS, ids=lambda make: make.__name__)
SHARED = {
    name: parameter
    for name, parameter in inspect.signature(DPOptimizer.__init__).parameters.items()
    if name not in ("self", "optimizer", "algorithm")
}


def example(make, **arguments):
    clip = {} if make is tfdp.GEPOptimizer else {"l2_norm_clip": 1.0}
    return make("sgd", noise_multiplier=1.0, **clip, **arguments)


@each_optimizer
def test_signatures_spell_out_and_describe_every_argument(make):
    parameters = inspect.signature(make).parameters
    assert make.__mro__[1] is DPOptimizer
    assert all(p.kind is not p.VAR_KEYWORD for p in parameters.values())
    described = inspect.getdoc(make).partition("\nArgs:\n")[2].splitlines()
    for name in parameters:
        assert any(line.startswith(f"    {name}: ") for line in described), name
    for name, shared in SHARED.items():
        if name == "centering" and make is tfdp.GEPOptimizer:
            continue  # see docs/centering.md
        assert name in parameters, name
        if name != "l2_norm_clip" or make is not tfdp.GEPOptimizer:
            assert parameters[name].default == shared.default, name


@each_optimizer
def test_unknown_arguments_are_refused_by_name(make):
    with pytest.raises(TypeError, match="learning_rte"):
        example(make, learning_rte=0.1)


@each_optimizer
def test_settings_are_attributes_of_the_optimizer_which_cannot_be_set(make):
    optimizer = example(make)
    arguments = {*inspect.signature(make).parameters} - {*SHARED, "optimizer"}
    settings = settings_of(optimizer.algorithm)
    assert set(settings) == arguments - {"public_data", "public_labels"}
    for name, value in settings.items():
        assert getattr(optimizer, name) == value == optimizer.get_config()[name]
        with pytest.raises(AttributeError, match=f"(?s)Expected settings.*{name}=7.*Compile"):
            setattr(optimizer, name, 7)
    assert not hasattr(optimizer, "no_such_setting")


@pytest.mark.parametrize(
    "algorithm",
    [
        algorithms.DPSGD(),
        algorithms.RGP(include=["a"]),
        algorithms.LSG(),
        algorithms.GEP(groups=[["a"]]),
        algorithms.SparseDPSGD(exclude=["b"]),
        algorithms.DPPowerSGD(),
    ],
    ids=lambda algorithm: algorithm.name,
)
def test_algorithms_are_values(algorithm):
    same = dataclasses.replace(algorithm)
    assert same == algorithm and hash(same) == hash(algorithm)
    for field in dataclasses.fields(algorithm):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(algorithm, field.name, None)


def test_state_keeps_its_variables_and_is_restored_with_all_that_it_was():
    state = algorithms.AlgorithmState()
    state.keep("a", np.float32([1.0, 2.0]))
    variable = state["a"]
    restore, other = state.restore_point(), state.copy()
    state.keep("a", np.float32([3.0, 4.0]))
    assert state["a"] is variable
    state.keep("b", np.float64(0.5))
    state.keep("a", np.float32([5.0]))
    assert state["a"] is not variable and state["b"].dtype == tf.float64
    assert other.names == ["a"] and other["a"].numpy().tolist() == [1.0, 2.0]
    restore()
    assert state.names == ["a"] and state["a"] is variable
    assert variable.numpy().tolist() == [1.0, 2.0]


def test_state_is_saved_and_loaded_by_name():
    state, store = algorithms.AlgorithmState(), {}
    state.keep("a", np.float32([1.0, 2.0]))
    state.keep("b", np.int64(3))
    state.save(store)
    other = algorithms.AlgorithmState()
    other.load(store)
    assert other.names == ["a", "b"] and int(other["b"]) == 3
    np.testing.assert_array_equal(other["a"], [1.0, 2.0])


def test_another_algorithm_begins_a_new_run():
    model = compiled(DPOptimizer("sgd", algorithms.RGP(rank=2), **NOISY))
    fit(model)
    fit(model)
    model.optimizer.algorithm = algorithms.DPSGD()
    fit(model)
    assert [entry.mechanism for entry in model.optimizer.ledger.entries] == ["RGP", "DP-SGD"]


def test_no_value_of_an_algorithm_takes_the_place_of_the_ledger():
    optimizer, store = example(tfdp.DPSGDOptimizer), {}
    optimizer.save_own_variables(store)
    optimizer.algorithm_state.keep("privacy_ledger", np.zeros(3, np.uint8))
    other = {}
    optimizer.save_own_variables(other)
    np.testing.assert_array_equal(other["privacy_ledger"], store["privacy_ledger"])

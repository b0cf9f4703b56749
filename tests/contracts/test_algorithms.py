"""Algorithms are values: signatures in full, settings that cannot change, state kept by name."""

import dataclasses
import inspect

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_lowrank_dp as tfdp
from tests.contracts.test_optimizers import NOISY, compiled, fit, make_data
from tf_lowrank_dp import algorithms
from tf_lowrank_dp.algorithms.algorithm import settings_of
from tf_lowrank_dp.optimizers import DPOptimizer
from tf_lowrank_dp.release.identity import IdentitySpace
from tf_lowrank_dp.release.space import ReleaseSpace

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
    for name, parameter in inspect.signature(DPOptimizer).parameters.items()
    if name not in ("optimizer", "algorithm")
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


class SignedSpace(ReleaseSpace):
    """Gradients with other signs; the lift takes them back."""

    def __init__(self, parameters, groups, signs):
        self._space, self._signs = IdentitySpace(parameters, groups), signs
        self.shapes = self._space.shapes

    def project(self, gradients, subspace):
        return self._space.project(gradients, subspace)

    def lift(self, released, subspace):
        return [self._signs * tensor for tensor in self._space.lift(released, subspace)]


@dataclasses.dataclass(frozen=True)
class Signed(algorithms.Algorithm):
    name = "signed"
    offset: float = 0.0

    def release_space(self, context):
        if "sign" not in context.state:
            [drawn] = context.normal([()])
            context.state.keep("sign", np.sign(drawn + self.offset))
        return SignedSpace(context.parameters, context.groups, context.state["sign"])


@keras.saving.register_keras_serializable("tests")
class SignedOptimizer(DPOptimizer):
    def __init__(self, optimizer="sgd", *, offset=0.0, **privacy):
        super().__init__(optimizer, Signed(offset), **privacy)


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_an_algorithm_of_somebody_else_is_trained_saved_and_goes_on_with_its_state(sign, tmp_path):
    model = compiled(SignedOptimizer("adam", offset=100.0 * sign, **NOISY))
    fit(model)
    assert "signed" in str(tfdp.privacy_statement(model))
    assert model.optimizer.algorithm_state["sign"].numpy() == sign
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert type(loaded.optimizer) is SignedOptimizer and loaded.optimizer.offset == 100.0 * sign
    assert loaded.optimizer.algorithm_state["sign"].numpy() == sign
    loaded.optimizer.algorithm_state.keep("sign", np.float32(2.0))
    fit(loaded)
    assert loaded.optimizer.algorithm_state["sign"].numpy() == 2.0
    assert loaded.optimizer.ledger.num_steps == 6


def test_an_algorithm_needs_no_optimizer_class_to_be_trained():
    """With a positive sign it is DP-SGD, bit for bit."""
    free = {"l2_norm_clip": 0.5, "noise_multiplier": 1.0, "seed": 5}
    models = [
        compiled(DPOptimizer("sgd", Signed(100.0), **free)),
        compiled(tfdp.DPSGDOptimizer("sgd", **free)),
    ]
    for model in models:
        model.fit(*make_data(), batch_size=8, verbose=0)
    for one, other in zip(*(model.trainable_variables for model in models), strict=True):
        np.testing.assert_array_equal(one, other)


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
    model = compiled(DPOptimizer("sgd", Signed(), **NOISY))
    fit(model)
    fit(model)
    model.optimizer.algorithm = algorithms.DPSGD()
    fit(model)
    assert [entry.mechanism for entry in model.optimizer.ledger.entries] == ["signed", "DP-SGD"]


def test_no_value_of_an_algorithm_takes_the_place_of_the_ledger():
    optimizer, store = example(tfdp.DPSGDOptimizer), {}
    optimizer.save_own_variables(store)
    optimizer.algorithm_state.keep("privacy_ledger", np.zeros(3, np.uint8))
    other = {}
    optimizer.save_own_variables(other)
    np.testing.assert_array_equal(other["privacy_ledger"], store["privacy_ledger"])

"""Every layer, option and gradient method against the one-example-at-a-time oracle."""

from typing import NamedTuple

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_lowrank_dp as tfdp
from tests import oracle
from tests.contracts.case import LayerCase
from tests.contracts.checks import check, losses_of, make_batch
from tests.contracts.layer_cases import LAYER_CASES, build_model
from tests.contracts.recurrent_cases import LONG
from tests.contracts.release_spaces import check_release_spaces
from tf_lowrank_dp.gradient_methods.methods import METHODS
from tf_lowrank_dp.layers.parameters import describe_parameters
from tf_lowrank_dp.layers.registry import captured_layers
from tf_lowrank_dp.mechanism.engine import PrivateGradients
from tf_lowrank_dp.mechanism.gaussian import GaussianMechanism
from tf_lowrank_dp.mechanism.noise import NoiseGenerator
from tf_lowrank_dp.release.identity import IdentitySpace

TOLERANCE = 1e-5
# Where one example is known to be all, TensorFlow traces other operations: refused, not wrong.
OTHER_FOR_ONE = ("own_projected_queries",)
LONG_TOLERANCE = 1e-4  # of recurrent layers over 10 positions


def tolerance_of(case):
    return LONG_TOLERANCE if case.shape == LONG else TOLERANCE


class Row(NamedTuple):
    """A row of the list: its case, a model, five examples and their gradients by the oracle."""

    case: LayerCase
    model: keras.Model
    batch: dict
    expected: list

    def first(self, size):
        """The first examples and their gradients."""
        return (oracle.rows(part, slice(size)) for part in (self.batch, self.expected))

    def check(self, method, mode, size):
        """Compares the first examples."""
        batch, expected = self.first(size)
        check(self.model, batch, method, mode, tolerance_of(self.case), expected=expected)


@pytest.fixture(scope="module")
def row(request):
    """One row for all tests of a case, which pytest runs one after the other."""
    keras.utils.set_random_seed(1)
    model, batch = build_model(request.param), make_batch(request.param, 5)
    expected = oracle.per_example_gradients(model, losses_of(model), batch)
    return Row(request.param, model, batch, expected)


each_row = pytest.mark.parametrize("row", LAYER_CASES, indirect=True, ids=lambda c: c.name)


@each_row
@pytest.mark.parametrize(("method", "size"), [("bookkeeping", 1), ("reweight", 5)])
def test_layer_equals_oracle_in_graph_mode(row, method, size):
    if size == 1 and row.case.name in OTHER_FOR_ONE:
        with pytest.raises(tfdp.UnsupportedModelError, match="register_fallback"):
            row.check(method, "graph", size)
        return
    row.check(method, "graph", size)


@each_row
def test_batch_of_size_0_releases_zero_gradients(row):
    losses = losses_of(row.model)
    variables = row.model.trainable_variables
    engine = PrivateGradients(
        model=row.model,
        space=IdentitySpace(describe_parameters(row.model), [range(len(variables))]),
        mechanism=GaussianMechanism(1.0, 0.0),
        noise=NoiseGenerator(),
        expected_batch_size=4.0,
        gradient_method="bookkeeping",
        steps=tf.Variable(0, dtype=tf.int64),
    )
    batch = oracle.rows(row.batch, slice(0))
    gradients = engine.private_gradients(lambda b: (losses(b), ()), batch, tf.zeros([0]))
    assert [g.shape for g in gradients] == [v.shape for v in variables]
    assert all(np.all(g == 0.0) for g in gradients)
    assert int(engine.steps) == 1  # an empty draw is an ordinary step


@each_row
def test_every_release_space_gives_the_gradient_where_nothing_is_left_out(row):
    # Operations are found in graphs, in which private steps are always traced.
    mode = "graph" if row.case.name.startswith("own_") else "eager"
    check_release_spaces(row.model, *row.first(3), tolerance_of(row.case), mode)


FEW = [case for case in LAYER_CASES if case.name in ("dense_sequence", "conv2d", "attention")]


@each_row
def test_layer_equals_oracle_under_xla(row):
    row.check("bookkeeping", "xla", 3)


@pytest.mark.parametrize("row", FEW, indirect=True, ids=lambda case: case.name)
def test_every_release_space_gives_the_gradient_in_graph_mode(row):
    check_release_spaces(row.model, *row.first(3), tolerance_of(row.case), "graph")


@pytest.mark.parametrize("case", FEW, ids=lambda case: case.name)
@pytest.mark.parametrize("method", ["vectorized", "loop"])
def test_all_gradient_methods_equal_the_oracle(case, method):
    keras.utils.set_random_seed(4)
    model = build_model(case)
    check(model, make_batch(case, 3), method, "graph", TOLERANCE)


@pytest.mark.parametrize("case", FEW, ids=lambda case: case.name)
def test_frozen_layers_have_no_gradient_and_change_no_other(case):
    keras.utils.set_random_seed(5)
    model = build_model(case, trainable_first=False)
    assert not any("pre" in variable.path for variable in model.trainable_variables)
    check(model, make_batch(case, 3), "bookkeeping", "eager", TOLERANCE)


LOW_PRECISION = (
    "dense_sequence",
    "conv2d",
    "attention",
    "layer_norm",
    "embedding",
    "rnn_lstm",
    "rnn_gru",
    "fallback_custom",
    "fallback_composite",
    "fallback_prelu",
)
MIXED = [case for case in LAYER_CASES if case.name in LOW_PRECISION]


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
@pytest.mark.parametrize("case", MIXED, ids=lambda case: case.name)
def test_low_precision_equals_the_oracle_within_its_rounding(case, policy):
    keras.config.set_dtype_policy(policy)
    try:
        keras.utils.set_random_seed(6)
        model = build_model(case)
    finally:
        keras.config.set_dtype_policy("float32")
    # bfloat16 keeps 8 bits and float16 11: each rounding of an activation is off by 2^-8 or 2^-11.
    tolerance = {"mixed_bfloat16": 5e-2, "mixed_float16": 1e-2}[policy]
    check(model, make_batch(case, 3), "bookkeeping", "eager", tolerance, tolerance)


@each_row
def test_captured_layers_do_not_use_the_fallback(row):
    classes = [capture for _, capture in captured_layers(row.model)]
    assert any(c.__module__.endswith("fallback") for c in classes) == row.case.fallback


def test_the_fallback_uses_the_weights_before_the_update_of_its_step():
    """The layer is run once more after the backward pass, maybe after the optimizer's update."""
    [case] = [case for case in LAYER_CASES if case.name == "fallback_composite"]
    keras.utils.set_random_seed(7)
    model, batch = build_model(case), make_batch(case, 3)
    losses = losses_of(model)
    expected = oracle.per_example_gradients(model, losses, batch)

    @tf.function(autograph=False)
    def step():
        gradients = METHODS["bookkeeping"](model, lambda b: (losses(b), ()), batch).gradients
        sums = [g.weighted_sum(tf.ones([3])) for g in gradients]
        for variable, total in zip(model.trainable_variables, sums, strict=True):
            variable.assign_sub(total)
        return sums

    for total, gradient in zip(step(), expected, strict=True):
        assert oracle.relative_error(total, gradient.sum(0)) <= TOLERANCE

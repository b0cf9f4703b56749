"""Every layer, option and gradient method against the one-example-at-a-time oracle."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests import oracle
from tests.contracts.layer_cases import LAYER_CASES, build_model
from tf_lowrank_dp.layers.parameters import describe_parameters
from tf_lowrank_dp.layers.registry import captured_layers
from tf_lowrank_dp.mechanism.clipping import unguarded_norms
from tf_lowrank_dp.mechanism.engine import PrivateGradients
from tf_lowrank_dp.mechanism.gaussian import GaussianMechanism
from tf_lowrank_dp.mechanism.noise import NoiseGenerator
from tf_lowrank_dp.per_example.backward import METHODS
from tf_lowrank_dp.release.identity import IdentitySpace

TOLERANCE = 1e-5
RECURRENT_TOLERANCE = 1e-4
FAST = ("bookkeeping", "reweight")


def make_batch(case, size, seed=0):
    generator = np.random.default_rng(seed)
    if case.kind == "ids":
        x = generator.integers(0, 5, (size, *case.shape)).astype("int32")
    else:
        x = generator.normal(size=(size, *case.shape)).astype("float32")
    y = generator.normal(size=(size, 3)).astype("float32")
    return {"x": tf.constant(x), "y": tf.constant(y)}


def losses_of(model):
    def losses(batch):
        y_pred = tf.cast(model(batch["x"], training=True), tf.float32)
        return tf.reduce_sum(tf.square(y_pred - batch["y"]), -1) + tf.reduce_sum(tf.sin(y_pred), -1)

    return losses


def computed(model, method, batch, presence, clip):
    """Norms, weighted sums, unguarded clipped sums and guarded clipped sums."""
    losses = losses_of(model)
    gradients = METHODS[method](model, lambda b: (losses(b), ()), batch).gradients
    norms = unguarded_norms(gradients)
    factors = presence * tf.minimum(1.0, tf.math.divide_no_nan(clip, norms))
    sums = [g.weighted_sum(factors) for g in gradients]
    guarded = GaussianMechanism(clip, 0.0).clipped_sums([gradients], presence)[0]
    return norms, [g.materialize() for g in gradients], sums, guarded


def check(model, batch, method, mode, tolerance, guarded_tolerance=5e-3):
    size = batch["x"].shape[0]
    presence = np.ones(size, "float32")
    presence[size // 2 :][:1] = 0.0 if size > 2 else 1.0  # one padded row where there are several
    expected = oracle.per_example_gradients(model, losses_of(model), batch)
    norms = oracle.norms(expected)
    clip = float(np.median(norms)) if size else 1.0

    def step(batch, presence):
        return computed(model, method, batch, presence, clip)

    if mode != "eager":
        step = tf.function(step, jit_compile=mode == "xla", autograph=False)
    found_norms, found, sums, guarded = step(batch, tf.constant(presence))
    assert oracle.relative_error(found_norms, norms) <= tolerance
    expected_sums = oracle.clipped_sums(expected, presence, clip)
    total = max([np.max(np.abs(e)) for e in expected_sums], default=1.0)
    for index, variable in enumerate(model.trainable_variables):
        # Errors are relative to the example's whole gradient: single variables may cancel to 0.
        scale = max(np.max(norms, initial=0.0), 1e-6)
        assert oracle.relative_error(found[index], expected[index], scale) <= tolerance, (
            variable.path
        )
        assert oracle.relative_error(sums[index], expected_sums[index], total) <= tolerance
        # The guarded norm is an upper bound: it may clip a little more, never less.
        assert (
            oracle.relative_error(guarded[index], expected_sums[index], total) <= guarded_tolerance
        )


def tolerance_of(case):
    return RECURRENT_TOLERANCE if "rnn" in case.name else TOLERANCE


@pytest.mark.parametrize("case", LAYER_CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("method", FAST)
def test_layer_equals_oracle_in_graph_mode(case, method):
    keras.utils.set_random_seed(1)
    model = build_model(case)
    check(model, make_batch(case, 5), method, "graph", tolerance_of(case))


@pytest.mark.parametrize("case", LAYER_CASES, ids=lambda case: case.name)
def test_layer_equals_oracle_for_one_example_in_eager_mode(case):
    keras.utils.set_random_seed(2)
    model = build_model(case)
    check(model, make_batch(case, 1), "bookkeeping", "eager", tolerance_of(case))


@pytest.mark.parametrize("case", LAYER_CASES, ids=lambda case: case.name)
def test_batch_of_size_0_releases_zero_gradients(case):
    keras.utils.set_random_seed(2)
    model = build_model(case)
    losses = losses_of(model)
    variables = model.trainable_variables
    engine = PrivateGradients(
        model=model,
        space=IdentitySpace(describe_parameters(model), [range(len(variables))]),
        mechanism=GaussianMechanism(1.0, 0.0),
        noise=NoiseGenerator(),
        expected_batch_size=4.0,
        gradient_method="bookkeeping",
        microbatch_size=None,
        steps=tf.Variable(0, dtype=tf.int64),
    )
    batch = make_batch(case, 0)
    gradients = engine(lambda b: (losses(b), ()), batch, tf.zeros([0]))
    assert [g.shape for g in gradients] == [v.shape for v in variables]
    assert all(np.all(g == 0.0) for g in gradients)
    assert int(engine.steps) == 1  # an empty draw is an ordinary step


XLA_CASES = [case for case in LAYER_CASES if case.xla]
FEW = [case for case in LAYER_CASES if case.name in ("dense_sequence", "conv2d", "attention")]


@pytest.mark.parametrize("case", XLA_CASES, ids=lambda case: case.name)
def test_layer_equals_oracle_under_xla(case):
    keras.utils.set_random_seed(3)
    model = build_model(case)
    check(model, make_batch(case, 3), "bookkeeping", "xla", tolerance_of(case))


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


@pytest.mark.parametrize("case", FEW, ids=lambda case: case.name)
def test_mixed_bfloat16_equals_the_oracle_within_its_precision(case):
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        keras.utils.set_random_seed(6)
        model = build_model(case)
    finally:
        keras.config.set_dtype_policy("float32")
    # bfloat16 keeps 8 bits: a relative error of 2^-8 for each rounding of an activation.
    check(model, make_batch(case, 3), "bookkeeping", "eager", 5e-2, guarded_tolerance=5e-2)


@pytest.mark.parametrize("case", LAYER_CASES, ids=lambda case: case.name)
def test_captured_layers_do_not_use_the_fallback(case):
    model = build_model(case)
    classes = [capture for _, capture in captured_layers(model)]
    assert any(c.__module__.endswith("fallback") for c in classes) == case.fallback

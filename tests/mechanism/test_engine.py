"""One logical batch is one release: one noise draw, one count, however it is split."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import oracle
from tf_lowrank_dp.layers.parameters import describe_parameters
from tf_lowrank_dp.mechanism.engine import PrivateGradients
from tf_lowrank_dp.mechanism.gaussian import GaussianMechanism
from tf_lowrank_dp.release.identity import IdentitySpace

ROWS, CLIP, EXPECTED = 7, 0.8, 4.0


class KnownNoise:
    """Stands in for the generator: counts the draws, each holding its own number."""

    def __init__(self):
        self.draws = tf.Variable(0.0)

    def normal(self, shapes):
        number = self.draws.assign_add(1.0)
        return [tf.fill(shape, number) for shape in shapes]


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(0)
    return keras.Sequential(
        [keras.Input((5,)), keras.layers.Dense(4, "tanh"), keras.layers.Dense(2)]
    )


def batch_of(size):
    generator = np.random.default_rng(size)
    x = generator.normal(size=(size, 5)).astype("float32")
    return {"x": tf.constant(x), "y": tf.constant(x[:, :2] * 3)}


def losses_of(model):
    return lambda batch: tf.reduce_sum(tf.square(model(batch["x"]) - batch["y"]), -1)


def engine_of(model, microbatch_size, noise_multiplier, noise=None, groups=None):
    variables = model.trainable_variables
    groups = groups or [range(len(variables))]
    return PrivateGradients(
        model=model,
        space=IdentitySpace(describe_parameters(model), groups),
        mechanism=GaussianMechanism(CLIP, noise_multiplier, len(groups)),
        noise=noise or KnownNoise(),
        expected_batch_size=EXPECTED,
        gradient_method="auto",
        part_rows=microbatch_size,
        steps=tf.Variable(0, dtype=tf.int64),
    )


def release(engine, model, size, presence=None):
    losses = losses_of(model)
    presence = tf.ones([size]) if presence is None else tf.constant(presence, tf.float32)
    step = tf.function(
        lambda b, p: engine.private_gradients(lambda part: (losses(part), ()), b, p),
        autograph=False,
    )
    return step(batch_of(size), presence)


def expected_sums(model, size, presence, clip=CLIP):
    gradients = oracle.per_example_gradients(model, losses_of(model), batch_of(size))
    return oracle.clipped_sums(gradients, np.asarray(presence, float), clip)


@pytest.mark.parametrize("microbatch_size", [None, 1, 2, 3, 7, 20])
def test_a_logical_batch_takes_one_noise_draw_and_one_step_whatever_the_microbatch_size(
    model, microbatch_size
):
    noise = KnownNoise()
    engine = engine_of(model, microbatch_size, 2.0, noise)
    released = release(engine, model, ROWS)
    assert noise.draws.numpy() == 1.0 and engine.steps.numpy() == 1
    for tensor, clipped in zip(released, expected_sums(model, ROWS, np.ones(ROWS)), strict=True):
        np.testing.assert_allclose(tensor, (clipped + 2.0 * CLIP) / EXPECTED, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("static", [True, False])
@given(rows=st.integers(1, 40), limit=st.integers(1, 12))
@settings(max_examples=6, deadline=None)
def test_parts_have_one_size_whatever_is_drawn(model, static, rows, limit):
    presences = []

    def record(batch, presence, *_):
        tf.numpy_function(lambda p: presences.append(p), [presence], [])

    engine = engine_of(model, limit, 0.0)
    losses = losses_of(model)
    signature = tf.nest.map_structure(
        lambda t: tf.TensorSpec([rows if static else None, *t.shape[1:]]),
        (batch_of(rows), tf.ones([rows])),
    )
    step = tf.function(
        lambda b, p: engine.private_gradients(lambda part: (losses(part), ()), b, p, record),
        input_signature=signature,
        autograph=False,
    )
    step(batch_of(rows), tf.ones([rows]))
    count = -(-rows // limit)
    assert [len(p) for p in presences] == [limit] * count
    assert sum(p.sum() for p in presences) == rows


@pytest.mark.parametrize("microbatch_size", [None, 2])
def test_the_sum_is_divided_by_the_expected_size_whatever_was_drawn(model, microbatch_size):
    presence = [1, 0, 1, 0, 0, 0, 1]
    released = release(engine_of(model, microbatch_size, 0.0), model, ROWS, presence)
    for tensor, clipped in zip(released, expected_sums(model, ROWS, presence), strict=True):
        np.testing.assert_allclose(tensor, clipped / EXPECTED, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("size", [0, 3])
@pytest.mark.parametrize("microbatch_size", [None, 2])
def test_an_empty_draw_is_an_ordinary_step_of_noise_alone(model, size, microbatch_size):
    noise = KnownNoise()
    engine = engine_of(model, microbatch_size, 2.0, noise)
    released = release(engine, model, size, np.zeros(size))
    assert noise.draws.numpy() == 1.0 and engine.steps.numpy() == 1
    for tensor in released:
        np.testing.assert_allclose(tensor, np.full(tensor.shape, 2.0 * CLIP / EXPECTED), rtol=1e-6)


def test_per_layer_clipping_bounds_each_layer_and_the_root_of_their_squares(model):
    released = release(engine_of(model, None, 0.0, groups=[[0, 1], [2, 3]]), model, 1)
    gradients = oracle.per_example_gradients(model, losses_of(model), batch_of(1))
    layers = [gradients[:2], gradients[2:]]
    assert all(oracle.norms(layer)[0] > CLIP for layer in layers)
    clipped = [
        total
        for layer in layers
        for total in oracle.clipped_sums(layer, np.ones(1), CLIP / np.sqrt(2))
    ]
    for tensor, expected in zip(released, clipped, strict=True):
        np.testing.assert_allclose(tensor, expected / EXPECTED, rtol=1e-3, atol=1e-5)
    joint = np.sqrt(sum(np.sum(np.square(np.float64(t))) for t in released)) * EXPECTED
    assert joint <= CLIP * (1 + 1e-5)


def test_groups_in_any_order_come_back_in_the_order_of_the_variables(model):
    released = release(engine_of(model, None, 0.0, groups=[[3, 0], [2, 1]]), model, 2)
    assert [t.shape for t in released] == [v.shape for v in model.trainable_variables]

"""Weights that no capture knows: by the operations that use them, or else the fallback."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_lowrank_dp as tfdp
from tests import oracle
from tests.contracts.checks import check_probe, losses_of, make_batch
from tests.contracts.layer_cases import build_model
from tests.contracts.operation_cases import NO_RULE_CASES, OPERATION_CASES
from tf_lowrank_dp.gradient_methods.methods import METHODS
from tf_lowrank_dp.gradient_methods.trial import known_plan
from tf_lowrank_dp.tracing.random_ops import FixedSource, random_numbers_from

L, ops = keras.layers, keras.ops
LENGTH = 6


@pytest.mark.parametrize("case", OPERATION_CASES, ids=lambda case: case.name)
def test_known_operations_need_no_fallback_and_pass_the_probe(case):
    keras.utils.set_random_seed(1)
    model = build_model(case)
    check_probe(model, make_batch(case, 3))
    plan = known_plan(model)
    assert not plan.fallback and not plan.of_examples and plan.steps


@pytest.mark.parametrize("case", NO_RULE_CASES, ids=lambda case: case.name)
def test_an_unknown_operation_is_left_to_the_fallback(case):
    keras.utils.set_random_seed(1)
    model = build_model(case)
    check_probe(model, make_batch(case, 3))
    assert len(known_plan(model).fallback) == 1
    assert "fallback" in tfdp.explain(model)


class Dropping(L.Layer):
    """An unknown operation, a child that draws and a square argument as long as some batches."""

    def __init__(self):
        super().__init__()
        self.dropout, self.dense = L.Dropout(0.4), L.Dense(5)

    def build(self, shape):
        self.own = self.add_weight(shape=(5,), initializer="glorot_normal")

    def call(self, x, weights):
        return self.dropout(self.dense(ops.matmul(weights, ops.maximum(x, self.own))))


class Around(L.Layer):
    def __init__(self):
        super().__init__()
        self.inner = Dropping()

    def call(self, x):
        return self.inner(x, ops.convert_to_tensor(np.tri(LENGTH, dtype="float32")))


@tfdp.layers.register_fallback
class AsAWhole(keras.Model):
    """A model that is registered itself."""

    def __init__(self):
        super().__init__()
        self.around, self.flatten, self.dense = Around(), L.Flatten(), L.Dense(3)

    def call(self, x):
        return self.dense(self.flatten(self.around(x)))


def _functional():
    inputs = keras.Input((LENGTH, 5))
    return keras.Model(inputs, L.Dense(3)(L.Flatten()(Around()(L.Dense(5)(inputs)))))


def _as_a_whole():
    model = AsAWhole()
    model(tf.zeros((1, LENGTH, 5)))
    return model


@pytest.mark.parametrize("make", [_functional, _as_a_whole])
@pytest.mark.parametrize("size", [3, LENGTH, None])
def test_the_fallback_draws_what_the_forward_pass_drew(make, size):
    """With one key both passes draw the same, so the sum is the gradient of the whole batch."""
    keras.utils.set_random_seed(2)
    model = make()
    losses = losses_of(model)
    generator = np.random.default_rng(3)
    x = generator.normal(size=(size or 40, LENGTH, 5)).astype("float32")
    y = generator.normal(size=(size or 40, 3)).astype("float32")

    @tf.function(
        autograph=False,
        input_signature=[tf.TensorSpec((size, LENGTH, 5)), tf.TensorSpec((size, 3))],
    )
    def both(x, y):
        batch = {"x": x, "y": y}
        with random_numbers_from(FixedSource()):
            found = METHODS["bookkeeping"](model, lambda b: (losses(b), ()), batch).gradients
            sums = [gradient.weighted_sum(tf.ones(tf.shape(y)[:1])) for gradient in found]
        with random_numbers_from(FixedSource()), keras.StatelessScope(), tf.GradientTape() as tape:
            total = tf.reduce_sum(losses(batch))
        return sums, tape.gradient(total, [v.value for v in model.trainable_variables])

    for found, expected in zip(*both(x, y), strict=True):
        assert oracle.relative_error(found, expected) <= 1e-5


def test_a_model_that_is_registered_itself_is_explained_and_trains():
    model = tfdp.make_private(_as_a_whole())
    optimizer = tfdp.DPSGDOptimizer("sgd", l2_norm_clip=1.0, noise_multiplier=1.0, delta=1e-3)
    model.compile(optimizer, loss="mse", jit_compile=False)
    x = np.ones((8, LENGTH, 5), "float32")
    model.fit(x, np.ones((8, 3), "float32"), batch_size=4, epochs=1, verbose=0)
    assert "fallback of the whole of" in tfdp.explain(model)


class OwnProduct(keras.layers.Layer):
    """A Dense layer without bias by another name; TensorFlow loses the shapes of its product."""

    def build(self, shape):
        self.kernel = self.add_weight(shape=(shape[-1], 3), name="kernel")

    def call(self, x):
        return keras.ops.matmul(x, self.kernel)


def test_an_own_product_before_a_reshape_trains_in_fit_as_dense_does():
    generator = np.random.default_rng(0)
    x, y = generator.normal(size=(32, 6, 4)), generator.normal(size=(32, 1))
    trained = []
    for layer in (OwnProduct(), keras.layers.Dense(3, use_bias=False)):
        model = keras.Sequential(
            [keras.Input((6, 4)), layer, keras.layers.Flatten(), keras.layers.Dense(1)]
        )
        ordered = np.random.default_rng(1)
        model.set_weights([ordered.normal(size=w.shape) for w in model.get_weights()])
        tfdp.make_private(model)
        optimizer = tfdp.DPSGDOptimizer("sgd", l2_norm_clip=1.0, noise_multiplier=0.0)
        model.compile(optimizer, "mse", jit_compile=False)
        model.fit(x, y, batch_size=32, verbose=0)
        trained.append(model.get_weights())
    for own, dense in zip(*trained, strict=True):
        np.testing.assert_allclose(own, dense, rtol=1e-5, atol=1e-6)

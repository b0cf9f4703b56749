"""Nothing of the examples is kept, or learnt without privacy, where a model is not trained."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_lowrank_dp as tfdp

L = keras.layers
GENERATOR = np.random.default_rng(0)
X = GENERATOR.normal(size=(24, 5)).astype("float32")
Y = GENERATOR.normal(size=(24, 1)).astype("float32")


def compiled(model):
    tfdp.make_private(model)
    optimizer = tfdp.DPSGDOptimizer("sgd", l2_norm_clip=1.0, noise_multiplier=1.0, delta=1e-3)
    model.compile(optimizer, loss="mse")
    return model


class Drift(L.Layer):
    """The mean of what it sees while it is not trained."""

    def build(self, shape):
        self.mean = self.add_weight(shape=(shape[-1],), trainable=False, name="mean")

    def call(self, x, training=False):
        if not training:
            self.mean.assign(tf.reduce_mean(x, 0))
        return x


def as_a_layer():
    return keras.Sequential([keras.Input((5,)), Drift(), L.Dense(1)])


def in_a_lambda():
    mean = tf.Variable(tf.zeros([5]))

    def keep(x, training=False):
        if not training:
            mean.assign(tf.reduce_mean(x, 0))
        return x

    return keras.Sequential([keras.Input((5,)), L.Lambda(keep, output_shape=(5,)), L.Dense(1)])


@pytest.mark.parametrize("build", [as_a_layer, in_a_lambda])
def test_a_layer_that_keeps_what_it_sees_at_inference_is_refused(build):
    model = compiled(build())
    with pytest.raises(tfdp.UnsupportedModelError, match="training=False"):
        model.fit(X, Y, batch_size=8, validation_data=(X, Y), verbose=0)
    assert model.optimizer.ledger.num_steps == 0


class SamplesAlways(L.Layer):
    """Random numbers at inference as well: their seed advances."""

    def __init__(self):
        super().__init__()
        self.seed_generator = keras.random.SeedGenerator(0)

    def call(self, x):
        return x + keras.random.normal(keras.ops.shape(x), seed=self.seed_generator)


def test_random_numbers_at_inference_are_no_statistics():
    model = compiled(keras.Sequential([keras.Input((5,)), SamplesAlways(), L.Dense(1)]))
    model.fit(X, Y, batch_size=8, validation_data=(X, Y), verbose=0)
    assert "unknown" not in tfdp.privacy_statement(model)


class Adapts(keras.Model):
    """Learns from what it is tested on, or asked."""

    def __init__(self):
        super().__init__()
        self.head = L.Dense(1)

    def call(self, x):
        return self.head(x)

    def learn(self, x):
        for weight in self.trainable_variables:
            weight.assign_add(0.1 * tf.ones_like(weight) * tf.reduce_mean(x))

    def test_step(self, data):
        self.learn(data[0])
        return {"loss": tf.reduce_mean(self(data[0]))}

    def predict_step(self, data):
        self.learn(data[0])
        return self(data[0])


@pytest.mark.parametrize("how", ["validation", "evaluate", "predict"])
def test_what_is_learnt_without_privacy_is_not_taken_for_private(how):
    model = Adapts()
    model(X[:1])
    compiled(model)
    validation = {"validation_data": (X, Y)} if how == "validation" else {}
    model.fit(X, Y, batch_size=8, verbose=0, **validation)
    if how == "evaluate":
        model.evaluate(X, Y, verbose=0)
    if how == "predict":
        model.predict((X,), verbose=0)
    assert "unknown" in tfdp.privacy_statement(model)


class Observes(keras.Model):
    """A test step of its own that changes nothing."""

    def __init__(self):
        super().__init__()
        self.head = L.Dense(1)

    def call(self, x):
        return self.head(x)

    def test_step(self, data):
        return {"loss": tf.reduce_mean((self(data[0]) - data[1]) ** 2)}


def test_a_test_step_of_ones_own_that_learns_nothing_changes_nothing():
    model = Observes()
    model(X[:1])
    compiled(model)
    model.fit(X, Y, batch_size=8, verbose=0, validation_data=(X, Y))
    model.evaluate(X, Y, verbose=0)
    assert "unknown" not in tfdp.privacy_statement(model)

"""Canaries, their losses and white-box scores, against one example at a time."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_lowrank_dp as tfdp
from tf_lowrank_dp.auditing import Canaries, per_example_losses, update_scores


def small_model(seed=0):
    keras.utils.set_random_seed(seed)
    return keras.Sequential(
        [
            keras.Input((5,)),
            keras.layers.Dense(4, activation="tanh"),
            keras.layers.Dropout(0.5),
            keras.layers.Dense(3),
        ]
    )


def data(size=11, seed=0):
    generator = np.random.default_rng(seed)
    return generator.normal(size=(size, 5)).astype(np.float32), generator.integers(0, 3, size)


def crossentropy():
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def losses_by_hand(model, x, y):
    logits = model.predict(x, verbose=0).astype(np.float64)
    normalised = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return -normalised[np.arange(len(y)), y]


@pytest.mark.parametrize("batch_size", [1, 4, 256])
def test_losses_are_those_of_each_example_in_inference(batch_size):
    model, (x, y) = small_model(), data()
    found = per_example_losses(model, x, y, loss=crossentropy(), batch_size=batch_size)
    assert found.shape == (11,) and found.dtype == np.float64
    np.testing.assert_allclose(found, losses_by_hand(model, x, y), rtol=1e-5)


def test_the_compiled_loss_of_a_private_and_of_an_ordinary_model_is_the_same():
    x, y = data()
    ordinary, private = small_model(), tfdp.make_private(small_model())
    ordinary.compile("sgd", crossentropy())
    private.compile(
        tfdp.DPSGDOptimizer("sgd", l2_norm_clip=1.0, noise_multiplier=1.0), crossentropy()
    )
    expected = losses_by_hand(ordinary, x, y)
    for model in (ordinary, private):
        np.testing.assert_allclose(per_example_losses(model, x, y), expected, rtol=1e-5)


def test_an_example_with_positions_has_the_mean_of_its_losses():
    model = keras.Sequential([keras.Input((3, 2)), keras.layers.Dense(1)])
    x = np.random.default_rng(0).normal(size=(6, 3, 2)).astype(np.float32)
    y = np.zeros((6, 3, 1), np.float32)
    expected = (model.predict(x, verbose=0) ** 2).mean(axis=(1, 2))
    np.testing.assert_allclose(per_example_losses(model, x, y, loss="mse"), expected, rtol=1e-5)


def test_a_model_without_a_loss_is_refused():
    with pytest.raises(tfdp.UnsupportedModelError, match="Expected a loss"):
        per_example_losses(small_model(), *data())


def test_update_scores_are_inner_products_with_gradients_of_single_examples():
    model, (x, y) = small_model(), data()
    generator = np.random.default_rng(1)
    update = [generator.normal(size=v.shape) for v in model.trainable_variables]
    expected = []
    for row, label in zip(x, y, strict=True):
        with tf.GradientTape() as tape:
            loss = crossentropy()(label[None], model(row[None], training=False))
        gradients = tape.gradient(loss, [v.value for v in model.trainable_variables])
        expected.append(-sum(np.sum(u * g) for u, g in zip(update, gradients, strict=True)))
    found = update_scores(model, update, x, y, loss=crossentropy(), batch_size=4)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


class HalfUsed(keras.Model):
    """Two layers of which only the first is called."""

    def __init__(self):
        super().__init__()
        self.used, self.unused = keras.layers.Dense(1), keras.layers.Dense(1)
        self.used.build((None, 2))
        self.unused.build((None, 2))

    def call(self, inputs):
        return self.used(inputs)


def test_variables_that_the_loss_does_not_depend_on_do_not_count():
    model = HalfUsed()
    update = [np.ones(v.shape) for v in model.trainable_variables]
    assert len(update) == 4
    scores = update_scores(model, update, np.eye(2), np.zeros(2), loss=lambda _, y: y[:, 0])
    np.testing.assert_allclose(scores, [-2.0, -2.0])


def test_an_update_of_other_shapes_is_refused():
    model, (x, y) = small_model(), data()
    with pytest.raises(ValueError, match="Expected one array for each trainable.*Received: shapes"):
        update_scores(model, [np.zeros((5, 4))], x, y, loss=crossentropy())


def test_coins_are_fair_independent_and_not_repeated():
    draws = np.array([Canaries.draw(np.zeros(2000)).included for _ in range(20)])
    assert abs(draws.mean() - 0.5) < 5 * 0.5 / np.sqrt(draws.size)
    products = (draws[:-1] == draws[1:]).mean()
    neighbours = (draws[:, :-1] == draws[:, 1:]).mean()
    for agreement in (products, neighbours):
        assert abs(agreement - 0.5) < 5 * 0.5 / np.sqrt(draws.size - 2000)


def test_a_seed_repeats_the_coins():
    one, two, other = (Canaries.draw(np.zeros(100), seed=s).included for s in (1, 1, 2))
    np.testing.assert_array_equal(one, two)
    assert (one != other).any()


def test_exactly_the_included_canaries_are_appended_to_the_data():
    x = {"a": np.arange(8.0), "b": np.arange(16.0).reshape(8, 2)}
    canaries = Canaries.draw(x, np.arange(8), seed=0)
    base = {"a": np.full(3, -1.0), "b": np.full((3, 2), -1.0)}
    joined, y = canaries.insert(base, np.full(3, -1))
    kept = [i for i in range(8) if canaries.included[i]]
    assert 0 < len(kept) < 8
    np.testing.assert_array_equal(joined["a"], [-1.0] * 3 + kept)
    np.testing.assert_array_equal(joined["b"][3:], x["b"][kept])
    np.testing.assert_array_equal(y, [-1] * 3 + kept)
    only_x, nothing = Canaries.draw(np.arange(4), seed=0).insert(np.zeros(2))
    assert len(only_x) > 2 and nothing is None


@pytest.mark.parametrize("arguments", [(np.zeros(3), np.zeros(2)), (np.zeros((0, 2)),)])
def test_canaries_of_unequal_length_and_no_canaries_are_refused(arguments):
    with pytest.raises(ValueError, match="Expected at least one canary.*Received: lengths"):
        Canaries.draw(*arguments)

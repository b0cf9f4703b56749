"""Losses that layers add in their forward pass: separated by example, or refused."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_lowrank_dp as tfdp

METHODS = ["bookkeeping", "reweight", "vectorized", "loop"]


def sgd():
    return keras.optimizers.SGD(0.1, momentum=0.9)


class Vector(keras.layers.Layer):
    """Adds one value per example; has no weights."""

    def call(self, x):
        self.add_loss(keras.ops.mean(keras.ops.square(x), axis=-1))
        return x


class Scalar(keras.layers.Layer):
    """Adds a scalar that is made of the squares of its input."""

    def __init__(self, of_squares, **kwargs):
        super().__init__(**kwargs)
        self.of_squares = of_squares

    def call(self, x):
        self.add_loss(self.of_squares(keras.ops.square(x)))
        return x


def divided_by_size(squares, factor=1.0):
    return factor * keras.ops.sum(squares) / keras.ops.cast(keras.ops.shape(squares)[0], "float32")


def divided_by_all(squares):
    return -keras.ops.sum(squares) / keras.ops.cast(keras.ops.size(squares), "float32")


def divided_by_length(squares):
    return 0.01 * keras.ops.sum(squares) / keras.ops.cast(keras.ops.shape(squares)[1], "float32")


SCALARS = {
    "mean": keras.ops.mean,
    "mean of sums": lambda squares: keras.ops.mean(keras.ops.sum(squares, axis=-1)),
    "sum": lambda squares: 0.01 * keras.ops.sum(squares),
    "sum over size": divided_by_size,
    "share of a sum over size": lambda squares: divided_by_size(squares, 0.1),
    "mean of sums by hand": lambda squares: divided_by_size(squares) / 4.0,
    "sum over all": divided_by_all,
    "sum over another length": divided_by_length,
    "terms": lambda s: 2.0 * keras.ops.mean(s) - 0.1 * divided_by_size(s * s) + 0.01,
    "list": lambda s: keras.ops.sum([keras.ops.mean(s), 0.01 * keras.ops.sum(s)]),
    "mean of one long vector": lambda s: keras.ops.mean(keras.ops.reshape(s, [-1])),
    "mean of pairs": lambda s: keras.ops.mean(keras.ops.reshape(s, [-1, 1, 1])),
    "loss object": lambda s: keras.losses.MeanSquaredError()(keras.ops.zeros_like(s), s),
}


class Coupled(keras.layers.Layer):
    """One value per example, but of the whole batch."""

    def call(self, x):
        self.add_loss(keras.ops.sum(x - keras.ops.mean(x, axis=0, keepdims=True), axis=-1))
        return x


@tfdp.layers.register_fallback
class WeightedVector(keras.layers.Layer):
    """Adds one value per example that depends on its own weights."""

    def build(self, shape):
        self.scale = self.add_weight(shape=(shape[-1],), initializer="ones", name="scale")

    def call(self, x):
        x = x * self.scale
        self.add_loss(keras.ops.mean(keras.ops.square(x), axis=-1))
        return x


def model_with(layer):
    keras.utils.set_random_seed(0)
    return keras.Sequential(
        [keras.Input((5,)), keras.layers.Dense(4), layer, keras.layers.Dense(3)]
    )


def clipped_sum(model, x, y, clip):
    """Weights after one step of SGD(1) with rate 1: the negative clipped sum over 24."""
    before = [np.array(v) for v in model.trainable_variables]
    model.fit(x, y, batch_size=len(x), verbose=0)
    return [b - np.array(v) for b, v in zip(before, model.trainable_variables, strict=True)]


@pytest.mark.parametrize("method", ["bookkeeping", "reweight", "vectorized", "loop"])
@pytest.mark.parametrize(
    "regularizer",
    [keras.regularizers.L1(0.02), keras.regularizers.L2(0.03), keras.regularizers.L1L2(0.01, 0.02)],
    ids=["l1", "l2", "l1_l2"],
)
def test_activity_regularizers_equal_ordinary_training(twins, data, regularizer, method):
    def build():
        keras.utils.set_random_seed(0)
        return keras.Sequential(
            [
                keras.Input((5,)),
                keras.layers.Dense(4, activity_regularizer=regularizer),
                keras.layers.Dense(3),
            ]
        )

    twins(build, data(), sgd, gradient_method=method, epochs=1)


def test_activity_regularizers_are_left_as_they_were(private, data):
    regularizer = keras.regularizers.L2(0.03)
    layer = keras.layers.Dense(4, activity_regularizer=regularizer)
    model = private(keras.Sequential([keras.Input((5,)), layer, keras.layers.Dense(3)]))
    model.fit(*data(), batch_size=8, verbose=0)
    assert layer.activity_regularizer is regularizer


def spread_of_batch(factor):
    """Mixes the examples of a batch, as the losses of routers do."""
    return lambda squares: factor * keras.ops.sum(keras.ops.mean(squares, axis=0) ** 2)


def test_a_mixing_loss_is_refused_and_trains_when_its_coefficient_is_0(private, twins, data):
    refused = private(model_with(Scalar(spread_of_batch(0.1))))
    with pytest.raises(tfdp.UnsupportedModelError, match="(?s)mixes examples.*coefficient of 0"):
        refused.fit(*data(), batch_size=8, verbose=0)
    twins(lambda: model_with(Scalar(spread_of_batch(0.0))), data(), sgd, epochs=1)


def test_a_loss_that_is_switched_off_does_not_spread_a_hostile_example(private, data):
    x, y = data()
    x = np.concatenate([x, np.full((1, 5), np.inf, "float32")])
    y = np.concatenate([y, y[:1]])
    model = private(model_with(Scalar(spread_of_batch(0.0))), l2_norm_clip=1.0)
    moved = clipped_sum(model, x, y, 1.0)
    assert all(np.isfinite(each).all() for each in moved)
    assert any(np.abs(each).max() > 0 for each in moved)


@pytest.mark.parametrize("method", METHODS)
def test_added_losses_of_one_value_per_example_equal_ordinary_training(twins, data, method):
    twins(lambda: model_with(Vector()), data(), sgd, gradient_method=method, epochs=1)


@pytest.mark.parametrize("microbatch_size", [None, 5])
def test_an_activity_regularizer_does_not_react_to_the_size_drawn(
    private, data, assert_same_weights, microbatch_size
):
    """Keras divides by the size of the batch: padding must not change an example's loss."""
    models = []
    for pad_to_multiple in (1, 40):
        keras.utils.set_random_seed(0)
        layer = keras.layers.Dense(3, activity_regularizer=keras.regularizers.L2(0.5))
        model = keras.Sequential([keras.Input((5,)), layer])
        private(model, microbatch_size=microbatch_size, l2_norm_clip=9.0, noise_multiplier=0)
        sampler = tfdp.PoissonSampler(
            *data(), batch_size=6, steps=3, pad_to_multiple=pad_to_multiple, seed=3
        )
        model.fit(sampler, verbose=0)
        models.append(model)
    assert_same_weights(*models)


def test_added_losses_of_one_value_per_example_are_clipped_with_the_example(
    private, data, same_batches
):
    """Equal to a model that has the same term in its loss."""
    x, y = data()

    class WithTerm(keras.losses.Loss):
        def call(self, y_true, y_pred):
            logits, hidden = y_pred[:, :3], y_pred[:, 3:]
            entropy = keras.losses.sparse_categorical_crossentropy(y_true, logits, from_logits=True)
            return entropy + 24.0 * keras.ops.mean(keras.ops.square(hidden), axis=-1)

    def reference():
        keras.utils.set_random_seed(0)
        inputs = keras.Input((5,))
        hidden = keras.layers.Dense(4)(inputs)
        logits = keras.layers.Dense(3)(hidden)
        return keras.Model(inputs, keras.layers.Concatenate()([logits, hidden]))

    arguments = {"l2_norm_clip": 0.7, "noise_multiplier": 0.0}
    added = private(model_with(Vector()), keras.optimizers.SGD(1.0), **arguments)
    term = private(reference(), keras.optimizers.SGD(1.0), WithTerm(), **arguments)
    for a, b in zip(clipped_sum(added, x, y, 0.7), clipped_sum(term, x, y, 0.7), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-6)


def test_a_fallback_layer_that_adds_a_loss_is_refused_by_name(private, data):
    """The loss depends on the layer's own weights, past the output that is captured."""
    model = private(model_with(WeightedVector()), noise_multiplier=1.0)
    with pytest.raises(tfdp.UnsupportedModelError, match="(?s)weighted_vector.*Received.*adds"):
        model.fit(*data(), batch_size=8, verbose=0)
    assert tfdp.privacy_spent(model, 1e-5) == 0.0


@pytest.mark.parametrize(
    "regularizer", [keras.regularizers.OrthogonalRegularizer(0.1), lambda x: keras.ops.mean(x)]
)
def test_other_activity_regularizers_are_refused(private, data, regularizer):
    layer = keras.layers.Dense(4, activity_regularizer=regularizer, name="regular")
    model = private(keras.Sequential([keras.Input((5,)), layer]), noise_multiplier=1.0)
    with pytest.raises(tfdp.UnsupportedModelError, match="(?s)regular.*Received.*add_loss"):
        model.fit(*data(), batch_size=8, verbose=0)
    assert tfdp.privacy_spent(model, 1e-5) == 0.0


@pytest.mark.parametrize("name", sorted(SCALARS))
def test_means_and_sums_over_the_batch_equal_ordinary_training(twins, data, name):
    twins(lambda: model_with(Scalar(SCALARS[name])), data(), sgd, epochs=1)


@pytest.mark.parametrize("method", METHODS[1:])
def test_a_mean_equals_ordinary_training_by_all_gradient_methods(twins, data, method):
    build = lambda: model_with(Scalar(SCALARS["terms"]))  # noqa: E731
    twins(build, data(), sgd, gradient_method=method, epochs=1)


@pytest.mark.parametrize(
    "of_squares",
    [
        lambda s: keras.ops.sqrt(keras.ops.mean(s)),
        lambda s: keras.ops.mean(s) * keras.ops.mean(s),
        lambda s: keras.ops.sum(s) / (1.0 + keras.ops.max(s)),
        lambda s: keras.ops.sum(keras.ops.mean(s, axis=0)),
    ],
    ids=["root", "product", "ratio", "means of columns"],
)
def test_a_scalar_that_is_no_mean_or_sum_is_refused(private, data, of_squares):
    model = private(model_with(Scalar(of_squares, name="adds")), noise_multiplier=1.0)
    with pytest.raises(tfdp.UnsupportedModelError, match="(?s)Expected.*adds.*Received.*scalar"):
        model.fit(*data(), batch_size=8, verbose=0)
    assert tfdp.privacy_spent(model, 1e-5) == 0.0


def test_an_added_loss_that_mixes_examples_is_refused(private, data):
    model = private(model_with(Coupled()), noise_multiplier=1.0)
    with pytest.raises(tfdp.UnsupportedModelError, match="depends on"):
        model.fit(*data(), batch_size=8, verbose=0)
    assert tfdp.privacy_spent(model, 1e-5) == 0.0


class Endpoint(keras.layers.Layer):
    """Takes the targets, and adds the loss."""

    def call(self, y, logits):
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        self.add_loss(loss(y, logits))
        return keras.ops.softmax(logits)


class EndpointOfTokens(keras.layers.Layer):
    """The same for tokens, by hand."""

    def call(self, y, logits):
        losses = keras.losses.sparse_categorical_crossentropy(y, logits, from_logits=True)
        self.add_loss(keras.ops.mean(losses))
        return keras.ops.softmax(logits)


class Distilled(keras.Sequential):
    """The loss is the model's own: that of the targets and that of a teacher."""

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        ops, losses = keras.ops, keras.losses
        teacher = ops.softmax(x[:, :3])
        own = losses.SparseCategoricalCrossentropy(from_logits=True)(y, y_pred, sample_weight)
        return 0.2 * own + 0.8 * losses.KLDivergence()(teacher, ops.softmax(y_pred))


def trained_alike(build, x, y, assert_same_weights, **arguments):
    """Trains a model without a compiled loss, and its private twin, on the same batches."""
    ordinary, own = build(), build()
    ordinary.compile(sgd())
    tfdp.make_private(own)
    optimizer = tfdp.DPSGDOptimizer(sgd(), l2_norm_clip=float("inf"), noise_multiplier=0.0)
    own.compile(optimizer)
    arrays = (x,) if y is None else (x, y)
    dataset = tf.data.Dataset.from_tensor_slices(arrays).batch(8, drop_remainder=True)
    before = [np.array(v) for v in own.trainable_variables]
    ordinary.fit(dataset, verbose=0)
    own.fit(dataset, verbose=0, sampling="shuffle")
    assert_same_weights(ordinary, own)
    assert not np.allclose(before[0], own.trainable_variables[0])
    assert tfdp.check_gradients(own, *arrays) < 1e-4


def test_a_model_whose_layers_add_the_only_loss_equals_ordinary_training(data, assert_same_weights):
    def build():
        keras.utils.set_random_seed(0)
        inputs = {"x": keras.Input((5,), name="x"), "y": keras.Input((), name="y", dtype="int32")}
        logits = keras.layers.Dense(3)(inputs["x"])
        return keras.Model(inputs, Endpoint()(inputs["y"], logits))

    x, y = data()
    trained_alike(build, {"x": x, "y": y}, None, assert_same_weights)


def test_a_model_with_its_own_compute_loss_equals_ordinary_training(data, assert_same_weights):
    def build():
        keras.utils.set_random_seed(0)
        return Distilled([keras.Input((5,)), keras.layers.Dense(3)])

    trained_alike(build, *data(), assert_same_weights)


class OfTokens(keras.Sequential):
    """A language model's loss, whose function flattens its positions and gives them back."""

    terms = staticmethod(keras.ops.mean)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        losses = keras.losses.sparse_categorical_crossentropy(y, y_pred, from_logits=True)
        return self.terms(losses)


@pytest.mark.parametrize(
    "terms",
    [
        keras.ops.mean,
        lambda losses: keras.ops.mean(keras.ops.reshape(losses, (-1,))),
        lambda losses: keras.ops.mean(losses) + 0.1 * keras.ops.mean(keras.ops.square(losses)),
        lambda losses: keras.ops.sum(losses) / keras.ops.cast(keras.ops.size(losses), "float32"),
    ],
    ids=["mean", "flattened", "two terms", "by size"],
)
def test_a_mean_over_examples_and_tokens_equals_ordinary_training(terms, assert_same_weights):
    def build():
        keras.utils.set_random_seed(0)
        layers = [keras.Input((6,)), keras.layers.Embedding(9, 4), keras.layers.Dense(9)]
        model = OfTokens(layers)
        model.terms = terms
        return model

    rng = np.random.default_rng(0)
    trained_alike(build, *rng.integers(0, 9, (2, 32, 6)), assert_same_weights)


def test_an_added_mean_over_examples_and_tokens_equals_ordinary_training(assert_same_weights):
    def build():
        keras.utils.set_random_seed(0)
        names = {"x": keras.Input((6,), name="x"), "y": keras.Input((6,), name="y", dtype="int32")}
        logits = keras.layers.Dense(9)(keras.layers.Embedding(9, 4)(names["x"]))
        return keras.Model(names, EndpointOfTokens()(names["y"], logits))

    x, y = np.random.default_rng(0).integers(0, 9, (2, 32, 6))
    trained_alike(build, {"x": x, "y": y}, None, assert_same_weights)


def test_a_compute_loss_that_mixes_examples_is_refused(private, data):
    class Mixes(keras.Sequential):
        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
            return keras.ops.mean(keras.ops.square(y_pred - keras.ops.mean(y_pred, axis=0)))

    model = private(Mixes([keras.Input((5,)), keras.layers.Dense(3)]), noise_multiplier=1.0)
    with pytest.raises(tfdp.UnsupportedModelError, match="(?s)joins|depends on"):
        model.fit(*data(), batch_size=8, verbose=0)
    assert tfdp.privacy_spent(model, 1e-5) == 0.0


def test_a_model_without_any_loss_is_refused(data):
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(3)])
    tfdp.make_private(model)
    model.compile(tfdp.DPSGDOptimizer("sgd", l2_norm_clip=1.0, noise_multiplier=1.0))
    with pytest.raises(tfdp.UnsupportedModelError, match="(?s)Expected a loss.*Received: none"):
        model.fit(*data(), batch_size=8, verbose=0)

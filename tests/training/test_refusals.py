"""What cannot be trained privately is refused before anything is spent."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_lowrank_dp as tfdp

L = keras.layers
MESSAGE = "(?s)Expected.*Received.*"
NOISY = {"noise_multiplier": 1.0}


def nothing_spent(model):
    return tfdp.privacy_spent(model, 1e-5) == 0.0


def refused(model, data, error=tfdp.UnsupportedModelError, match="", **fit):
    weights = [np.array(v) for v in model.trainable_variables]
    with pytest.raises(error, match=MESSAGE + match):
        model.fit(*data, verbose=0, **{"batch_size": 8, **fit})
    for before, after in zip(weights, model.trainable_variables, strict=True):
        np.testing.assert_array_equal(before, after)
    assert nothing_spent(model)


def not_made_private(model, match):
    """It stays as it is."""
    model.compile(tfdp.DPSGDOptimizer("sgd", l2_norm_clip=1.0, **NOISY), "mse")
    attributes, variables = set(vars(model)), [np.array(v) for v in model.variables]
    with pytest.raises(tfdp.UnsupportedModelError, match=MESSAGE + match):
        tfdp.make_private(model)
    assert set(vars(model)) == attributes
    for before, after in zip(variables, model.variables, strict=True):
        np.testing.assert_array_equal(before, after)
    assert nothing_spent(model)


def with_layer(*layers):
    keras.utils.set_random_seed(0)
    return keras.Sequential([keras.Input((5,)), *layers, L.Dense(3)])


def stateful(wrap=lambda layer: layer):
    layer = wrap(L.SimpleRNN(2, stateful=True, name="rnn"))
    return keras.Sequential([keras.Input(batch_shape=(2, 3, 4)), layer])


class CalledInAGraph(keras.Model):
    """What it was traced with when it was built holds no layers that could be recorded."""

    def __init__(self):
        super().__init__()
        self.dense = L.Dense(3)
        self.build((None, 5))

    def build(self, shape):
        self.dense.build(shape)
        super().build(shape)

    @tf.function
    def call(self, x):
        return self.dense(x)


def frozen():
    model = with_layer()
    model.trainable = False
    return model


NEVER_PRIVATE = {
    "graph": (lambda: CalledInAGraph(), "call of .* is a tf.function.*Remove the @tf.function"),
    "spectral": (lambda: with_layer(L.SpectralNormalization(L.Dense(4))), "spectral.*inside"),
    "stateful": (stateful, "rnn.*stateful=False"),
    "stateful in both directions": (lambda: stateful(L.Bidirectional), "stateful=False"),
    "frozen": (frozen, "trainable"),
}


@pytest.mark.parametrize(("make", "match"), NEVER_PRIVATE.values(), ids=NEVER_PRIVATE)
def test_what_cannot_be_made_private_is_refused_with_the_remedy(make, match):
    not_made_private(make(), match)


def test_trainable_batch_normalization_is_refused_with_the_remedy():
    not_made_private(with_layer(L.BatchNormalization(name="norm")), "norm.*Freeze.*GroupNorm")


def test_batch_normalization_that_is_thawed_later_is_refused(private, data):
    layer = L.BatchNormalization(trainable=False)
    model = private(with_layer(layer), **NOISY)
    layer.trainable = True
    refused(model, data(), match="BatchNormalization")


def test_frozen_batch_normalization_is_allowed_and_keeps_its_averages(private, data):
    layer = L.BatchNormalization(trainable=False)
    model = private(with_layer(layer), **NOISY)
    averages = np.array(layer.moving_mean)
    model.fit(*data(), batch_size=8, verbose=0)
    np.testing.assert_array_equal(layer.moving_mean, averages)
    assert not nothing_spent(model)


class MinusBatchMean(L.Layer):
    def call(self, x):
        return x - keras.ops.mean(x, axis=0, keepdims=True)


class ScaledMinusBatchMean(MinusBatchMean):
    """With a weight, so that it is differentiated by the fallback."""

    def build(self, shape):
        self.scale = self.add_weight(shape=(shape[-1],), initializer="ones", name="scale")

    def call(self, x):
        return self.scale * super().call(x)


class OverBatchSize(L.Layer):
    def call(self, x):
        return x / keras.ops.cast(keras.ops.shape(x)[0], x.dtype)


class Remembers(L.Layer):
    def build(self, shape):
        self.average = self.add_weight(
            shape=(shape[-1],), initializer="zeros", trainable=False, name="average"
        )

    def call(self, x):
        self.average.assign(0.9 * self.average + 0.1 * keras.ops.mean(x, axis=0))
        return x


@pytest.mark.parametrize(
    ("layer", "what"),
    [
        (MinusBatchMean, "other examples"),
        (ScaledMinusBatchMean, "other examples"),
        (OverBatchSize, "size of its batch"),
    ],
)
def test_a_layer_that_mixes_examples_is_found_and_refused(private, data, layer, what):
    refused(private(with_layer(layer()), **NOISY), data(), match=what)


def test_a_layer_that_changes_state_is_refused_by_name(private, data):
    model = private(with_layer(Remembers(name="memory")), **NOISY)
    refused(model, data(), match="memory.*in its call")


def test_a_loss_that_mixes_examples_is_found_and_refused(private, data, small_model):
    def contrastive(y_true, y_pred):
        similarity = keras.ops.matmul(y_pred, keras.ops.transpose(y_pred))
        return keras.ops.mean(similarity, axis=-1)

    refused(private(small_model(), loss=contrastive, **NOISY), data(), match="depends on")


def test_a_scalar_loss_that_an_example_alone_does_not_have_is_refused(private, data, small_model):
    def spread(y_true, y_pred):
        return keras.ops.sum(keras.ops.var(y_pred, axis=0))

    refused(private(small_model(), loss=spread, **NOISY), data(), match="alone")


def test_a_layer_without_gradient_source_is_refused_by_name(private, data):
    class WithSpare(keras.Model):
        def __init__(self):
            super().__init__()
            self.head, self.spare = L.Dense(3), L.Dense(2, name="spare")
            self.head.build((None, 5))
            self.spare.build((None, 5))
            self.built = True

        def call(self, x):
            return self.head(x)

    refused(private(WithSpare(), **NOISY), data(), match="spare.*Freeze")


def test_a_layer_that_does_not_reach_the_loss_is_refused_by_name(private, data):
    class StopGradient(L.Layer):
        def call(self, x):
            return keras.ops.stop_gradient(x)

    model = with_layer(L.Dense(4, name="cut"), StopGradient())
    refused(private(model, **NOISY), data(), match="cut|no gradient")


def test_a_private_optimizer_in_a_standard_model_is_refused(data, small_model):
    model = small_model()
    model.compile(tfdp.DPSGDOptimizer("sgd", l2_norm_clip=1.0, **NOISY), "mse", jit_compile=False)
    weights = np.array(model.layers[0].kernel)
    with pytest.raises(tfdp.NotPrivateError, match=MESSAGE + "make_private"):
        model.fit(data()[0], np.zeros((24, 3)), verbose=0)
    np.testing.assert_array_equal(model.layers[0].kernel, weights)


def test_a_private_optimizer_is_no_use_in_a_custom_standard_step(small_model):
    model = small_model()
    optimizer = tfdp.DPSGDOptimizer("sgd", l2_norm_clip=1.0, **NOISY)
    gradients = [np.ones(v.shape, "float32") for v in model.trainable_variables]
    for apply in (
        lambda: optimizer.apply(gradients, model.trainable_variables),
        lambda: optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True)),
    ):
        with pytest.raises(tfdp.NotPrivateError, match=MESSAGE):
            apply()


def test_a_plain_optimizer_in_a_private_model_is_refused(data, small_model):
    model = tfdp.make_private(small_model())
    model.compile("sgd", "mse", jit_compile=False)
    refused(model, data(), tfdp.NotPrivateError, "SGD.*make_standard")


def test_train_on_batch_of_a_private_model_is_refused(private, data, small_model):
    model = private(small_model(), **NOISY)
    x, y = data()
    with pytest.raises((tfdp.NotPrivateError, ValueError), match=MESSAGE):
        model.train_on_batch(x, y)
    assert nothing_spent(model)


def test_loss_scaling_that_keras_adds_is_refused(private, data):
    keras.config.set_dtype_policy("mixed_float16")
    try:
        model = private(with_layer(L.Dense(4)), **NOISY)
    finally:
        keras.config.set_dtype_policy("float32")
    assert isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
    refused(model, data(), tfdp.NotPrivateError, "auto_scale_loss=False")
    tfdp.make_standard(model)
    assert type(model.optimizer) is keras.optimizers.SGD


def test_what_is_no_model_is_refused():
    with pytest.raises(tfdp.UnsupportedModelError, match=MESSAGE):
        tfdp.make_private(L.Dense(2))


@pytest.mark.parametrize("method", ["train_step", "fit", "make_train_function"])
def test_a_model_with_a_training_step_of_its_own_is_refused_by_fit(private, data, method):
    own = type("Own", (keras.Sequential,), {method: lambda self, *a, **k: None})
    model = private(own([keras.Input((5,)), L.Dense(3)]), **NOISY)
    with pytest.raises(tfdp.UnsupportedModelError, match=f"Expected.*{method}.*PrivateTrainer"):
        model.fit(*data(), batch_size=8, verbose=0)
    assert nothing_spent(model)


def test_a_model_with_a_training_step_of_its_own_trains_in_a_custom_loop(private, data):
    """The remedy that its refusal names."""
    own = type("Own", (keras.Sequential,), {"train_step": lambda self, *a, **k: None})
    model = private(own([keras.Input((5,)), L.Dense(3)]), **NOISY)
    sampler = tfdp.PoissonSampler(*data(), batch_size=8, steps=1)
    trainer = tfdp.PrivateTrainer(model, sampler)
    for batch in sampler:
        gradients = trainer.gradients(lambda b: (keras.ops.sum(model(b["x"]), -1), ()), batch)
        trainer.apply(gradients)
    assert not nothing_spent(model)


class CreatesALayer(L.Layer):
    def call(self, x):
        return L.Dense(4, name="fresh")(x)


class CreatesAVariable(keras.Model):
    def __init__(self):
        super().__init__()
        self.head = L.Dense(3)

    def call(self, x):
        return self.head(x * keras.Variable(np.ones(5), name="fresh"))


def creates_a_layer():
    return with_layer(CreatesALayer())


def creates_a_variable():
    model = CreatesAVariable()
    model(np.zeros((1, 5), "float32"))
    return model


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (creates_a_layer, "creates no variables.*kernel.*build"),
        (creates_a_variable, "creates no variables.*keras.Variable.*build"),
    ],
)
def test_what_is_created_in_call_would_never_be_trained_and_is_refused(private, data, make, match):
    model = private(make(), **NOISY)
    with pytest.raises(ValueError, match=f"(?s){match}"):
        model.fit(*data(), batch_size=8, verbose=0)
    assert nothing_spent(model)


class Hashed(L.Layer):
    """Looks up hashed strings in a table of its own, with an operation that needs the fallback."""

    def build(self, shape):
        self.table = self.add_weight(shape=(7, 3), name="table")

    def call(self, strings):
        rows = tf.gather(self.table, tf.strings.to_hash_bucket_fast(strings, 7))[:, 0]
        return tf.maximum(rows, self.table[0])


def test_a_layer_with_weights_on_strings_is_refused_by_name(private):
    inputs = keras.Input((1,), dtype="string")
    model = private(keras.Model(inputs, Hashed(name="hashed")(inputs)), **NOISY)
    words = np.array([["a"], ["b"]] * 12)
    refused(model, (words, np.zeros(24)), match="strings.*StringLookup")


class Signs(L.Layer):
    def build(self, shape):
        self.scale = self.add_weight(shape=(5,), initializer="ones", name="scale")

    def call(self, x):
        return keras.ops.cast(x * self.scale > 0, "int32")


def test_a_layer_with_weights_and_no_float_output_is_refused_by_name(private, data):
    model = with_layer(Signs(name="signs"), L.Embedding(2, 3), L.Flatten())
    refused(private(model, **NOISY), data(), match="no gradient.*Freeze")


@pytest.mark.parametrize("size", [0, -1, 2.5, True])
def test_wrong_microbatch_sizes_are_refused(small_model, size):
    with pytest.raises(ValueError, match=MESSAGE):
        tfdp.make_private(small_model(), microbatch_size=size)


def test_a_model_without_loss_is_refused(data, small_model):
    model = tfdp.make_private(small_model())
    model.compile(tfdp.DPSGDOptimizer("sgd", l2_norm_clip=1.0, **NOISY))
    refused(model, data(), match="loss")


def trainer_of(private, small_model, data):
    model = private(small_model(), **NOISY)
    sampler = tfdp.PoissonSampler(*data(), batch_size=6, steps=2)
    losses = lambda b: tf.reduce_sum(model(b["x"], training=True), 1)  # noqa: E731
    return model, tfdp.PrivateTrainer(model, sampler), next(iter(sampler)), losses


@pytest.mark.parametrize("outputs", ["alone", "none"])
def test_a_forward_that_returns_something_else_gets_a_sentence(private, small_model, data, outputs):
    _, trainer, batch, losses = trainer_of(private, small_model, data)
    forward = losses if outputs == "alone" else lambda b: (losses(b), None)
    with pytest.raises(TypeError, match=r"(?s)Expected forward to return.*`losses, \(\)`"):
        trainer.gradients(forward, batch)


def test_ragged_and_sparse_batches_get_a_sentence(private, small_model, data):
    _, trainer, batch, losses = trainer_of(private, small_model, data)
    for x in (tf.ragged.constant([[1.0], []]), tf.sparse.from_dense([[1.0, 0.0]])):
        with pytest.raises(tfdp.UnsupportedModelError, match="dense tensors"):
            trainer.gradients(lambda b: (losses(b), ()), {**batch, "x": x})


def test_a_layer_unfrozen_between_calls_of_a_trainer_gets_a_sentence(private, small_model, data):
    model, trainer, batch, losses = trainer_of(private, small_model, data)
    model.layers[0].trainable = False
    with pytest.raises(RuntimeError, match="frozen or unfrozen"):
        trainer.gradients(lambda b: (losses(b), ()), batch)
    assert nothing_spent(model)

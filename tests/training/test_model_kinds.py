"""Sequential, functional and subclassed models; several inputs and outputs, as lists and dicts."""

import dataclasses
import os
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras.src.applications.convnext import StochasticDepth

import tf_lowrank_dp as tfdp
from tests import oracle
from tf_lowrank_dp.accounting import Sampling
from tf_lowrank_dp.tracing.random_ops import FixedSource, random_numbers_from


def sgd():
    return keras.optimizers.SGD(0.1, momentum=0.9)


def functional_with_dicts():
    keras.utils.set_random_seed(1)
    inputs = {"a": keras.Input((5,), name="a"), "b": keras.Input((2,), name="b")}
    joined = keras.layers.Concatenate()([keras.layers.Dense(4, "relu")(inputs["a"]), inputs["b"]])
    outputs = {
        "value": keras.layers.Dense(1, name="value")(joined),
        "class": keras.layers.Dense(3, name="class")(joined),
    }
    return keras.Model(inputs, outputs)


def functional_with_lists():
    keras.utils.set_random_seed(2)
    a, b = keras.Input((5,)), keras.Input((2,))
    shared = keras.layers.Dense(3, "tanh")  # one layer, used twice
    hidden = shared(a)
    again = shared(keras.layers.Concatenate()([hidden, b]))
    return keras.Model([a, b], [keras.layers.Dense(1)(hidden), keras.layers.Dense(1)(again)])


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__()
        self.hidden = keras.layers.Dense(4, "tanh")
        self.head = keras.layers.Dense(3)

    def call(self, inputs, training=False):
        return self.head(self.hidden(inputs))

    def describe(self):
        return "mine"


def subclassed():
    keras.utils.set_random_seed(3)
    model = Subclassed()
    model(np.zeros((1, 5), "float32"))
    return model


class BuiltByShape(keras.Model):
    """Layers and a weight of its own are created in `build`; `call` has an argument of its own."""

    def build(self, shape):
        self.hidden = keras.layers.Dense(4, "tanh")
        self.hidden.build(shape)
        self.head = keras.layers.Dense(3)
        self.head.build((None, 4))
        self.gain = self.add_weight(shape=(3,), initializer="ones", name="gain")

    def call(self, inputs, training=False, temperature=1.0):
        return self.gain * self.head(self.hidden(inputs)) / temperature


def built_by_shape():
    keras.utils.set_random_seed(4)
    model = BuiltByShape()
    model.build((None, 5))
    return model


def masked_sequences():
    """Sentences of different lengths, padded with zeros that embedding and LSTM mask."""
    keras.utils.set_random_seed(5)
    return keras.Sequential(
        [
            keras.Input((None,), dtype="int32"),
            keras.layers.Embedding(9, 4, mask_zero=True),
            keras.layers.LSTM(4, return_sequences=True),
            keras.layers.GlobalAveragePooling1D(),
            keras.layers.Dense(3),
        ]
    )


def with_random_layers():
    keras.utils.set_random_seed(6)
    return keras.Sequential(
        [
            keras.Input((5,)),
            keras.layers.Dense(8, "tanh"),
            keras.layers.GaussianNoise(0.3, seed=1),
            keras.layers.Dropout(0.5, seed=2),
            keras.layers.Dense(3),
        ]
    )


class Switched(keras.layers.Layer):
    """A layer with weights of its own, for the fallback, whose inputs are no floats."""

    def build(self, shapes):
        self.table = self.add_weight(shape=(4, 5), initializer="uniform", name="table")

    def call(self, inputs):
        ids, switches = inputs
        rows = keras.ops.take(self.table, ids, axis=0)
        rows = keras.ops.maximum(rows, self.table[0])  # has no rule
        return rows * keras.ops.cast(switches, rows.dtype)


def switched():
    keras.utils.set_random_seed(7)
    inputs = [keras.Input((), dtype="int32"), keras.Input((5,), dtype="bool")]
    return keras.Model(inputs, keras.layers.Dense(3)(Switched()(inputs)))


class FeedBack(keras.Model):
    """Calls the cell by itself as well, after the recurrent layer around it."""

    def __init__(self, cell):
        super().__init__()
        self.cell = cell
        self.warm_up = keras.layers.RNN(self.cell, return_state=True)
        self.head = keras.layers.Dense(3)

    def call(self, inputs):
        x, *states = self.warm_up(inputs[:, :, None])
        x, states = self.cell(x[:, :1], states)
        return self.head(x)


@pytest.fixture
def two_inputs():
    generator = np.random.default_rng(5)
    return [generator.normal(size=(24, n)).astype("float32") for n in (5, 2)]


@pytest.fixture
def two_targets():
    generator = np.random.default_rng(6)
    return generator.normal(size=(24, 1)).astype("float32"), generator.integers(0, 3, 24)


def test_subclassed_models_train_as_before_and_keep_class_and_methods(twins, data):
    _, own = twins(subclassed, data(), sgd)
    assert type(own) is Subclassed and own.describe() == "mine"


def test_models_with_weights_of_their_own_made_in_build_train_as_before(twins, data):
    twins(built_by_shape, data(), sgd)


@pytest.mark.parametrize("method", ["bookkeeping", "reweight", "vectorized", "loop"])
def test_every_read_of_a_weight_comes_before_its_gradient(private, data, method):
    """Nothing else orders it before the update.

    Grappler drops TensorFlow's own order of a read and a write when it sees another path between
    them, through the IdentityN around all gradients, say, and cuts that path later.
    """
    model = private(built_by_shape(), gradient_method=method)
    sampler = tfdp.PoissonSampler(*data(), batch_size=6, steps=1, seed=5)
    batch = {key: tf.convert_to_tensor(value) for key, value in next(iter(sampler)).items()}
    trainer = tfdp.PrivateTrainer(model, sampler)

    @tf.function
    def gradients(batch):
        def losses(batch):
            logits = model(batch["x"], training=True)
            return tf.square(logits[:, 0] - tf.cast(batch["y"], tf.float32))

        return trainer.gradients(lambda b: (losses(b), ()), batch)

    graph = gradients.get_concrete_function(batch)
    resources = {id(inner): outer for outer, inner in graph.graph.captures}
    for variable, gradient in zip(model.trainable_variables, graph.outputs, strict=True):
        reads = [
            op
            for op in graph.graph.get_operations()
            if op.type in ("ReadVariableOp", "While")
            and any(resources.get(id(t)) is variable.value.handle for t in op.inputs)
        ]
        assert reads and not set(reads) - _ancestors(gradient.op.inputs[0].op)


def _ancestors(op):
    found, waiting = set(), [op]
    while waiting:
        op = waiting.pop()
        if op not in found:
            found.add(op)
            waiting.extend([*(tensor.op for tensor in op.inputs), *op.control_inputs])
    return found


def test_a_custom_loop_may_use_arguments_of_call(private, data):
    model = private(built_by_shape(), l2_norm_clip=0.5, noise_multiplier=0.0)
    sampler = tfdp.PoissonSampler(*data(), batch_size=6, steps=1, seed=5)
    batch = {key: tf.convert_to_tensor(value) for key, value in next(iter(sampler)).items()}

    def losses(batch):
        logits = model(batch["x"], training=True, temperature=2.0)
        return keras.losses.sparse_categorical_crossentropy(batch["y"], logits, from_logits=True)

    found = tfdp.PrivateTrainer(model, sampler).gradients(lambda b: (losses(b), ()), batch)
    rest = {key: batch[key] for key in ("x", "y")}
    expected = oracle.per_example_gradients(model, losses, rest)
    for a, b in zip(found, oracle.clipped_sums(expected, batch["presence"], 0.5), strict=True):
        np.testing.assert_allclose(a, b / 6, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("cell", ["SimpleRNNCell", "LSTMCell", "GRUCell"])
def test_a_cell_that_is_called_by_itself_as_well_trains_as_before(twins, data, cell):
    def build():
        keras.utils.set_random_seed(8)
        model = FeedBack(getattr(keras.layers, cell)(4))
        model(np.zeros((1, 5), "float32"))
        return model

    twins(build, data(), sgd)


def test_padded_sequences_of_different_lengths_train_as_before(twins, data):
    generator = np.random.default_rng(7)
    words = generator.integers(1, 9, (24, 7)) * (np.arange(7) < generator.integers(1, 8, (24, 1)))
    twins(masked_sequences, (words.astype("int32"), data()[1]), sgd, epochs=2)


def test_integers_and_booleans_into_a_layer_of_the_fallback_train_as_before(twins, data):
    generator = np.random.default_rng(8)
    ids, switches = generator.integers(0, 4, 24), generator.random((24, 5)) < 0.5
    _, own = twins(switched, ((ids, switches), data()[1]), sgd)
    assert "fallback" in tfdp.explain(own)


@pytest.mark.parametrize("method", ["bookkeeping", "reweight"])
def test_random_layers_have_the_ordinary_gradients_for_the_numbers_drawn(private, data, method):
    model = private(
        with_random_layers(),
        l2_norm_clip=np.inf,
        noise_multiplier=0.0,
        gradient_method=method,
    )
    x, y = (tf.constant(a) for a in data())
    trainer = tfdp.PrivateTrainer(model, Sampling.poisson(len(x), len(x)), steps=1)
    engine = dataclasses.replace(trainer._run.engine, masks=FixedSource())
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=None)

    def forward(batch):
        return loss(batch["y"], model(batch["x"], training=True)), ()

    @tf.function(autograph=False)
    def ordinary():
        with random_numbers_from(FixedSource()), tf.GradientTape() as tape:
            total = tf.reduce_mean(forward({"x": x, "y": y})[0])
        return tape.gradient(total, [v.value for v in model.trainable_variables])

    found = engine.private_gradients(forward, {"x": x, "y": y}, tf.ones([len(x)]))
    for one, other in zip(found, ordinary(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_layers_that_draw_from_the_global_seed_train(private, data):
    """Stochastic depth drops whole branches, an example at a time, and has no seed of its own."""
    keras.utils.set_random_seed(7)
    inputs = keras.Input((5,))
    x = inputs + StochasticDepth(0.5)(keras.layers.Dense(5)(inputs))
    model = private(keras.Model(inputs, keras.layers.Dense(3)(x)), noise_multiplier=1.0)
    model.fit(*data(), batch_size=8, verbose=0)
    assert tfdp.privacy_spent(model, 1e-3) > 0


@pytest.mark.parametrize("loss_weights", [None, {"value": 0.3, "class": 2.0}])
def test_dicts_of_inputs_and_outputs_train_as_before(twins, two_inputs, two_targets, loss_weights):
    x = dict(zip(("a", "b"), two_inputs, strict=True))
    y = dict(zip(("value", "class"), two_targets, strict=True))
    loss = {
        "value": "mse",
        "class": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    }
    twins(functional_with_dicts, (x, y), sgd, loss=loss, loss_weights=loss_weights)


@pytest.mark.parametrize("loss_weights", [None, [0.5, 1.5]])
def test_lists_of_inputs_and_outputs_train_as_before(twins, two_inputs, two_targets, loss_weights):
    x, y = tuple(two_inputs), (two_targets[0], -two_targets[0])
    twins(functional_with_lists, (x, y), sgd, loss=["mse", "mae"], loss_weights=loss_weights)


def test_poisson_sampling_takes_dicts_of_arrays(private, two_inputs, two_targets):
    model = functional_with_dicts()
    losses = {"value": "mse", "class": keras.losses.SparseCategoricalCrossentropy(from_logits=True)}
    private(model, "sgd", losses, l2_norm_clip=1.0, noise_multiplier=1.0)
    history = model.fit(
        dict(zip(("a", "b"), two_inputs, strict=True)),
        dict(zip(("value", "class"), two_targets, strict=True)),
        batch_size=6,
        epochs=2,
        verbose=0,
    )
    assert np.all(np.isfinite(history.history["loss"]))
    assert set(history.history) == {"loss", "value_loss", "class_loss"}


def test_mixed_float16_trains_without_loss_scaling_and_drops_examples_that_overflow(
    private, data, small_model
):
    """Losses are not divided by the batch size before they are differentiated, so few underflow."""
    x, y = data()
    exact = private(small_model(), l2_norm_clip=1.0, noise_multiplier=0.0)
    keras.config.set_dtype_policy("mixed_float16")
    try:
        model = tfdp.make_private(small_model())
    finally:
        keras.config.set_dtype_policy("float32")
    assert model.layers[0].compute_dtype == "float16"
    model.compile(
        tfdp.DPSGDOptimizer("sgd", l2_norm_clip=1.0, noise_multiplier=0.0),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        auto_scale_loss=False,
        jit_compile=False,
    )
    batches = tf.data.Dataset.from_tensor_slices((x, y)).batch(8, drop_remainder=True)
    for trained in (exact, model):
        trained.fit(batches, sampling="shuffle", verbose=0)
    for v, w in zip(exact.trainable_variables, model.trainable_variables, strict=True):
        np.testing.assert_allclose(v, w, atol=2e-3)
    before = [np.array(v) for v in model.trainable_variables]
    x[:] = 1e6  # infinite in float16
    model.fit(tf.data.Dataset.from_tensor_slices((x, y)).batch(24, True), sampling="shuffle")
    for v, w in zip(before, model.trainable_variables, strict=True):
        np.testing.assert_array_equal(v, w)


@pytest.mark.parametrize("compiled", ["before", "after"])
def test_a_file_that_is_loaded_under_mixed_float16_keeps_its_ledger(
    compiled, data, small_model, tmp_path
):
    """It was left out, and the epsilon of the loaded model 0 for 2.0."""
    model, file = small_model(), tmp_path / "model.keras"
    if compiled == "after":
        tfdp.make_private(model)
    model.compile(
        tfdp.DPSGDOptimizer("adam", l2_norm_clip=1.0, noise_multiplier=1.0),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    tfdp.make_private(model)
    model.fit(*data(), batch_size=8, verbose=0)
    spent = tfdp.privacy_spent(model, 1e-3)
    model.save(file)
    keras.config.set_dtype_policy("mixed_float16")
    try:
        for _ in range(2):  # a loaded model is saved, and loaded, as it is
            model = keras.models.load_model(file)
            assert tfdp.privacy_spent(model, 1e-3) == spent
            assert "unknown" not in tfdp.privacy_statement(model, 1e-3)
            model.save(file)
        tfdp.make_standard(model).save(file)
        optimizer = keras.models.load_model(file).optimizer
        assert isinstance(optimizer, keras.optimizers.LossScaleOptimizer)  # as Keras does
    finally:
        keras.config.set_dtype_policy("float32")


def test_a_nested_model_trains_as_before(twins, data, small_model):
    def build():
        inner = small_model(outputs=4)
        return keras.Sequential([keras.Input((5,)), inner, keras.layers.Dense(3)])

    twins(build, data(), sgd)


def test_frozen_layers_stay_as_they_are(twins, data, small_model):
    def build():
        model = small_model()
        model.layers[0].trainable = False
        return model

    _, own = twins(build, data(), sgd)
    np.testing.assert_array_equal(own.layers[0].kernel, build().layers[0].kernel)


def test_evaluate_predict_and_export_work(private, data, small_model, tmp_path):
    model = private(small_model(), metrics=["accuracy"], l2_norm_clip=1.0, noise_multiplier=1.0)
    x, y = data()
    model.fit(x, y, batch_size=8, verbose=0, validation_split=0.25)
    found = model.evaluate(x, y, verbose=0, return_dict=True)
    predicted = model.predict(x, verbose=0)
    assert predicted.shape == (24, 3)
    assert found["accuracy"] == pytest.approx(np.mean(predicted.argmax(-1) == y))
    model.export(tmp_path / "exported", verbose=False)
    assert (tmp_path / "exported" / "saved_model.pb").exists()


POINTWISE = """
import keras, numpy as np, tf_lowrank_dp as tfdp
image = keras.Input((40, 40, 3))
half = keras.layers.Conv2D(8, 1, strides=2, padding="same")(image)
model = keras.Model(image, keras.layers.Dense(1)(keras.layers.GlobalAveragePooling2D()(half)))
tfdp.make_private(model)
x, y = np.random.rand(24, 40, 40, 3).astype("float32"), np.random.randint(0, 2, 24)
for method in ("auto", "loop"):
    optimizer = tfdp.DPSGDOptimizer(
        "adam", l2_norm_clip=1.0, noise_multiplier=1.0, gradient_method=method
    )
    model.compile(optimizer, keras.losses.BinaryCrossentropy(from_logits=True))
    model.fit(x, y, batch_size=8, verbose=0)
"""


def test_strided_pointwise_convolutions_do_not_end_the_process():
    """TensorFlow's oneDNN kernel of their gradient writes out of bounds for odd batches."""
    environment = {**os.environ, "TF_ENABLE_ONEDNN_OPTS": "1"}
    subprocess.run([sys.executable, "-c", POINTWISE], env=environment, check=True)


class SharedLatents(keras.Model):
    """A normalised table that all examples share, as a Perceiver's."""

    def __init__(self, normalisation):
        super().__init__()
        self.normalisation, self.head = normalisation, keras.layers.Dense(5)

    def build(self, shape):
        self.latents = self.add_weight(shape=(1, 4, 8), initializer="random_normal")
        self.built = True

    def call(self, x):
        return self.head(keras.ops.mean(self.normalisation(self.latents) + x, axis=1))


@pytest.mark.parametrize(
    "normalisation", [keras.layers.LayerNormalization, lambda: keras.layers.GroupNormalization(1)]
)
def test_a_normalised_weight_that_all_share_trains_as_by_keras(normalisation, assert_same_weights):
    x = np.random.default_rng(0).normal(size=(8, 4, 8)).astype("float32")
    y = np.arange(8) % 5
    models = []
    for private in (False, True):
        keras.utils.set_random_seed(0)
        model, optimizer = SharedLatents(normalisation()), keras.optimizers.SGD(0.1)
        model(x)
        if private:
            tfdp.make_private(model)
            optimizer = tfdp.DPSGDOptimizer(optimizer, l2_norm_clip=np.inf, noise_multiplier=0.0)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer, loss, jit_compile=False)
        model.fit(x, y, batch_size=8, verbose=0)
        models.append(model)
    assert_same_weights(*models, 1e-4)


def test_dense_connectionist_losses_train_one_example_at_a_time(private):
    model = keras.Sequential([keras.Input((16, 6)), keras.layers.Dense(11)])
    private(model, "sgd", keras.losses.CTC(), noise_multiplier=1.0)
    x = np.random.default_rng(0).normal(size=(8, 16, 6)).astype("float32")
    with pytest.warns(UserWarning, match="one example at a time"):
        model.fit(x, np.ones((8, 5), "int32"), batch_size=4, verbose=0)

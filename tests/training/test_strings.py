"""Models that look up strings themselves are probed with words that they know."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_lowrank_dp as tfdp

WORDS = ["red", "green", "blue", "black"]
MESSAGE = "(?s)Expected.*Received.*"


class MinusBatchMean(keras.layers.Layer):
    """With a weight, so that it is differentiated by the fallback."""

    def build(self, shape):
        self.scale = self.add_weight(shape=(shape[-1],), initializer="ones", name="scale")

    def call(self, x):
        return (x - keras.ops.mean(x, axis=0, keepdims=True)) * self.scale


def of_words(*layers):
    inputs = keras.Input((3,), dtype="string")
    x = keras.layers.StringLookup(vocabulary=WORDS)(inputs)
    x = keras.layers.Embedding(6, 5)(x)
    x = keras.layers.GlobalAveragePooling1D()(x)
    for layer in layers:
        x = layer(x)
    data = np.random.default_rng(0).choice(WORDS, (24, 3))
    return keras.Model(inputs, keras.layers.Dense(1)(x)), tf.constant(data)


def of_sentences(*layers):
    texts = np.array([" ".join(words) for words in of_words()[1].numpy().astype(str)])
    vectorize = keras.layers.TextVectorization(output_sequence_length=4)
    vectorize.adapt(texts)
    inputs = keras.Input((), dtype="string")
    x = keras.layers.Embedding(vectorize.vocabulary_size(), 5)(vectorize(inputs))
    x = keras.layers.GlobalAveragePooling1D()(x)
    for layer in layers:
        x = layer(x)
    return keras.Model(inputs, keras.layers.Dense(1)(x)), tf.constant(texts)


def fit(model, texts, loss="mse"):
    tfdp.make_private(model)
    optimizer = tfdp.DPSGDOptimizer("sgd", l2_norm_clip=1.0, noise_multiplier=1.0, delta=1e-3)
    model.compile(optimizer, loss=loss, jit_compile=False)
    model.fit(texts, tf.random.stateless_normal([24, 1], [1, 2]), batch_size=8, verbose=0)


each_model = pytest.mark.parametrize("make", [of_words, of_sentences])


@each_model
def test_a_model_that_looks_up_strings_trains(make):
    model, texts = make()
    before = [np.array(v) for v in model.trainable_variables]
    fit(model, texts)
    assert model.optimizer.ledger.num_steps == 3
    for v, w in zip(model.trainable_variables, before, strict=True):
        assert np.any(np.asarray(v) != w)


def test_strings_that_are_crossed_train():
    """XLA, by which they were vectorised, ended the process."""
    inputs = [keras.Input((1,), dtype="string", name=name) for name in ("first", "second")]
    crossed = keras.layers.HashedCrossing(5, output_mode="one_hot")(inputs)
    model = keras.Model(inputs, keras.layers.Dense(1)(crossed))
    words = np.random.default_rng(0).choice(WORDS, (2, 24, 1))
    fit(model, [tf.constant(column) for column in words])
    assert tfdp.privacy_spent(model) > 0.0


@each_model
def test_a_layer_that_mixes_examples_behind_strings_is_refused_and_nothing_spent(make):
    model, texts = make(MinusBatchMean())
    with pytest.raises(tfdp.UnsupportedModelError, match=MESSAGE + "mixes examples"):
        fit(model, texts)
    assert tfdp.privacy_spent(model, 1e-3) == 0.0


@each_model
def test_a_loss_that_mixes_examples_behind_strings_is_refused_and_nothing_spent(make):
    def contrastive(y_true, y_pred):
        similarity = keras.ops.matmul(y_pred, keras.ops.transpose(y_pred))
        return keras.ops.mean(similarity, axis=-1)

    model, texts = make()
    with pytest.raises(tfdp.UnsupportedModelError, match=MESSAGE + "mixes examples"):
        fit(model, texts, contrastive)
    assert tfdp.privacy_spent(model, 1e-3) == 0.0


def test_texts_that_are_padded_to_the_longest_of_a_batch_are_refused(private_texts):
    """Without a mask the mean over positions depends on the longest text of the batch."""
    model, texts = private_texts(mask_zero=False)
    with pytest.raises(tfdp.UnsupportedModelError, match=MESSAGE + "mixes examples"):
        fit(model, texts)
    model, texts = private_texts(mask_zero=True)
    fit(model, texts)
    assert model.optimizer.ledger.num_steps == 3


@pytest.fixture
def private_texts():
    def build(mask_zero):
        texts = of_sentences()[1]
        vectorize = keras.layers.TextVectorization()
        vectorize.adapt(texts)
        inputs = keras.Input((), dtype="string")
        x = keras.layers.Embedding(vectorize.vocabulary_size(), 5, mask_zero=mask_zero)(
            vectorize(inputs)
        )
        x = keras.layers.GlobalAveragePooling1D()(x)
        return keras.Model(inputs, keras.layers.Dense(1)(x)), texts

    return build


@pytest.mark.parametrize("form", [dict, list])
def test_each_input_gets_words_of_the_layer_that_reads_it(form):
    """Words of the large vocabulary are all unknown to the small one, so they hide its branch."""
    words = {"city": [f"city {n}" for n in range(2000)], "animal": ["cat", "dog"]}
    inputs = {name: keras.Input((1,), dtype="string", name=name) for name in words}
    city, animal = (
        keras.layers.Flatten()(
            keras.layers.Embedding(len(known) + 1, 3)(
                keras.layers.StringLookup(vocabulary=known)(inputs[name])
            )
        )
        for name, known in words.items()
    )
    generator = np.random.default_rng(0)
    data = {name: tf.constant(generator.choice(known, (24, 1))) for name, known in words.items()}
    if form is list:
        inputs, data = list(inputs.values()), list(data.values())

    def model(animal):
        both = keras.layers.Concatenate()([city, animal])
        return keras.Model(inputs, keras.layers.Dense(1)(both))

    fit(model(animal), data)
    with pytest.raises(tfdp.UnsupportedModelError, match=MESSAGE + "mixes examples"):
        fit(model(MinusBatchMean()(animal)), data)


class Picture(keras.layers.Layer):
    """Decodes images of two rows and columns."""

    def call(self, strings):
        decode = lambda string: tf.ensure_shape(tf.io.decode_png(string, 1), (2, 2, 1))  # noqa: E731
        return tf.cast(tf.map_fn(decode, strings, fn_output_signature=tf.uint8), tf.float32)

    def compute_output_shape(self, shape):
        return (*shape, 2, 2, 1)

    def compute_output_spec(self, strings):
        return keras.KerasTensor(self.compute_output_shape(strings.shape))


def test_strings_that_are_no_words_are_refused_with_the_remedy():
    inputs = keras.Input((), dtype="string")
    pixels = keras.layers.Flatten()(Picture()(inputs))
    model = keras.Model(inputs, keras.layers.Dense(1)(pixels))
    image = tf.io.encode_png(np.ones((2, 2, 1), "uint8"))
    with pytest.raises(tfdp.UnsupportedModelError, match=MESSAGE + "before sampling"):
        fit(model, tf.repeat(image[None], 24))

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

"""Contracts of the port to KerasHub, on the KerasHub that is installed."""

import importlib

import keras
import numpy as np
import pytest
import tensorflow as tf

from tf_lowrank_dp._keras import class_names
from tf_lowrank_dp._keras.keras_hub import (
    before_projection,
    distance_buckets,
    keep_no_words,
    projection_bias,
    projection_kernel,
)

keras_hub = pytest.importorskip("keras_hub")

NAMES = [
    name
    for key, value in vars(class_names).items()
    if key.isupper() and not key.startswith("_")
    for name in ([value] if isinstance(value, str) else value)
]


@pytest.mark.parametrize("name", NAMES)
def test_each_class_name_is_that_of_a_layer(name):
    module, _, attribute = name.rpartition(".")
    found = getattr(importlib.import_module(module), attribute)
    assert issubclass(found, keras.layers.Layer)
    assert f"{found.__module__}.{found.__qualname__}" == name


def test_the_parts_of_a_masked_lm_head_make_up_its_output():
    head = keras_hub.layers.MaskedLMHead(7, intermediate_activation="tanh")
    x, positions = tf.random.stateless_normal([2, 4, 3], [1, 2]), tf.constant([[0, 2], [3, 1]])
    expected = head(x, mask_positions=positions)
    projection_bias(head).assign(np.arange(7.0))
    expected = head(x, mask_positions=positions)
    tokens = tf.gather(x, positions, batch_dims=1)
    found = before_projection(head, tokens) @ projection_kernel(head) + projection_bias(head)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_distance_buckets_index_the_bias_that_the_layer_adds():
    module, _, attribute = class_names.T5_ATTENTION.rpartition(".")
    layer = getattr(importlib.import_module(module), attribute)(
        False, 8, 2, 2, 0.0, use_relative_attention_bias=True
    )
    layer.build((None, 3, 8))
    buckets = distance_buckets(layer, tf.range(9)[None, :] - tf.range(5)[:, None])
    expected = tf.gather(layer.relative_attention_bias, buckets)  # (query, key, heads)
    found = layer.compute_bias(5, 9)[0]
    np.testing.assert_allclose(tf.transpose(expected, [2, 0, 1]), found)


# Two words of one `tf.fingerprint`, found by solving the hash for 8 of 32 letters.
WORD, HOSTILE = " a", "gDiOpowhDrYCwXfPDerttGfDahxPckGk"


def byte_pairs():
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    tokens = ["<|endoftext|>", *letters, "Ġ", "Ġa", "go"]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    return keras_hub.models.GPT2Tokenizer(vocabulary=vocabulary, merges=["Ġ a", "g o"])


def tokens_in_a_graph(tokenizer, texts):
    dataset = tf.data.Dataset.from_tensors(texts).map(tokenizer).repeat(2)
    first, again = dataset
    assert first.to_list() == again.to_list()
    return first.to_list()


def test_a_tokenizer_that_keeps_no_words_gives_the_same_tokens_and_no_word_decides_on_another():
    texts = ["go a go", "", "b a<|endoftext|>", f"{HOSTILE} zz", "a  "]
    assert tf.reduce_all(tf.fingerprint([WORD]) == tf.fingerprint([HOSTILE]))
    alone = [tokens_in_a_graph(byte_pairs(), [text])[0] for text in texts]
    assert tokens_in_a_graph(byte_pairs(), texts) != alone  # as KerasHub does it
    tokenizer = byte_pairs()
    keep_no_words(tokenizer)
    assert tokens_in_a_graph(tokenizer, texts) == alone
    assert tokenizer._tokenize_tf(texts) == alone  # eagerly
    assert not [v for v in vars(tokenizer.cache).values() if isinstance(v, tf.Module)]


def test_layers_without_a_cache_of_words_are_left_alone():
    layer = keras.layers.Dense(1)
    keep_no_words(layer)
    assert not hasattr(layer, "cache")

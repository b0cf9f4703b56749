"""What layers of KerasHub are made of."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import keras
import tensorflow as tf

from tf_lowrank_dp._keras.missing import uses_private_names


@uses_private_names
def before_projection(layer: keras.layers.Layer, x: tf.Tensor) -> tf.Tensor:
    """The part of a `MaskedLMHead` before its projection: a Dense layer and a normalisation.

    Args:
        layer: a built `MaskedLMHead`.
        x: the tokens to predict, `(b, t, i)`.
    """
    return layer._intermediate_layer_norm(layer._intermediate_dense(x))


@uses_private_names
def projection_kernel(layer: keras.layers.Layer) -> keras.Variable:
    """The kernel `(i, words)` of a `MaskedLMHead` without a tied embedding."""
    return layer._kernel


@uses_private_names
def projection_bias(layer: keras.layers.Layer) -> keras.Variable:
    """The bias `(words,)` of a `MaskedLMHead`."""
    return layer._bias


@uses_private_names
def distance_buckets(layer: keras.layers.Layer, distances: tf.Tensor) -> tf.Tensor:
    """The bucket of each distance, key minus query, in a `T5MultiHeadAttention`.

    Args:
        layer: a built `T5MultiHeadAttention` with a bias for each distance.
        distances: integer, of any shape.

    Returns:
        int32 of the same shape, from 0 to `layer.relative_attention_buckets - 1`.
    """
    return layer._relative_position_bucket(
        distances,
        bidirectional=not layer.is_decoder,
        num_buckets=layer.relative_attention_buckets,
        max_distance=layer.relative_attention_max_distance,
    )


class NoWordsKept:
    """Takes the place of the cache of a byte pair tokenizer, and keeps nothing between two calls.

    KerasHub's own maps a hash of each word that was ever seen to its tokens.  The hash has no key:
    a word that is made to have that of another decides the tokens of other examples; and the table
    is saved with the model by `export` and `tf.train.Checkpoint`.

    Guarantee: the tokens of a word depend on it alone, and no word stays.
    """

    def __init__(self, unsplittable: Sequence[str]) -> None:
        self._unsplittable = list(unsplittable)
        self._call = threading.local()

    def lookup(self, words: tf.Tensor) -> tf.Tensor:
        """Nothing at first, so that all `words` are merged; then what `insert` brought of them."""
        tokens = self._call.__dict__.pop("tokens", None)
        if tokens is None:
            return tf.fill(tf.shape(words), "")
        whole = tf.constant(self._unsplittable, tf.string)
        is_whole = tf.reduce_any(tf.equal(words[:, tf.newaxis], whole), axis=1)
        return tf.where(is_whole, words, tokens)

    def insert(self, words: tf.Tensor, tokens: tf.Tensor) -> None:
        """Holds the tokens of all the words of this call, in their order."""
        del words
        self._call.tokens = tokens


@uses_private_names
def keep_no_words(tokenizer: keras.layers.Layer) -> None:
    """Takes the cache of a `BytePairTokenizer` away, from what is saved too; others have none."""
    if hasattr(tokenizer, "_bpe_merge_and_update_cache_tf") and tokenizer.vocabulary is not None:
        tokenizer._maybe_initialized_tf()
        del tokenizer.cache  # what takes its place is not tracked, and would leave it tracked
        tokenizer.cache = NoWordsKept(tokenizer.unsplittable_tokens or [])

"""What layers of KerasHub are made of."""

from __future__ import annotations

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

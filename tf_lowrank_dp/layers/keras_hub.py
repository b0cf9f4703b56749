"""Captures for layers of KerasHub, which is not imported here.

A layer of KerasHub is recognised by the full name of its class, and its capture class is made when
one is first seen: `register_capture` with a name takes a class without a base.

Attention, feed-forward and most embedding layers of KerasHub are made of Keras' own layers and need
nothing.  What is left are position embeddings, RMS normalisations and a few single weights.
"""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from tf_lowrank_dp._keras import class_names
from tf_lowrank_dp._keras.keras_hub import (
    before_projection,
    distance_buckets,
    projection_bias,
    projection_kernel,
)
from tf_lowrank_dp._types import LayerMixin
from tf_lowrank_dp.layers.embedding import ReversibleCapture
from tf_lowrank_dp.layers.normalization import scaled
from tf_lowrank_dp.layers.recorder import Builders, current_recorder
from tf_lowrank_dp.layers.registry import register_capture
from tf_lowrank_dp.per_example.activations import broadcast_gradient, positions, with_examples_of
from tf_lowrank_dp.per_example.gradient import PerExampleGradient
from tf_lowrank_dp.per_example.lookup import Lookup
from tf_lowrank_dp.per_example.materialized import Materialized
from tf_lowrank_dp.per_example.outer_product import OuterProduct


@register_capture(class_names.REVERSIBLE_EMBEDDING)
class _ReversibleEmbedding(ReversibleCapture):
    """KerasHub's subclass of `keras.layers.ReversibleEmbedding` adds nothing."""


@register_capture(class_names.POSITION_EMBEDDING)
class _PositionEmbedding(LayerMixin):
    """Rows `start_index ...` of a table `(length, o)`, or those given, for each example."""

    def call(
        self,
        inputs: tf.Tensor,
        start_index: int | tf.Tensor = 0,
        positions: tf.Tensor | None = None,
    ) -> tf.Tensor:
        outputs = super().call(inputs, start_index=start_index, positions=positions)
        recorder = current_recorder()
        if recorder is None:
            return outputs

        def of_rows(d: tf.Tensor) -> PerExampleGradient:
            rows = tf.reduce_sum(d, list(range(1, d.shape.rank - 2)))
            if d.shape[-2] == self.sequence_length:
                return Materialized(rows)
            after = self.sequence_length - start_index - tf.shape(d)[-2]
            rows = tf.pad(rows, [[0, 0], [start_index, after], [0, 0]])
            return Materialized(tf.ensure_shape(rows, [None, *self.position_embeddings.shape]))

        def of_positions(d: tf.Tensor) -> PerExampleGradient:
            assert positions is not None
            numbers = positions if len(positions.shape) > 1 else positions[None]
            return Lookup(with_examples_of(d, numbers), d, self.sequence_length)

        build = of_rows if positions is None else of_positions
        (outputs,) = recorder.watch(self.name, [outputs], [(self.position_embeddings, build)])
        return outputs


@register_capture(class_names.MASKED_LM_HEAD)
class _MaskedLMHead(LayerMixin):
    """A projection to the vocabulary, tied or with a kernel `(i, words)`, and a bias `(words,)`."""

    def call(self, inputs: tf.Tensor, mask_positions: tf.Tensor) -> tf.Tensor:
        recorder = current_recorder()
        if recorder is None:
            return super().call(inputs, mask_positions)
        x = keras.ops.take_along_axis(inputs, mask_positions[..., None], axis=1)
        x, bias = before_projection(self, x), projection_bias(self)
        builders: Builders = [(bias, lambda d: broadcast_gradient(d, tuple(d.shape[-1:])))]
        if self.token_embedding is not None:
            z = self.token_embedding(x, reverse=True)
        else:
            kernel = projection_kernel(self)
            z = keras.ops.matmul(x, kernel)
            builders.append((kernel, lambda d: OuterProduct(positions(x), positions(d))))
        z = keras.ops.cast(z, self.compute_dtype) + bias
        (z,) = recorder.watch(self.name, [z], builders)
        return z if self.activation is None else self.activation(z)


class _RootMeanSquare(LayerMixin):
    """`x / sqrt(mean(x^2) + epsilon)`, times a scale `(o,)`, in float32."""

    def call(self, x: tf.Tensor) -> tf.Tensor:
        if current_recorder() is None:
            return super().call(x)
        normalized = _normalized(tf.cast(x, tf.float32), self.epsilon)
        outputs = scaled(self, normalized, [x.shape.rank - 1], *self._scale())
        return tf.cast(outputs, self.compute_dtype)

    def _scale(self) -> tuple:
        return self.scale, None


for _name in class_names.ROOT_MEAN_SQUARE:
    register_capture(_name)(_RootMeanSquare)


class _GemmaNormalization(_RootMeanSquare):
    """Gemma's scale is `1 + scale`."""

    def _scale(self) -> tf.Tensor:
        return self.scale, None, 1.0


for _name in class_names.GEMMA_NORMALIZATION:
    register_capture(_name)(_GemmaNormalization)


@register_capture(class_names.T5_NORMALIZATION)
class _T5Normalization(LayerMixin):
    """The same in the dtype of its input."""

    def call(self, hidden_states: tf.Tensor) -> tf.Tensor:
        if current_recorder() is None:
            return super().call(hidden_states)
        normalized = _normalized(hidden_states, self.epsilon)
        return scaled(self, normalized, [normalized.shape.rank - 1], self.weight, None)


@register_capture(class_names.T5_ATTENTION)
class _T5Attention(LayerMixin):
    """A bias `(buckets, heads)` for each distance of query and key; all else is in children."""

    def compute_bias(self, query_length: int, key_length: int, **kwargs: Any) -> tf.Tensor:
        values = super().compute_bias(query_length, key_length, **kwargs)
        recorder = current_recorder()
        if recorder is None:
            return values
        queries = tf.range(query_length)[:, None] + kwargs.get("query_start_index", 0)
        buckets = distance_buckets(self, tf.range(key_length)[None, :] - queries)
        chosen = tf.one_hot(buckets, self.relative_attention_buckets, dtype=tf.float32)

        def gradient(d: tf.Tensor) -> PerExampleGradient:
            return Materialized(tf.einsum("bhqk,qkn->bnh", tf.cast(d, tf.float32), chosen))

        # One bias for all examples: the recorder repeats it for each.
        (values,) = recorder.watch(self.name, [values], [(self.relative_attention_bias, gradient)])
        return values


@register_capture(class_names.VIT_PATCHES)
class _ViTPatchingAndEmbedding(LayerMixin):
    """Patches by a convolution, behind a class token `(1, 1, o)`, plus position embeddings."""

    @classmethod
    def can_capture(cls, layer: keras.layers.Layer) -> bool:
        """Only `channels_last`; the other layout goes through the fallback."""
        return layer.data_format == "channels_last"

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        recorder = current_recorder()
        if recorder is None:
            return super().call(inputs)
        patches = self.patch_embedding(inputs)
        patches = keras.ops.reshape(patches, (-1, self.num_patches, self.hidden_dim))
        token = keras.ops.cast(self.class_token, self.compute_dtype)
        token = tf.repeat(token, tf.shape(patches)[0], axis=0)
        builders = [(self.class_token, lambda d: broadcast_gradient(d, self.class_token.shape))]
        (token,) = recorder.watch(self.name, [token], builders)
        patches = tf.concat([token, patches], axis=1)
        return patches + self.position_embedding(self.position_ids)


def _normalized(x: tf.Tensor, epsilon: float) -> tf.Tensor:
    return x * tf.math.rsqrt(tf.reduce_mean(tf.square(x), -1, keepdims=True) + epsilon)

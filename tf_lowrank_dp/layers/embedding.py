"""Capture for `keras.layers.Embedding` and `keras.layers.ReversibleEmbedding`."""

from __future__ import annotations

import keras
import tensorflow as tf

from tf_lowrank_dp._keras.layers import embeddings_of
from tf_lowrank_dp._keras.scopes import attach_mask
from tf_lowrank_dp.layers.lora import lora_scale
from tf_lowrank_dp.layers.quantized import QuantizedCapture
from tf_lowrank_dp.layers.recorder import Builders, current_recorder
from tf_lowrank_dp.layers.registry import register_capture
from tf_lowrank_dp.per_example.activations import (
    positions,
    shared_by_examples,
    with_examples_of,
)
from tf_lowrank_dp.per_example.gradient import PerExampleGradient
from tf_lowrank_dp.per_example.lookup import Lookup
from tf_lowrank_dp.per_example.outer_product import OuterProduct
from tf_lowrank_dp.per_example.parameter import MatrixView


class _EmbeddingCapture(QuantizedCapture):
    """Rows looked up, of a table that may have an adapter `s A B`."""

    captures_lora = True

    @classmethod
    def matrix_views(cls, layer: keras.layers.Layer) -> list[tuple[keras.Variable, MatrixView]]:
        """The table is the matrix `(input_dim, output_dim)`, the factors `(input_dim, r)`, ..."""
        tables = [] if layer.quantization_mode else [embeddings_of(layer)]
        if layer.lora_enabled:
            tables = [layer.lora_embeddings_a, layer.lora_embeddings_b]
        return [(table, MatrixView.of(tuple(table.shape))) for table in tables]

    def _looked_up(self, inputs: tf.Tensor) -> tf.Tensor:
        ids = tf.cast(inputs, tf.int64 if inputs.dtype == tf.int64 else tf.int32)
        ids, is_row = _rows_of(ids, self.input_dim)
        if self.lora_enabled:
            outputs, builders = self._adapted_rows(ids)
        else:
            outputs = self._rows(ids)
            builders = [(embeddings_of(self), lambda d: _lookup(ids, d, self.input_dim))]
        outputs = keras.ops.cast(outputs, self.compute_dtype)
        outputs = tf.where(is_row[..., None], outputs, tf.cast(float("nan"), outputs.dtype))
        recorder = current_recorder()
        assert recorder is not None
        (outputs,) = recorder.watch(self.name, [outputs], builders)
        return outputs

    def _rows(self, ids: tf.Tensor) -> tf.Tensor:
        return keras.ops.take(embeddings_of(self), ids, axis=0)

    def _adapted_rows(self, ids: tf.Tensor) -> tuple[tf.Tensor, Builders]:
        scale, a, b = lora_scale(self), self.lora_embeddings_a, self.lora_embeddings_b
        rows = scale * keras.ops.take(a, ids, axis=0)
        frozen = self._frozen(ids) if self.quantization_mode else self._rows(ids)
        outputs = frozen + keras.ops.matmul(rows, b)

        def of_a(d: tf.Tensor) -> PerExampleGradient:
            through = tf.einsum("...o,ro->...r", tf.cast(d, tf.float32), tf.cast(b, tf.float32))
            return _lookup(ids, scale * through, self.input_dim)

        def of_b(d: tf.Tensor) -> PerExampleGradient:
            return OuterProduct(positions(with_examples_of(d, rows)), positions(d))

        return outputs, [(a, of_a), (b, of_b)]


def _rows_of(ids: tf.Tensor, input_dim: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Ids as Keras reads them, -1 for the last row, 0 where there is no such row; and which are.

    TensorFlow raises for the others on a CPU, an error that tells of one private example.  Here
    their output is NaN, and an example with a NaN contributes nothing.
    """
    ids = tf.where(ids < 0, ids + input_dim, ids)
    is_row = (ids >= 0) & (ids < input_dim)
    return tf.where(is_row, ids, 0), is_row


def _lookup(ids: tf.Tensor, d: tf.Tensor, input_dim: int) -> Lookup:
    """The gradient of a table from the ids `(b, ...)` and the rows' gradient `(b, ..., o)`."""
    ids = shared_by_examples(ids, d.shape.rank - 1)
    ids = positions(with_examples_of(d, ids)[..., None])[..., 0]
    return Lookup(ids, positions(d), input_dim)


@register_capture(keras.layers.Embedding)
class Embedding(_EmbeddingCapture, keras.layers.Embedding):
    """`keras.layers.Embedding` whose per-example gradients are sums of the rows looked up."""

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        return super().call(inputs) if current_recorder() is None else self._looked_up(inputs)


class ReversibleCapture(_EmbeddingCapture):
    """A table `E` that also projects backwards: `x E^T`, or with a table of its own `x R`.

    The gradient of a tied table is the sum of the rows looked up and the outer product `D^T X`.
    """

    @classmethod
    def can_capture(cls, layer: keras.layers.ReversibleEmbedding) -> bool:
        """Not quantised tables, which go through the fallback."""
        return layer.quantization_mode is None

    @classmethod
    def matrix_views(cls, layer: keras.layers.Layer) -> list[tuple[keras.Variable, MatrixView]]:
        """Untied, the table of the projection is `(output_dim, input_dim)`."""
        views = super().matrix_views(layer)
        if not layer.tie_weights:
            reverse = layer.reverse_embeddings
            views.append((reverse, MatrixView.of(tuple(reverse.shape))))
        return views

    def call(self, inputs: tf.Tensor, reverse: bool = False) -> tf.Tensor:
        if current_recorder() is None:
            return super().call(inputs, reverse=reverse)
        if reverse:
            return self._projected(inputs)
        outputs = self._looked_up(inputs)
        if self.mask_zero:  # This layer sets its mask by itself, Embedding in `compute_mask`.
            attach_mask(outputs, keras.ops.not_equal(inputs, 0))
        return outputs

    def _projected(self, x: tf.Tensor) -> tf.Tensor:
        kernel = self.embeddings if self.tie_weights else self.reverse_embeddings
        dtype = self.reverse_dtype or self.compute_dtype
        x, kernel = keras.ops.cast(x, dtype), keras.ops.cast(kernel, dtype)
        logits = tf.matmul(x, kernel, transpose_b=self.tie_weights)
        recorder = current_recorder()
        assert recorder is not None
        (logits,) = recorder.watch(self.name, [logits], self._reverse_builders(x))
        if self.logit_soft_cap is not None:
            logits = self.logit_soft_cap * tf.tanh(logits / self.logit_soft_cap)
        return logits

    def _reverse_builders(self, x: tf.Tensor) -> Builders:
        x = tf.cast(x, tf.float32)
        if not self.tie_weights:
            return [(self.reverse_embeddings, lambda d: OuterProduct(positions(x), positions(d)))]
        if not self.lora_enabled:
            return [(embeddings_of(self), lambda d: OuterProduct(positions(d), positions(x)))]
        scale = lora_scale(self)
        a, b = (tf.cast(v, tf.float32) for v in (self.lora_embeddings_a, self.lora_embeddings_b))

        def of_a(d: tf.Tensor) -> PerExampleGradient:
            through = scale * tf.matmul(positions(x), b, transpose_b=True)
            return OuterProduct(positions(d), through)

        def of_b(d: tf.Tensor) -> PerExampleGradient:
            through = scale * tf.matmul(tf.cast(positions(d), tf.float32), a)
            return OuterProduct(through, positions(x))

        return [(self.lora_embeddings_a, of_a), (self.lora_embeddings_b, of_b)]


@register_capture(keras.layers.ReversibleEmbedding)
class ReversibleEmbedding(ReversibleCapture, keras.layers.ReversibleEmbedding):
    """`keras.layers.ReversibleEmbedding`: an embedding that is an output projection as well."""

"""Capture for `keras.layers.Embedding`."""

from __future__ import annotations

import keras
import tensorflow as tf

from tf_lowrank_dp.layers.recorder import current_recorder
from tf_lowrank_dp.layers.registry import register_capture
from tf_lowrank_dp.per_example.lookup import Lookup
from tf_lowrank_dp.per_example.parameter import MatrixView
from tf_lowrank_dp.per_example.positions import positions


@register_capture(keras.layers.Embedding)
class Embedding(keras.layers.Embedding):
    """`keras.layers.Embedding` whose per-example gradients are sums of the rows looked up."""

    @classmethod
    def matrix_views(cls, layer) -> list[tuple[object, MatrixView]]:
        """The table is the matrix `(input_dim, output_dim)`."""
        return [(layer._embeddings, MatrixView.of(tuple(layer._embeddings.shape)))]

    def call(self, inputs):
        outputs = super().call(inputs)
        recorder = current_recorder()
        if recorder is None:
            return outputs
        ids = tf.cast(inputs, tf.int64 if inputs.dtype == tf.int64 else tf.int32)

        def gradient(d):
            return Lookup(positions(ids[..., None])[..., 0], positions(d), self.input_dim)

        (outputs,) = recorder.watch(self.name, [outputs], [(self._embeddings, gradient)])
        return outputs

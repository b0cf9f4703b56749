"""Capture for `keras.layers.Dense`."""

from __future__ import annotations

import keras
import tensorflow as tf

from tf_lowrank_dp._keras.layers import kernel_of
from tf_lowrank_dp.layers.lora import lora_matmul
from tf_lowrank_dp.layers.quantized import QuantizedCapture
from tf_lowrank_dp.layers.recorder import Builders, current_recorder
from tf_lowrank_dp.layers.registry import register_capture
from tf_lowrank_dp.per_example.activations import (
    broadcast_gradient,
    positions,
    shared_by_examples,
    with_examples_of,
)
from tf_lowrank_dp.per_example.gradient import PerExampleGradient
from tf_lowrank_dp.per_example.outer_product import OuterProduct
from tf_lowrank_dp.per_example.parameter import AddedBias, MatrixView


@register_capture(keras.layers.Dense)
class Dense(QuantizedCapture, keras.layers.Dense):
    """Per-example gradients of `keras.layers.Dense`: `X_b^T D_b` (kernel) and `sum_t D_bt`."""

    captures_lora = True

    @classmethod
    def matrix_views(cls, layer: keras.layers.Layer) -> list[tuple[keras.Variable, MatrixView]]:
        """The kernel is the matrix `(i, o)`; the factors of an adapter are matrices as well."""
        matrices = [] if layer.quantization_mode else [kernel_of(layer)]
        if layer.lora_enabled:
            matrices = [layer.lora_kernel_a, layer.lora_kernel_b]
        return [(matrix, MatrixView.of(tuple(matrix.shape))) for matrix in matrices]

    @classmethod
    def added_biases(cls, layer: keras.layers.Layer) -> list[tuple[keras.Variable, AddedBias]]:
        """The bias is added to the product of the kernel, or of an adapter's second factor."""
        if layer.quantization_mode or layer.lora_enabled:
            factors = [layer.lora_kernel_b] if layer.lora_enabled else []
            return [(factor, AddedBias(layer.bias)) for factor in factors]
        return [(kernel_of(layer), AddedBias(layer.bias))]

    def call(self, inputs: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        recorder = current_recorder()
        if recorder is None:
            return super().call(inputs, training=training)
        z, builders = self._product(inputs)
        if self.bias is not None:
            z = keras.ops.add(z, self.bias)
            builders.append((self.bias, lambda d: broadcast_gradient(d, self.bias.shape)))
        (z,) = recorder.watch(self.name, [z], builders)
        return z if self.activation is None else self.activation(z)

    def _product(self, x: tf.Tensor) -> tuple[tf.Tensor, Builders]:
        def gradient(d: tf.Tensor) -> PerExampleGradient:
            inputs = with_examples_of(d, shared_by_examples(x, d.shape.rank))
            return OuterProduct(positions(inputs), positions(d))

        z = self._frozen(x) if self.quantization_mode else keras.ops.matmul(x, kernel_of(self))
        if self.lora_enabled:
            adapted, builders = lora_matmul(self, x)
            return z + adapted, builders
        return z, [] if self.quantization_mode else [(kernel_of(self), gradient)]

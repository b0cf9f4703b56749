"""Capture for `keras.layers.EinsumDense`, and with it for the attention layers built from it."""

from __future__ import annotations

import keras
import tensorflow as tf

from tf_lowrank_dp._keras.layers import kernel_of
from tf_lowrank_dp.layers.einsum_terms import Terms
from tf_lowrank_dp.layers.lora import lora_einsum, split_terms
from tf_lowrank_dp.layers.quantized import QuantizedCapture
from tf_lowrank_dp.layers.recorder import Builders, current_recorder
from tf_lowrank_dp.layers.registry import register_capture
from tf_lowrank_dp.per_example.activations import broadcast_gradient
from tf_lowrank_dp.per_example.parameter import AddedBias, MatrixView


@register_capture(keras.layers.EinsumDense)
class EinsumDense(QuantizedCapture, keras.layers.EinsumDense):
    """`keras.layers.EinsumDense` for any equation whose first axis is the example.

    Kernel indices shared with the input only are contracted (`i`), those shared with the output
    only are features (`o`); if there are no others the gradient is an outer product of the
    regrouped input and output gradient.  Otherwise it is one materialised contraction.
    """

    captures_lora = True

    @classmethod
    def can_capture(cls, layer: keras.layers.EinsumDense) -> bool:
        """Whether the equation keeps the example axis first in input and output."""
        ellipsis_free = layer.equation.replace(" ", "").replace("...", "0")
        x, kernel, z = ellipsis_free.replace("->", ",").split(",")
        distinct = all(len(set(term)) == len(term) for term in (x, kernel, z))
        example_first = x[0] == z[0] and x[0] not in kernel
        kernel_used = set(kernel) <= set(x) | set(z)
        bias_inside = layer.bias is None or len(layer.bias.shape) < len(z) or "0" in z
        if not (distinct and example_first and kernel_used and bias_inside and "0" not in kernel):
            return False
        return not layer.lora_enabled or split_terms(Terms(x, kernel, z)) is not None

    @classmethod
    def matrix_views(cls, layer: keras.layers.Layer) -> list[tuple[keras.Variable, MatrixView]]:
        """Contracted axes in rows, features in columns; none if the kernel has other axes."""
        terms = Terms.parse(layer.equation, len(layer.equation))
        if layer.lora_enabled:
            steps = split_terms(terms)
            assert steps is not None
            first, second, a_is_first = steps
            a, b = (first, second) if a_is_first else (second, first)
            matrices = [(layer.lora_kernel_a, a), (layer.lora_kernel_b, b)]
        else:
            matrices = [] if layer.quantization_mode else [(kernel_of(layer), terms)]
        views = [(matrix, of.view(tuple(matrix.shape))) for matrix, of in matrices]
        return [(matrix, view) for matrix, view in views if view is not None]

    @classmethod
    def added_biases(cls, layer: keras.layers.Layer) -> list[tuple[keras.Variable, AddedBias]]:
        """Where the bias has the kernel's features for axes, in their order, and no others."""
        if layer.quantization_mode or layer.lora_enabled:
            return []
        terms = Terms.parse(layer.equation, len(layer.equation))
        if not terms.has_columns(layer.bias_axes):
            return []
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
        if self.quantization_mode:
            z, builders = self._frozen(x), []
        else:
            terms, kernel = Terms.parse(self.equation, x.shape.rank), kernel_of(self)
            z = keras.ops.einsum(self.equation, x, kernel)
            builders = [(kernel, lambda d: terms.gradient(x, d, kernel.shape))]
        if self.lora_enabled:
            adapted, builders = lora_einsum(self, x)
            return z + adapted, builders
        return z, builders

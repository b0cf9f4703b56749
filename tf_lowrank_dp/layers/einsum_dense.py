"""Capture for `keras.layers.EinsumDense`, and with it for the attention layers built from it."""

from __future__ import annotations

import keras

from tf_lowrank_dp.layers.lora import is_plain_lora, lora_einsum, split_terms
from tf_lowrank_dp.layers.recorder import current_recorder
from tf_lowrank_dp.layers.registry import register_capture
from tf_lowrank_dp.layers.terms import Terms
from tf_lowrank_dp.per_example.parameter import MatrixView
from tf_lowrank_dp.per_example.positions import broadcast_gradient


@register_capture(keras.layers.EinsumDense)
class EinsumDense(keras.layers.EinsumDense):
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
        if layer.lora_enabled:
            return is_plain_lora(layer) and split_terms(Terms(x, kernel, z)) is not None
        return True

    @classmethod
    def matrix_views(cls, layer) -> list[tuple[object, MatrixView]]:
        """Contracted axes in rows, features in columns; none if the kernel has other axes."""
        if layer.lora_enabled:
            factors = (layer.lora_kernel_a, layer.lora_kernel_b)
            return [(factor, MatrixView.of(tuple(factor.shape))) for factor in factors]
        terms = Terms.parse(layer.equation, len(layer.equation))
        view = terms.view(tuple(layer._kernel.shape))
        return [] if view is None else [(layer._kernel, view)]

    def call(self, inputs, training=None):
        recorder = current_recorder()
        if recorder is None:
            return super().call(inputs, training=training)
        z, builders = lora_einsum(self, inputs) if self.lora_enabled else self._product(inputs)
        if self.bias is not None:
            z = keras.ops.add(z, self.bias)
            builders.append((self.bias, lambda d: broadcast_gradient(d, self.bias.shape)))
        (z,) = recorder.watch(self.name, [z], builders)
        return z if self.activation is None else self.activation(z)

    def _product(self, x):
        terms = Terms.parse(self.equation, x.shape.rank)
        gradient = (self._kernel, lambda d: terms.gradient(x, d, self._kernel.shape))
        return keras.ops.einsum(self.equation, x, self.kernel), [gradient]

"""Capture for `keras.layers.Dense`."""

from __future__ import annotations

import keras

from tf_lowrank_dp.layers.lora import is_plain_lora, lora_matmul
from tf_lowrank_dp.layers.recorder import current_recorder
from tf_lowrank_dp.layers.registry import register_capture
from tf_lowrank_dp.per_example.outer_product import OuterProduct
from tf_lowrank_dp.per_example.parameter import MatrixView
from tf_lowrank_dp.per_example.positions import broadcast_gradient, positions, with_examples_of


@register_capture(keras.layers.Dense)
class Dense(keras.layers.Dense):
    """`keras.layers.Dense` whose per-example gradients are `X_b^T D_b` (kernel) and `sum_t D_bt`.

    Example:

    >>> import tf_lowrank_dp as tfdp
    >>> tfdp.layers.Dense(3)(keras.ops.ones((2, 5))).shape
    TensorShape([2, 3])
    """

    captures_lora = True

    @classmethod
    def can_capture(cls, layer: keras.layers.Dense) -> bool:
        """Not adapters beside a quantised kernel."""
        return not layer.lora_enabled or is_plain_lora(layer)

    @classmethod
    def matrix_views(cls, layer) -> list[tuple[object, MatrixView]]:
        """The kernel is the matrix `(i, o)`; the factors of an adapter are matrices as well."""
        matrices = [layer._kernel]
        if layer.lora_enabled:
            matrices = [layer.lora_kernel_a, layer.lora_kernel_b]
        return [(matrix, MatrixView.of(tuple(matrix.shape))) for matrix in matrices]

    def call(self, inputs, training=None):
        recorder = current_recorder()
        if recorder is None:
            return super().call(inputs, training=training)
        z, builders = lora_matmul(self, inputs) if self.lora_enabled else self._product(inputs)
        if self.bias is not None:
            z = keras.ops.add(z, self.bias)
            builders.append((self.bias, lambda d: broadcast_gradient(d, self.bias.shape)))
        (z,) = recorder.watch(self.name, [z], builders)
        return z if self.activation is None else self.activation(z)

    def _product(self, x):
        def gradient(d):
            return OuterProduct(positions(with_examples_of(d, x)), positions(d))

        return keras.ops.matmul(x, self.kernel), [(self._kernel, gradient)]

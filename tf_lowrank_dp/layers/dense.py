"""Capture for `keras.layers.Dense`."""

from __future__ import annotations

import keras

from tf_lowrank_dp.layers.recorder import current_recorder
from tf_lowrank_dp.layers.registry import register_capture
from tf_lowrank_dp.per_example.outer_product import OuterProduct
from tf_lowrank_dp.per_example.parameter import MatrixView
from tf_lowrank_dp.per_example.positions import broadcast_gradient, positions


@register_capture(keras.layers.Dense)
class Dense(keras.layers.Dense):
    """`keras.layers.Dense` whose per-example gradients are `X_b^T D_b` (kernel) and `sum_t D_bt`.

    Example:

    >>> import tf_lowrank_dp as tfdp
    >>> tfdp.layers.Dense(3)(keras.ops.ones((2, 5))).shape
    TensorShape([2, 3])
    """

    @classmethod
    def matrix_views(cls, layer) -> list[tuple[object, MatrixView]]:
        """The kernel is the matrix `(i, o)`."""
        return [(layer._kernel, MatrixView.of(tuple(layer._kernel.shape)))]

    def call(self, inputs, training=None):
        recorder = current_recorder()
        if recorder is None:
            return super().call(inputs, training=training)
        z = keras.ops.matmul(inputs, self.kernel)
        if self.bias is not None:
            z = keras.ops.add(z, self.bias)
        builders = [(self._kernel, lambda d: OuterProduct(positions(inputs), positions(d)))]
        if self.bias is not None:
            builders.append((self.bias, lambda d: broadcast_gradient(d, self.bias.shape)))
        (z,) = recorder.watch(self.name, [z], builders)
        return z if self.activation is None else self.activation(z)

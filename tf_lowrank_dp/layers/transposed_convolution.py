"""Capture for transposed convolutions in one, two and three dimensions.

A transposed convolution is the gradient of a convolution with respect to its input.  So the
gradient of its kernel is that of a convolution's kernel with the two tensors exchanged: the output
gradient takes the place of the input, and the input that of the output gradient.
"""

from __future__ import annotations

import keras
import tensorflow as tf

from tf_lowrank_dp.layers.convolution import ConvolutionCapture
from tf_lowrank_dp.layers.recorder import Builders
from tf_lowrank_dp.layers.registry import register_capture
from tf_lowrank_dp.per_example.activations import with_examples_of
from tf_lowrank_dp.per_example.convolution import KernelGradient
from tf_lowrank_dp.per_example.kernel_offsets import Geometry


class _TransposedCapture(ConvolutionCapture):
    """The kernel is `(*kernel_size, cout, cin)`, as a matrix `(offsets * cout, cin)`."""

    @classmethod
    def added_biases(cls, layer: keras.layers.Layer) -> list:
        """None: the bias is added where a stride or border keeps a kernel's offset away, too."""
        return []

    def _product(self, x: tf.Tensor, padding: str) -> tuple[tf.Tensor, Builders]:
        geometry = Geometry(
            self.kernel_size,
            self.strides,
            self.dilation_rate,
            padding,
            1,
            tuple(self.kernel.shape),
        )
        z = self._convolve(x, self.kernel, padding)
        return z, [(self.kernel, lambda d: KernelGradient(geometry, d, with_examples_of(d, x)))]

    def _convolve(self, x: tf.Tensor, kernel: tf.Tensor, padding: str) -> tf.Tensor:
        return keras.ops.conv_transpose(
            x,
            kernel,
            strides=list(self.strides),
            padding=padding,
            output_padding=self.output_padding,
            dilation_rate=self.dilation_rate,
            data_format=self.data_format,
        )


@register_capture(keras.layers.Conv1DTranspose)
class Conv1DTranspose(_TransposedCapture, keras.layers.Conv1DTranspose):
    """`keras.layers.Conv1DTranspose` with per-example gradients."""


@register_capture(keras.layers.Conv2DTranspose)
class Conv2DTranspose(_TransposedCapture, keras.layers.Conv2DTranspose):
    """`keras.layers.Conv2DTranspose` with per-example gradients."""


@register_capture(keras.layers.Conv3DTranspose)
class Conv3DTranspose(_TransposedCapture, keras.layers.Conv3DTranspose):
    """`keras.layers.Conv3DTranspose` with per-example gradients."""

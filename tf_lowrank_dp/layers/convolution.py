"""Capture for convolutions and depthwise convolutions in one, two and three dimensions."""

from __future__ import annotations

import keras
import tensorflow as tf

from tf_lowrank_dp.layers.recorder import current_recorder
from tf_lowrank_dp.layers.registry import register_capture
from tf_lowrank_dp.per_example.convolution import Geometry, KernelGradient
from tf_lowrank_dp.per_example.parameter import MatrixView
from tf_lowrank_dp.per_example.positions import broadcast_gradient


class _ConvolutionCapture:
    """The forward pass of a convolution, recorded before its activation."""

    @classmethod
    def can_capture(cls, layer) -> bool:
        """Only `channels_last`; the other layout goes through the fallback."""
        return layer.data_format == "channels_last"

    @classmethod
    def matrix_views(cls, layer) -> list[tuple[object, MatrixView]]:
        """The kernel is the matrix `(offsets * cin, cout)`."""
        kernel = _kernel_of(layer)
        shape = tuple(kernel.shape)
        return [(kernel, MatrixView.of(shape, input_units=shape[-2]))]

    def call(self, inputs):
        recorder = current_recorder()
        if recorder is None:
            return super().call(inputs)
        padding, x = self.padding, inputs
        if padding == "causal":
            padding, x = "valid", tf.pad(inputs, self._compute_causal_padding())
        z = self._convolve(x, padding)
        if self.bias is not None:
            z = keras.ops.add(z, self.bias)
        geometry = self._geometry(x, padding)
        builders = [(_kernel_of(self), lambda d: KernelGradient(geometry, x, d))]
        if self.bias is not None:
            builders.append((self.bias, lambda d: broadcast_gradient(d, self.bias.shape)))
        (z,) = recorder.watch(self.name, [z], builders)
        return z if self.activation is None else self.activation(z)

    def _convolve(self, x, padding):
        return keras.ops.conv(
            x,
            self.kernel,
            strides=list(self.strides),
            padding=padding,
            dilation_rate=self.dilation_rate,
            data_format=self.data_format,
        )

    def _geometry(self, x, padding) -> Geometry:
        return Geometry(
            self.kernel_size,
            self.strides,
            self.dilation_rate,
            padding,
            self.groups,
            (*self.kernel_size, x.shape[-1] // self.groups, self.filters),
        )


def _kernel_of(layer):
    return layer._kernel if hasattr(layer, "_kernel") else layer.kernel


@register_capture(keras.layers.Conv1D)
class Conv1D(_ConvolutionCapture, keras.layers.Conv1D):
    """`keras.layers.Conv1D` with per-example gradients, strides, dilation and groups included."""


@register_capture(keras.layers.Conv2D)
class Conv2D(_ConvolutionCapture, keras.layers.Conv2D):
    """`keras.layers.Conv2D` with per-example gradients, strides, dilation and groups included."""


@register_capture(keras.layers.Conv3D)
class Conv3D(_ConvolutionCapture, keras.layers.Conv3D):
    """`keras.layers.Conv3D` with per-example gradients, strides, dilation and groups included."""


class _DepthwiseCapture(_ConvolutionCapture):
    def _convolve(self, x, padding):
        return keras.ops.depthwise_conv(
            x,
            self.kernel,
            strides=self.strides,
            padding=padding,
            dilation_rate=self.dilation_rate,
            data_format=self.data_format,
        )

    def _geometry(self, x, padding) -> Geometry:
        channels = x.shape[-1]
        shape = (*self.kernel_size, channels, self.depth_multiplier)
        strides, rates = self.strides, self.dilation_rate
        return Geometry(self.kernel_size, strides, rates, padding, channels, shape)


@register_capture(keras.layers.DepthwiseConv1D)
class DepthwiseConv1D(_DepthwiseCapture, keras.layers.DepthwiseConv1D):
    """`keras.layers.DepthwiseConv1D` with per-example gradients."""


@register_capture(keras.layers.DepthwiseConv2D)
class DepthwiseConv2D(_DepthwiseCapture, keras.layers.DepthwiseConv2D):
    """`keras.layers.DepthwiseConv2D` with per-example gradients."""

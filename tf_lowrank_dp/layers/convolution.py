"""Capture for convolutions and depthwise convolutions in one, two and three dimensions."""

from __future__ import annotations

import dataclasses

import keras
import tensorflow as tf

from tf_lowrank_dp._keras.layers import kernel_of
from tf_lowrank_dp._types import LayerMixin
from tf_lowrank_dp.layers.lora import lora_scale
from tf_lowrank_dp.layers.recorder import Builders, current_recorder
from tf_lowrank_dp.layers.registry import register_capture
from tf_lowrank_dp.per_example.activations import broadcast_gradient, positions, with_examples_of
from tf_lowrank_dp.per_example.convolution import KernelGradient
from tf_lowrank_dp.per_example.gradient import PerExampleGradient
from tf_lowrank_dp.per_example.kernel_offsets import Geometry
from tf_lowrank_dp.per_example.outer_product import OuterProduct
from tf_lowrank_dp.per_example.parameter import AddedBias, MatrixView


class ConvolutionCapture(LayerMixin):
    """The forward pass of a convolution, recorded before its activation."""

    @classmethod
    def can_capture(cls, layer: keras.layers.Layer) -> bool:
        """Only `channels_last`; the other layout goes through the fallback."""
        return layer.data_format == "channels_last"

    @classmethod
    def matrix_views(cls, layer: keras.layers.Layer) -> list[tuple[keras.Variable, MatrixView]]:
        """The kernel is the matrix `(offsets * cin, cout)`."""
        kernel = kernel_of(layer)
        shape = tuple(kernel.shape)
        return [(kernel, MatrixView.of(shape, input_units=shape[-2]))]

    @classmethod
    def added_biases(cls, layer: keras.layers.Layer) -> list[tuple[keras.Variable, AddedBias]]:
        """The bias is added to each output channel, of which each group sees its own inputs."""
        return [(kernel_of(layer), AddedBias(layer.bias, groups=layer.groups))]

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        if current_recorder() is None:
            return super().call(inputs)
        padding, x = self.padding, inputs
        if padding == "causal":
            padding, x = "valid", self._padded_before(inputs)
        return self._recorded(*self._product(x, padding))

    def _padded_before(self, x: tf.Tensor) -> tf.Tensor:
        rows = self.dilation_rate[0] * (self.kernel_size[0] - 1)
        return tf.pad(x, [[0, 0], [rows, 0], [0, 0]])

    def _recorded(self, z: tf.Tensor, builders: Builders) -> tf.Tensor:
        if self.bias is not None:
            z = keras.ops.add(z, self.bias)
            builders.append((self.bias, lambda d: broadcast_gradient(d, self.bias.shape)))
        recorder = current_recorder()
        assert recorder is not None
        (z,) = recorder.watch(self.name, [z], builders)
        return z if self.activation is None else self.activation(z)

    def _product(self, x: tf.Tensor, padding: str) -> tuple[tf.Tensor, Builders]:
        geometry = self._geometry(x, padding)
        z = self._convolve(x, self.kernel, padding)
        return z, [(kernel_of(self), lambda d: KernelGradient(geometry, with_examples_of(d, x), d))]

    def _convolve(self, x: tf.Tensor, kernel: tf.Tensor, padding: str) -> tf.Tensor:
        if self._is_depthwise(x):
            multiplier = self.filters // self.groups
            kernel = keras.ops.reshape(kernel, (*self.kernel_size, self.groups, multiplier))
            return _depthwise(self, x, kernel, padding)
        return keras.ops.conv(
            x,
            kernel,
            strides=list(self.strides),
            padding=padding,
            dilation_rate=self.dilation_rate,
            data_format=self.data_format,
        )

    def _is_depthwise(self, x: tf.Tensor) -> bool:
        """Whether TensorFlow has an operation for it; others of groups are compiled by XLA alone.

        That takes 0.2 s for each layer and pass, and its programs are slow on processors.
        """
        one_channel_each = self.groups == x.shape[-1] > 1
        return one_channel_each and len(self.kernel_size) < 3 and len(set(self.strides)) == 1

    def _geometry(self, x: tf.Tensor, padding: str) -> Geometry:
        return Geometry(
            self.kernel_size,
            self.strides,
            self.dilation_rate,
            padding,
            self.groups,
            (*self.kernel_size, x.shape[-1] // self.groups, self.filters),
        )


class _AdaptableCapture(ConvolutionCapture):
    """A convolution that may have an adapter: `x * K + s (x * A) B`, with `B (r, cout)`."""

    captures_lora = True

    @classmethod
    def can_capture(cls, layer: keras.layers.Layer) -> bool:
        """Adapters are captured where the channels are in one group."""
        return super().can_capture(layer) and (not layer.lora_enabled or layer.groups == 1)

    @classmethod
    def matrix_views(cls, layer: keras.layers.Layer) -> list[tuple[keras.Variable, MatrixView]]:
        """Also of the factors of an adapter, `(offsets * cin, r)` and `(r, cout)`."""
        if not layer.lora_enabled:
            return super().matrix_views(layer)
        factors = (layer.lora_kernel_a, layer.lora_kernel_b)
        return [(f, MatrixView.of(tuple(f.shape), input_units=f.shape[-2])) for f in factors]

    @classmethod
    def added_biases(cls, layer: keras.layers.Layer) -> list[tuple[keras.Variable, AddedBias]]:
        """Of an adapter only `B (r, cout)` has a product to which the bias is added."""
        if not layer.lora_enabled:
            return super().added_biases(layer)
        return [(layer.lora_kernel_b, AddedBias(layer.bias))]

    def _product(self, x: tf.Tensor, padding: str) -> tuple[tf.Tensor, Builders]:
        if not self.lora_enabled:
            return super()._product(x, padding)
        scale, dtype = lora_scale(self), self.compute_dtype
        a, b = (keras.ops.cast(v, dtype) for v in (self.lora_kernel_a, self.lora_kernel_b))
        u = scale * self._convolve(x, a, padding)
        z = self._convolve(x, kernel_of(self), padding) + keras.ops.matmul(u, b)
        geometry = dataclasses.replace(self._geometry(x, padding), shape=tuple(a.shape))

        def of_a(d: tf.Tensor) -> PerExampleGradient:
            through = scale * tf.einsum("...o,ro->...r", d, b)
            return KernelGradient(geometry, with_examples_of(d, x), through)

        def of_b(d: tf.Tensor) -> PerExampleGradient:
            return OuterProduct(positions(with_examples_of(d, u)), positions(d))

        return z, [(self.lora_kernel_a, of_a), (self.lora_kernel_b, of_b)]


@register_capture(keras.layers.Conv1D)
class Conv1D(_AdaptableCapture, keras.layers.Conv1D):
    """`keras.layers.Conv1D` with per-example gradients, strides, dilation and groups included."""


@register_capture(keras.layers.Conv2D)
class Conv2D(_AdaptableCapture, keras.layers.Conv2D):
    """`keras.layers.Conv2D` with per-example gradients, strides, dilation and groups included."""


@register_capture(keras.layers.Conv3D)
class Conv3D(_AdaptableCapture, keras.layers.Conv3D):
    """`keras.layers.Conv3D` with per-example gradients, strides, dilation and groups included."""


def _depthwise(
    layer: keras.layers.Layer, x: tf.Tensor, kernel: tf.Tensor, padding: str
) -> tf.Tensor:
    return keras.ops.depthwise_conv(
        x,
        kernel,
        strides=layer.strides,
        padding=padding,
        dilation_rate=layer.dilation_rate,
        data_format=layer.data_format,
    )


class _DepthwiseCapture(ConvolutionCapture):
    @classmethod
    def added_biases(cls, layer: keras.layers.Layer) -> list[tuple[keras.Variable, AddedBias]]:
        """Each channel is a group of its own."""
        return [(layer.kernel, AddedBias(layer.bias, groups=layer.kernel.shape[-2]))]

    def _convolve(self, x: tf.Tensor, kernel: tf.Tensor, padding: str) -> tf.Tensor:
        return _depthwise(self, x, kernel, padding)

    def _geometry(self, x: tf.Tensor, padding: str) -> Geometry:
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


class _SeparableCapture(_DepthwiseCapture):
    """A depthwise convolution and, at each position, a matrix product."""

    @classmethod
    def matrix_views(cls, layer: keras.layers.Layer) -> list[tuple[keras.Variable, MatrixView]]:
        """Both kernels as those of convolutions."""
        kernels = (layer.depthwise_kernel, layer.pointwise_kernel)
        return [(k, MatrixView.of(tuple(k.shape), input_units=k.shape[-2])) for k in kernels]

    @classmethod
    def added_biases(cls, layer: keras.layers.Layer) -> list[tuple[keras.Variable, AddedBias]]:
        """The bias is added to the second product."""
        return [(layer.pointwise_kernel, AddedBias(layer.bias))]

    def _product(self, x: tf.Tensor, padding: str) -> tuple[tf.Tensor, Builders]:
        geometry = self._geometry(x, padding)
        u = self._convolve(x, self.depthwise_kernel, padding)

        def of_depthwise(d: tf.Tensor) -> PerExampleGradient:
            return KernelGradient(geometry, with_examples_of(d, x), d)

        recorder = current_recorder()
        assert recorder is not None
        (u,) = recorder.watch(self.name, [u], [(self.depthwise_kernel, of_depthwise)])
        kernel = keras.ops.reshape(self.pointwise_kernel, self.pointwise_kernel.shape[-2:])
        view = MatrixView.of(tuple(self.pointwise_kernel.shape))

        def of_pointwise(d: tf.Tensor) -> PerExampleGradient:
            return OuterProduct(positions(u), positions(d), view.to_variable)

        return keras.ops.matmul(u, kernel), [(self.pointwise_kernel, of_pointwise)]


@register_capture(keras.layers.SeparableConv1D)
class SeparableConv1D(_SeparableCapture, keras.layers.SeparableConv1D):
    """`keras.layers.SeparableConv1D` with per-example gradients of both kernels."""


@register_capture(keras.layers.SeparableConv2D)
class SeparableConv2D(_SeparableCapture, keras.layers.SeparableConv2D):
    """`keras.layers.SeparableConv2D` with per-example gradients of both kernels."""

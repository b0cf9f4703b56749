"""Capture for convolutions and depthwise convolutions in one, two and three dimensions.

A kernel offset `k` multiplies the input shifted by `k`, so the per-example gradient at this offset
is `sum_t x_b(t + k) d_b(t)^T`: a loop over the offsets needs no tensor of patches, which would be
the size of the input times the number of offsets.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator

import keras
import tensorflow as tf

from tf_lowrank_dp.layers.recorder import current_recorder
from tf_lowrank_dp.layers.registry import register_capture
from tf_lowrank_dp.per_example.gradient import PerExampleGradient
from tf_lowrank_dp.per_example.materialized import Materialized
from tf_lowrank_dp.per_example.outer_product import OuterProduct
from tf_lowrank_dp.per_example.positions import broadcast_gradient, positions


class _ConvolutionCapture:
    """The forward pass of a convolution, recorded before its activation."""

    @classmethod
    def can_capture(cls, layer) -> bool:
        """Only `channels_last`; the other layout goes through the fallback."""
        return layer.data_format == "channels_last"

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
        kernel = self._kernel if hasattr(self, "_kernel") else self.kernel
        geometry = self._geometry(x, padding)
        builders = [(kernel, lambda d: kernel_gradient(geometry, x, d))]
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


@dataclasses.dataclass(frozen=True)
class Geometry:
    """What a convolution's kernel gradient depends on besides its tensors.

    Attributes:
        kernel_size, strides, dilation: one integer for each spatial axis.
        padding: "valid" or "same".
        groups: number of groups of channels; all channels for a depthwise convolution.
        shape: of the kernel.
    """

    kernel_size: tuple[int, ...]
    strides: tuple[int, ...]
    dilation: tuple[int, ...]
    padding: str
    groups: int
    shape: tuple[int, ...]


def kernel_gradient(geometry: Geometry, x: tf.Tensor, d: tf.Tensor) -> PerExampleGradient:
    """Per-example gradient of a kernel.

    Args:
        geometry: of the convolution.
        x: input, `(b, *space, cin)`, padded already if the padding is causal.
        d: gradient with respect to the output before the activation, `(b, *out_space, cout)`.
    """
    x, d = tf.cast(x, tf.float32), tf.cast(d, tf.float32)
    t, shape = positions(d).shape[1], geometry.shape
    inputs, outputs = math.prod(shape[:-1]), shape[-1]
    if geometry.groups == 1 and t is not None and inputs * outputs > t * (inputs + outputs):
        patches = tf.concat([positions(s) for s in shifted_inputs(geometry, x, d)], axis=-1)
        return OuterProduct(patches, positions(d), lambda m: _reshape_last(m, 2, shape))
    return Materialized(_kernel_gradients(geometry, x, d))


def _kernel_gradients(geometry: Geometry, x: tf.Tensor, d: tf.Tensor) -> tf.Tensor:
    """The kernel's gradient for each example, `(b, *kernel.shape)`."""
    shifted = [positions(s) for s in shifted_inputs(geometry, x, d)]
    d, groups = positions(d), geometry.groups
    if groups == 1:
        products = [tf.matmul(s, d, transpose_a=True) for s in shifted]
    else:
        d = _split_last(d, groups)
        products = [tf.einsum("btgi,btgo->bigo", _split_last(s, groups), d) for s in shifted]
    return tf.reshape(tf.stack(products, axis=1), [-1, *geometry.shape])


def shifted_inputs(geometry: Geometry, x: tf.Tensor, d: tf.Tensor) -> Iterator[tf.Tensor]:
    """The input under each kernel offset, in the kernel's order, each in the output's extent.

    Args:
        geometry: of the convolution.
        x: input, `(b, *space, cin)`.
        d: anything of the output's shape, `(b, *out_space, cout)`.

    Yields:
        `(b, *out_space, cin)` for each of the `prod(kernel_size)` offsets.
    """
    kernel_size, strides, dilation = geometry.kernel_size, geometry.strides, geometry.dilation
    sizes, outs = _spatial(x), _spatial(d)
    with tf.control_dependencies([d]):
        x = tf.identity(x)  # else the executor shifts all layers' inputs long before they are used
    spans = [
        (out - 1) * stride + (k - 1) * rate + 1
        for out, stride, k, rate in zip(outs, strides, kernel_size, dilation, strict=True)
    ]
    if geometry.padding == "same":
        totals = [_positive(span - size) for span, size in zip(spans, sizes, strict=True)]
        before_after = [[total // 2, total - total // 2] for total in totals]
        x = tf.pad(x, [[0, 0], *before_after, [0, 0]])
    for offset in itertools.product(*(range(k) for k in kernel_size)):
        window = [slice(None)]
        for start, rate, out, stride in zip(offset, dilation, outs, strides, strict=True):
            first = start * rate
            window.append(slice(first, first + (out - 1) * stride + 1, stride))
        yield x[tuple(window)]


def _spatial(tensor) -> list:
    dynamic = tf.shape(tensor)
    axes = range(1, tensor.shape.rank - 1)
    return [tensor.shape[a] if tensor.shape[a] is not None else dynamic[a] for a in axes]


def _positive(size):
    return max(size, 0) if isinstance(size, int) else tf.maximum(size, 0)


def _split_last(tensor, groups: int) -> tf.Tensor:
    return _reshape_last(tensor, 1, (groups, tensor.shape[-1] // groups))


def _reshape_last(tensor, axes: int, shape) -> tf.Tensor:
    """Reshapes the last `axes` axes to `shape`."""
    return tf.reshape(tensor, tf.concat([tf.shape(tensor)[:-axes], shape], 0))

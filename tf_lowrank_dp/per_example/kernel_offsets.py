"""What each offset of a convolution's kernel meets: inputs, outputs and their means."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Sequence

import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class Geometry:
    """What a convolution's kernel gradient depends on besides its tensors.

    Attributes:
        kernel_size, strides, dilation: one integer for each spatial axis.
        padding: "valid" or "same".
        groups: number of groups of channels; all channels for a depthwise convolution.
        shape: of the kernel.

    Example:

    >>> Geometry((3,), (1,), (1,), "valid", 1, (3, 2, 4)).kernel_size
    (3,)
    """

    kernel_size: tuple[int, ...]
    strides: tuple[int, ...]
    dilation: tuple[int, ...]
    padding: str
    groups: int
    shape: tuple[int, ...]


def shifted_inputs(geometry: Geometry, x: tf.Tensor, d: tf.Tensor) -> Iterator[tf.Tensor]:
    """The input under each kernel offset, in the kernel's order, each in the output's extent.

    Args:
        geometry: of the convolution.
        x: input, `(b, *space, cin)`.
        d: anything of the output's shape, `(b, *out_space, cout)`.

    Yields:
        `(b, *out_space, cin)` for each of the `prod(kernel_size)` offsets.
    """
    starts, shifted = shifts(geometry, x, d)
    for start in starts:
        yield shifted(start)


def shifts(
    geometry: Geometry, x: tf.Tensor, d: tf.Tensor
) -> tuple[list[list[int]], Callable[[Sequence[int] | tf.Tensor], tf.Tensor]]:
    """Where the input begins under each kernel offset, and what gives it from there on."""
    kernel_size, strides, dilation = geometry.kernel_size, geometry.strides, geometry.dilation
    outs = _spatial(d)
    with tf.control_dependencies([d]):
        x = tf.identity(x)  # else the executor shifts all layers' inputs long before they are used
    if geometry.padding == "same":
        x = tf.pad(x, [[0, 0], *_same_padding(geometry, x, outs), [0, 0]])
    starts = []
    for offset in itertools.product(*(range(k) for k in kernel_size)):
        firsts = [k * rate for k, rate in zip(offset, dilation, strict=True)]
        phase = 0
        for first, stride in zip(firsts, strides, strict=True):
            phase = phase * stride + first % stride
        starts.append([phase, 0, *(f // s for f, s in zip(firsts, strides, strict=True)), 0])
    phases = None if set(strides) == {1} else _phases(x, strides)
    window = _window(x, outs)

    def shifted(start: Sequence[int] | tf.Tensor) -> tf.Tensor:
        return tf.slice(x if phases is None else phases[start[0]], start[1:], window)

    return starts, shifted


def _phases(x: tf.Tensor, strides: tuple[int, ...]) -> tf.Tensor:
    """Every `stride`-th pixel, from each pixel of the first block on; strided slices are slow."""
    paddings = [[0, -size % stride] for size, stride in zip(_spatial(x), strides, strict=True)]
    blocks = tf.space_to_batch_nd(x, strides, paddings)
    return tf.reshape(blocks, [math.prod(strides), -1, *_spatial(blocks), x.shape[-1]])


def shifted_outputs(geometry: Geometry, x: tf.Tensor, d: tf.Tensor) -> Iterator[tf.Tensor]:
    """What each input position meets under each kernel offset, for strides of 1.

    Args:
        geometry: of the convolution.
        x: input, `(b, *space, cin)`.
        d: anything of the output's shape, `(b, *out_space, k)`.

    Yields:
        `(b, *space, k)` for each offset, 0 where a position meets no output.
    """
    sizes, outs = _spatial(x), _spatial(d)
    reaches = [(k - 1) * r for k, r in zip(geometry.kernel_size, geometry.dilation, strict=True)]
    befores = [0] * len(sizes)
    if geometry.padding == "same":
        befores = [before for before, _ in _same_padding(geometry, x, outs)]
    d = tf.pad(d, [[0, 0], *([reach, reach] for reach in reaches), [0, 0]])
    window = _window(d, sizes)
    for offset in itertools.product(*(range(k) for k in geometry.kernel_size)):
        axes = zip(offset, geometry.dilation, reaches, befores, strict=True)
        begin = [before + reach - k * rate for k, rate, reach, before in axes]
        yield tf.slice(d, [0, *begin, 0], window)


def patch_means(geometry: Geometry, x: tf.Tensor, d: tf.Tensor) -> tf.Tensor:
    """The mean over the output positions of what each kernel offset meets, `(b, offsets, cin)`.

    One axis after the other, by a matrix that averages the positions which an offset selects.

    Args:
        geometry: of the convolution.
        x: input, `(b, *space, cin)`.
        d: anything of the output's shape, `(b, *out_space, cout)`.
    """
    sizes, outs, channels = _spatial(x), _spatial(d), x.shape[-1]
    befores = [0] * len(sizes)
    if geometry.padding == "same":
        befores = [before for before, _ in _same_padding(geometry, x, outs)]
    means = x
    for axis, (size, out, before) in enumerate(zip(sizes, outs, befores, strict=True)):
        first = tf.range(geometry.kernel_size[axis]) * geometry.dilation[axis] - before
        distance = tf.range(size) - first[:, None]
        output, rest = distance // geometry.strides[axis], distance % geometry.strides[axis]
        selected = tf.cast((rest == 0) & (output >= 0) & (output < out), tf.float32)
        means = tf.reshape(means, [-1, size, math.prod(sizes[axis + 1 :]) * channels])
        means = tf.matmul(selected / tf.cast(out, tf.float32), means)
    return tf.reshape(means, [-1, math.prod(geometry.kernel_size), channels])


def _window(tensor: tf.Tensor, extent: list) -> tf.Tensor:
    """The size of slices of this extent, of all examples and channels: one tensor for many.

    Without -1, which XLA refuses where a slice begins at a place that is computed.
    """
    return tf.convert_to_tensor([tf.shape(tensor)[0], *extent, tensor.shape[-1]])


def _spatial(tensor: tf.Tensor) -> list:
    if tensor.shape[1:-1].is_fully_defined():
        return list(tensor.shape[1:-1])
    dynamic = tf.shape(tensor)
    axes = range(1, tensor.shape.rank - 1)
    return [tensor.shape[a] if tensor.shape[a] is not None else dynamic[a] for a in axes]


def _same_padding(geometry: Geometry, x: tf.Tensor, outs: list) -> list[list]:
    """Zeros before and after each spatial axis of the input."""
    axes = zip(
        _spatial(x), outs, geometry.kernel_size, geometry.strides, geometry.dilation, strict=True
    )
    totals = [
        _positive((out - 1) * stride + (k - 1) * rate + 1 - size)
        for size, out, k, stride, rate in axes
    ]
    return [[total // 2, total - total // 2] for total in totals]


def _positive(size: int | tf.Tensor) -> int | tf.Tensor:
    return max(size, 0) if isinstance(size, int) else tf.maximum(size, 0)

"""Per-example gradients of convolution kernels.

A kernel offset `k` multiplies the input shifted by `k`, so the per-example gradient at this offset
is `sum_t x_b(t + k) d_b(t)^T`: a loop over the offsets needs no tensor of patches, which would be
the size of the input times the number of offsets.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterator

import tensorflow as tf

from tf_lowrank_dp.per_example.activations import positions
from tf_lowrank_dp.per_example.arithmetic import multiplies_in_bfloat16, product
from tf_lowrank_dp.per_example.centrable import CentrableGradient
from tf_lowrank_dp.per_example.gradient import PerExampleGradient
from tf_lowrank_dp.per_example.materialized import Materialized
from tf_lowrank_dp.per_example.outer_product import OuterProduct
from tf_lowrank_dp.per_example.parameter import MatrixView, reshape_last


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


class KernelGradient(CentrableGradient):
    """Per-example gradient of a convolution's kernel.

    It is formed by a loop over the offsets, or treated as the outer product of patches and output
    gradient where that is cheaper.  Its low-rank images need neither.

    Args:
        geometry: of the convolution.
        x: input, `(b, *space, cin)`, padded already if the padding is causal.
        d: gradient with respect to the output before the activation, `(b, *out_space, cout)`.
        centre: subtracted from each patch, float32 `(offsets * cin / groups, groups)`; None for 0.

    Example:

    >>> geometry = Geometry((3,), (1,), (1,), "valid", 1, (3, 2, 4))
    >>> gradient = KernelGradient(geometry, x=tf.ones((5, 7, 2)), d=tf.ones((5, 5, 4)))
    >>> gradient.materialize().shape
    TensorShape([5, 3, 2, 4])
    """

    def __init__(
        self, geometry: Geometry, x: tf.Tensor, d: tf.Tensor, centre: tf.Tensor | None = None
    ):
        self._geometry, self._centre = geometry, centre
        self._in_bfloat16 = multiplies_in_bfloat16(x, d)
        self._x, self._d = tf.cast(x, tf.float32), tf.cast(d, tf.float32)

    @functools.cached_property
    def _formed(self) -> PerExampleGradient:
        geometry, d = self._geometry, positions(self._d)
        shifted = [positions(s) for s in shifted_inputs(geometry, self._x, self._d)]
        t, inputs, outputs = d.shape[1], math.prod(geometry.shape[:-1]), geometry.shape[-1]
        if geometry.groups == 1 and t is not None and inputs * outputs > t * (inputs + outputs):
            patches = tf.concat(shifted, axis=-1)
            if self._centre is not None:
                patches -= self._centre[:, 0]
            if self._in_bfloat16:
                patches, d = tf.cast(patches, tf.bfloat16), tf.cast(d, tf.bfloat16)
            return OuterProduct(patches, d, lambda m: reshape_last(m, 2, geometry.shape))
        if self._x.shape[-1] == 1 == geometry.groups:  # patches of one channel are small
            products = tf.matmul(tf.stack([s[..., 0] for s in shifted], axis=1), d)
            return self._materialized(products)
        if geometry.groups == 1:
            products = [product(s, d, self._in_bfloat16, transpose_a=True) for s in shifted]
        else:
            shifted = [_split_last(s, geometry.groups) for s in shifted]
            grouped = _split_last(d, geometry.groups)
            products = [tf.einsum("btgi,btgo->bigo", s, grouped) for s in shifted]
        return self._materialized(tf.stack(products, axis=1))

    def _materialized(self, products: tf.Tensor) -> Materialized:
        """The sums of the products of patches and output gradients, less those of the centre."""
        if self._centre is not None:
            # What is clipped is the difference held: its rounding cannot break the sensitivity.
            products = tf.reshape(products, [-1, *self._centre.shape, self._width_of_group])
            total = tf.reduce_sum(positions(self._d), axis=1)
            total = tf.reshape(total, [-1, 1, self._geometry.groups, self._width_of_group])
            products -= self._centre[..., None] * total
        return Materialized(tf.reshape(products, [-1, *self._geometry.shape]))

    @property
    def _width_of_group(self) -> int:
        return self._d.shape[-1] // self._geometry.groups

    def squared_norms(self) -> tf.Tensor:
        return self._formed.squared_norms()

    def squared_norm_bounds(self) -> tf.Tensor:
        return self._formed.squared_norm_bounds()

    def weighted_sum(self, weights: tf.Tensor) -> tf.Tensor:
        return self._formed.weighted_sum(weights)

    def materialize(self) -> tf.Tensor:
        return self._formed.materialize()

    def joined_rows(self, weights: tf.Tensor) -> PerExampleGradient | None:
        return self._formed.joined_rows(weights)

    def masked(self, mask: tf.Tensor) -> PerExampleGradient:
        return self._formed.masked(mask)

    def right(self, r: tf.Tensor, view: MatrixView) -> PerExampleGradient:
        if self._geometry.groups > 1:
            return self._formed.right(r, view)
        image = tf.matmul(self._d, r, transpose_b=True)
        if set(self._geometry.strides) == {1}:
            product = self._right_unstrided(image)
        else:
            shifted = shifted_inputs(self._geometry, self._x, image)
            flat = positions(image)
            products = [tf.matmul(flat, positions(s), transpose_a=True) for s in shifted]
            product = tf.concat(products, axis=-1)
        if self._centre is not None:
            product -= tf.reduce_sum(positions(image), axis=1)[..., None] * self._centre[:, 0]
        return Materialized(product)

    def _right_unstrided(self, image: tf.Tensor) -> tf.Tensor:
        """Shifts the image `(b, *out_space, k)`, which is thin, instead of the input."""
        shifted = [positions(s) for s in shifted_outputs(self._geometry, self._x, image)]
        k, inputs = image.shape[-1], self._x.shape[-1]
        products = tf.matmul(tf.concat(shifted, axis=-1), positions(self._x), transpose_a=True)
        products = tf.reshape(products, [-1, len(shifted), k, inputs])
        return tf.reshape(tf.transpose(products, [0, 2, 1, 3]), [-1, k, len(shifted) * inputs])

    def left(self, l: tf.Tensor, view: MatrixView) -> PerExampleGradient:  # noqa: E741
        if self._geometry.groups > 1:
            return self._formed.left(l, view)
        kernel = tf.reshape(l, [*self._geometry.shape[:-1], l.shape[-1]])
        image = tf.nn.convolution(
            self._x,
            kernel,
            strides=list(self._geometry.strides),
            padding=self._geometry.padding.upper(),
            dilations=list(self._geometry.dilation),
        )
        if self._centre is not None:
            image -= tf.linalg.matvec(l, self._centre[:, 0], transpose_a=True)
        return OuterProduct(positions(image), positions(self._d))

    def centred(self, centre: tf.Tensor) -> KernelGradient:
        return KernelGradient(self._geometry, self._x, self._d, centre)

    def mean_inputs(self) -> tf.Tensor:
        """The mean patch, zeros of the padding included."""
        means = patch_means(self._geometry, self._x, self._d)  # (b, offsets, groups * cin / groups)
        groups = self._geometry.groups
        means = tf.reshape(means, [-1, means.shape[1], groups, means.shape[2] // groups])
        means = tf.transpose(means, [0, 1, 3, 2])
        return tf.reshape(means, [-1, math.prod(means.shape[1:3]), groups])


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
    outs = _spatial(d)
    with tf.control_dependencies([d]):
        x = tf.identity(x)  # else the executor shifts all layers' inputs long before they are used
    if geometry.padding == "same":
        x = tf.pad(x, [[0, 0], *_same_padding(geometry, x, outs), [0, 0]])
    phases, window = _phases(x, strides), _window(outs)
    for offset in itertools.product(*(range(k) for k in kernel_size)):
        firsts = [k * rate for k, rate in zip(offset, dilation, strict=True)]
        phase = 0
        for first, stride in zip(firsts, strides, strict=True):
            phase = phase * stride + first % stride
        begin = [first // stride for first, stride in zip(firsts, strides, strict=True)]
        yield tf.slice(phases[phase], [0, *begin, 0], window)


def _phases(x: tf.Tensor, strides: tuple[int, ...]) -> list[tf.Tensor]:
    """Every `stride`-th pixel, from each pixel of the first block on; strided slices are slow."""
    if set(strides) == {1}:
        return [x]
    paddings = [[0, -size % stride] for size, stride in zip(_spatial(x), strides, strict=True)]
    return tf.split(tf.space_to_batch_nd(x, strides, paddings), math.prod(strides))


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
    window = _window(sizes)
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


def _window(extent: list) -> tf.Tensor:
    """The size of slices of this extent, of all examples and channels: one tensor for many."""
    return tf.convert_to_tensor([-1, *extent, -1])


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


def _split_last(tensor: tf.Tensor, groups: int) -> tf.Tensor:
    return reshape_last(tensor, 1, (groups, tensor.shape[-1] // groups))

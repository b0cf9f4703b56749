"""Per-example gradients of convolution kernels.

A kernel offset `k` multiplies the input shifted by `k`, so the per-example gradient at this offset
is `sum_t x_b(t + k) d_b(t)^T`: a loop over the offsets needs no tensor of patches, which would be
the size of the input times the number of offsets.
"""

from __future__ import annotations

import functools
import math

import tensorflow as tf

from tf_lowrank_dp.per_example.activations import positions
from tf_lowrank_dp.per_example.arithmetic import multiplies_in_bfloat16, product
from tf_lowrank_dp.per_example.centrable import CentrableGradient
from tf_lowrank_dp.per_example.gradient import PerExampleGradient
from tf_lowrank_dp.per_example.kernel_offsets import (
    Geometry,
    patch_means,
    shifted_inputs,
    shifted_outputs,
    shifts,
)
from tf_lowrank_dp.per_example.materialized import Materialized
from tf_lowrank_dp.per_example.outer_product import OuterProduct
from tf_lowrank_dp.per_example.parameter import MatrixView, reshape_last


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
        if self._geometry.groups == self._x.shape[-1] > 1:
            return self._materialized(self._products_of_channels())
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

    def _products_of_channels(self) -> tf.Tensor:
        """Sums of elementwise products, `(b, offsets, cin, cout / cin)`, of depthwise kernels.

        One iteration for each offset: as many operations side by side take XLA seconds to compile,
        for each of the often large kernels, and run no faster.
        """
        geometry, axes = self._geometry, range(1, self._d.shape.rank - 1)
        starts, shifted = shifts(geometry, self._x, self._d)
        width = self._width_of_group
        d = self._d if width == 1 else _split_last(self._d, geometry.groups)

        def summed(start: tf.Tensor) -> tf.Tensor:
            inputs = shifted(start) if width == 1 else shifted(start)[..., None]
            return tf.reduce_sum(inputs * d, axes)

        spec = tf.TensorSpec([d.shape[0], *d.shape[len(axes) + 1 :]], tf.float32)
        sums = tf.map_fn(summed, tf.constant(starts), fn_output_signature=spec)
        return tf.transpose(sums, [1, 0, *range(2, sums.shape.rank)])

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


def _split_last(tensor: tf.Tensor, groups: int) -> tf.Tensor:
    return reshape_last(tensor, 1, (groups, tensor.shape[-1] // groups))

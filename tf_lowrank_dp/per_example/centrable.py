"""Per-example gradients of kernels, which can be those for inputs minus a public centre."""

from __future__ import annotations

import abc
from collections.abc import Callable

import tensorflow as tf

from tf_lowrank_dp.errors import UnsupportedModelError
from tf_lowrank_dp.per_example.gradient import PerExampleGradient
from tf_lowrank_dp.per_example.parameter import MatrixView


class CentrableGradient(PerExampleGradient):
    """The gradients of a kernel whose inputs were recorded, and to whose product a bias is added.

    Example:

    >>> from tf_lowrank_dp.per_example.outer_product import OuterProduct
    >>> gradient = OuterProduct(tf.constant([[[1.0, 5.0]]]), tf.constant([[[2.0]]]))
    >>> centrable(gradient).centred(tf.constant([[1.0], [3.0]])).materialize().numpy().tolist()
    [[[0.0], [4.0]]]
    """

    @abc.abstractmethod
    def centred(self, centre: tf.Tensor) -> CentrableGradient:
        """`G_b - centre g_b^T` with `g_b` the gradient of the bias: that for inputs minus `centre`.

        Args:
            centre: float32, of `Parameter.centre_shape`.
        """

    @abc.abstractmethod
    def mean_inputs(self) -> tf.Tensor:
        """The mean over the positions of each example's inputs, `(b, *Parameter.centre_shape)`."""


def centrable(gradient: PerExampleGradient) -> CentrableGradient:
    """The gradient itself.

    Raises:
        UnsupportedModelError: the model is differentiated one example at a time, or a capture has
            named an `AddedBias` for a kernel whose inputs it does not record.
    """
    if not isinstance(gradient, CentrableGradient):
        raise UnsupportedModelError(
            "Expected recorded inputs of each kernel with centering=True. Received: "
            f"{type(gradient).__name__}, as where a model is differentiated one example at a time, "
            "of which a warning says why. Train it with centering=False. (In a capture of your "
            "own: use OuterProduct or KernelGradient for the kernel, or leave AddedBias out.)"
        )
    return gradient


class ImageOfParts(CentrableGradient):
    """Gradients made of others, whose images are made of the images of those in the same way."""

    def right(self, r: tf.Tensor, view: MatrixView) -> PerExampleGradient:
        return self._image(lambda gradient: gradient.right(r, view))

    def left(self, l: tf.Tensor, view: MatrixView) -> PerExampleGradient:  # noqa: E741
        return self._image(lambda gradient: gradient.left(l, view))

    def masked(self, mask: tf.Tensor) -> PerExampleGradient:
        return self._image(lambda gradient: gradient.masked(mask))

    def centred(self, centre: tf.Tensor) -> CentrableGradient:
        return self._image(lambda gradient: centrable(gradient).centred(centre))

    @abc.abstractmethod
    def _image(
        self, image: Callable[[PerExampleGradient], PerExampleGradient]
    ) -> CentrableGradient:
        """The same of the images of what it is made of."""

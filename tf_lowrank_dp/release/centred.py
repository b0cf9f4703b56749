"""Gradients of kernels for inputs minus a public centre, and the means that the centre follows."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import tensorflow as tf

from tf_lowrank_dp.per_example.centrable import centrable
from tf_lowrank_dp.per_example.gradient import PerExampleGradient
from tf_lowrank_dp.per_example.materialized import Materialized
from tf_lowrank_dp.per_example.parameter import AddedBias, Parameter
from tf_lowrank_dp.release.noise_energy import NoiseEnergy, Variances
from tf_lowrank_dp.release.scaled import Scaled
from tf_lowrank_dp.release.space import Block, Normal, ReleaseSpace, Subspace

MEANS_CLIP = 1.0
"""Largest norm of an example's means, in the units in which they are released."""

MEANS_SHARE = 1.0 / 25.0
"""Of `1 / z^2`, what the means get: the gradients have 2 % more noise than without them."""

_BIAS_SCALE = 0.3
_TYPICAL_MEAN = 0.4  # of the rectified standard normal distribution
_SLOWEST = 0.05


@dataclasses.dataclass(frozen=True)
class Centres:
    """The subspace of a step: that of the centred gradients, the centres, and how far they move.

    Attributes:
        inner: subspace of the other space.
        values: the centre of each centred kernel, by position.
        rate: of the moving average.
    """

    inner: Subspace
    values: dict[int, tf.Tensor]
    rate: tf.Tensor


class CentredSpace(ReleaseSpace):
    """Another space for gradients of inputs minus a centre; a last block has the inputs' means.

    In a layer `X W + b` the kernel's gradient becomes `(X_b - 1 mu^T)^T D_b = G_b - mu g_b^T`, and
    the bias' `kappa g_b`.  These are the gradients of `(X - 1 mu^T) W + kappa c`, the same function
    for `b = kappa c - mu^T W`.  The lift gives the gradients of `W` and, times `kappa`, of `c`;
    `updating` has the bias follow the kernel.  See `docs/centering.md`.

    Formal guarantee: the centres of a step come from releases of earlier steps alone; `lift`, which
    is past the noise, has the new ones take effect at the next `refresh`.

    Args:
        space: the space of the centred gradients.
        parameters: the trainable variables.
        centres: zeros or what earlier releases have made of them, for the position of each kernel
            that is centred, of `Parameter.centre_shape`.
        step: gives the number of updates of the weights so far.

    Example: gradients of a kernel `(2, 1)` and of its bias, in one block, and the means.

    >>> from tf_lowrank_dp.per_example.outer_product import OuterProduct
    >>> from tf_lowrank_dp.per_example.parameter import AddedBias, MatrixView
    >>> from tf_lowrank_dp.release.identity import IdentitySpace
    >>> kernel, bias = tf.Variable(tf.ones((2, 1))), tf.Variable([0.0])
    >>> parameters = [Parameter(kernel, "kernel", MatrixView.of((2, 1)), True, AddedBias(bias)),
    ...               Parameter(bias, "other", None, True)]
    >>> centres = {0: tf.Variable([[1.0], [3.0]])}
    >>> space = CentredSpace(IdentitySpace(parameters, [[0, 1]]), parameters, centres,
    ...                      step=lambda: tf.constant(0))
    >>> x, d = tf.constant([[[1.0, 5.0]]]), tf.constant([[[2.0]]])
    >>> gradients, means = space.project([OuterProduct(x, d), Materialized(d[0])], space.refresh())
    >>> gradients[0].materialize().numpy().tolist()
    [[[0.0], [4.0]]]
    """

    def __init__(
        self,
        space: ReleaseSpace,
        parameters: Sequence[Parameter],
        centres: Mapping[int, tf.Variable],
        step: Callable[[], tf.Tensor],
    ):
        self._space, self._step = space, step
        self._parameters, self._next = list(parameters), dict(centres)
        positions = {id(parameter.variable): i for i, parameter in enumerate(self._parameters)}
        self._bias_of = {i: positions[id(self._bias(i).variable)] for i in self._next}
        self._biases = set(self._bias_of.values())
        shapes = [tuple(centre.shape) for centre in self._next.values()]
        self._means_scale = _TYPICAL_MEAN * math.sqrt(sum(map(math.prod, shapes)))
        self.shapes = [*space.shapes, shapes]
        with tf.init_scope():
            zeros = {i: tf.zeros(centre.shape) for i, centre in self._next.items()}
            self._present = {i: tf.Variable(z, trainable=False) for i, z in zeros.items()}

    def refresh(self) -> Centres:
        """The subspace of the other space, and the centres as earlier releases have left them."""
        values = {i: tf.identity(centre) for i, centre in self._next.items()}
        for i, value in values.items():
            self._present[i].assign(value)
        rate = tf.maximum(_SLOWEST, 1.0 / (tf.cast(self._step(), tf.float32) + 1.0))
        return Centres(self._space.refresh(), values, rate)

    def project(
        self, gradients: Sequence[PerExampleGradient], subspace: Centres
    ) -> Sequence[Block]:
        centred = list(gradients)
        for i in self._biases:
            centred[i] = Scaled(gradients[i], _BIAS_SCALE)
        means = []
        for i, centre in subspace.values.items():
            gradient = centrable(gradients[i])
            centred[i] = gradient.centred(centre)
            distance = gradient.mean_inputs() - centre
            means.append(Materialized(distance * (MEANS_CLIP / self._means_scale)))
        return [*self._space.project(centred, subspace.inner), means]

    def lift(self, released: Sequence[Sequence[tf.Tensor]], subspace: Centres) -> list[tf.Tensor]:
        """Gradients of `W` and of `c`, the latter times `kappa`: `b` is `kappa c` and more."""
        *blocks, means = released
        scale = subspace.rate * (self._means_scale / MEANS_CLIP)
        for (i, centre), mean in zip(subspace.values.items(), means, strict=True):
            self._next[i].assign(centre + scale * mean)
        lifted = self._space.lift(blocks, subspace.inner)
        return [t * _BIAS_SCALE if i in self._biases else t for i, t in enumerate(lifted)]

    def needed(self, subspace: Centres) -> list[list[tf.Tensor | None]]:
        return [*self._space.needed(subspace.inner), [None] * len(self._next)]

    @contextlib.contextmanager
    def updating(self) -> Iterator[None]:
        """Takes `mu^T dW` from each bias, so that the update is one of `W` and `c`."""
        before = {i: self._shift(i) for i in self._next}
        yield
        for i, shift in before.items():
            bias = self._parameters[self._bias_of[i]].variable
            change = self._shift(i) - shift
            bias.assign(tf.convert_to_tensor(bias) - tf.cast(change, bias.dtype))

    def _shift(self, i: int) -> tf.Tensor:
        """`mu^T W`."""
        parameter = self._parameters[i]
        kernel = tf.cast(tf.convert_to_tensor(parameter.variable), tf.float32)
        return parameter.mean_product(tf.convert_to_tensor(self._present[i]), kernel)

    def noise_energy(
        self, variances: Variances, normal: Normal, subspace: Centres | None = None
    ) -> NoiseEnergy:
        """That of the other space, times `kappa^2` for biases; the means are not lifted."""
        inner = None if subspace is None else subspace.inner
        found = self._space.noise_energy(variances[:-1], normal, inner)
        lifted = [
            energy * _BIAS_SCALE**2 if i in self._biases else energy
            for i, energy in enumerate(found.lifted)
        ]
        means = NoiseEnergy.of(variances[-1:], [])
        return dataclasses.replace(
            found,
            released=found.released + means.released,
            raw=found.raw + means.raw,
            lifted=lifted,
        )

    def _bias(self, index: int) -> AddedBias:
        bias = self._parameters[index].bias
        assert bias is not None
        return bias

"""GEP's release: coordinates in a subspace of public gradients, and what is left of the gradient.

Yu, Zhang, Chen and Liu, "Do not Let Privacy Overbill Utility" (ICLR 2021), Algorithm 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NoReturn

import tensorflow as tf

from tf_lowrank_dp.per_example.gradient import PerExampleGradient
from tf_lowrank_dp.per_example.parameter import Parameter
from tf_lowrank_dp.release.anchor_groups import size_of
from tf_lowrank_dp.release.coefficient_basis import CoefficientBasis, is_cheaper
from tf_lowrank_dp.release.held_basis import Anchor, HeldBasis
from tf_lowrank_dp.release.noise_energy import NoiseEnergy, Variances
from tf_lowrank_dp.release.space import Block, Normal, ReleaseSpace

Basis = HeldBasis | CoefficientBasis


class AnchorSpace(ReleaseSpace):
    """Releases the embedding `w_b = B g_b` and the residual `r_b = g_b - B^T w_b`.

    The rows of `B` are orthonormal, for each group of variables, and near the leading singular
    vectors of the anchors: per-example gradients of public examples.  Two blocks, one joint norm
    each: the embeddings of all groups, and the residuals of all groups.  The lift is
    `B^T w + r`, for exact `w`, `r` the gradient itself (GEP, Algorithm 1).  Without the residual
    there is one block and the lift is a projection (B-GEP).

    For two parameters and `B = [[1, 0]]` a gradient `(3, 4)` has the embedding `3` and the
    residual `(0, 4)`.

    Formal guarantees:

    * the basis is chosen from public gradients and random numbers alone: `refresh` takes nothing
      else, and is traced here, before there is a batch that what it calls could have kept;
    * no rounding breaks the sensitivity of a block, however small the residual is beside the
      gradient: see `HeldBasis` and `CoefficientBasis`, of which each group gets the cheaper one.

    Args:
        parameters: the trainable variables.
        groups: positions of the parameters of each group; each parameter in exactly one.
        num_bases: `k` for each group.
        anchors: gives the public gradients at the present weights, for each parameter; None where
            no loss is known, and no basis can be found.
        normal: public random numbers.
        power_iterations: at least 1.
        residual: whether the residual is released.
        refresh_every: number of steps for which a basis is kept.
    """

    def __init__(
        self,
        parameters: Sequence[Parameter],
        groups: Sequence[Sequence[int]],
        *,
        num_bases: Sequence[int],
        anchors: Callable[[], list[Anchor]] | None,
        normal: Normal,
        power_iterations: int = 1,
        residual: bool = True,
        refresh_every: int = 1,
    ):
        self.parameters = list(parameters)
        self.groups = [list(group) for group in groups]
        self.num_bases = list(num_bases)
        self._anchors, self._normal = anchors or _without_loss, normal
        self._power_iterations, self._residual = power_iterations, residual
        self._refresh_every = refresh_every
        self._kinds: list[type] = []
        # One trace: under another device, say, a function would be traced anew in the step.
        find = tf.function(self._new_tensors, autograph=False)
        self._find = find.get_concrete_function() if anchors else _without_loss
        self.shapes = [[(k,) for k in self.num_bases]]
        if residual:
            self.shapes.append([(size_of(self.parameters, group),) for group in self.groups])
        if anchors and refresh_every > 1:
            self._make_room()

    def refresh(self) -> list[Basis]:
        """The basis of each group: new at the first step and then at every so many steps."""
        if self._refresh_every == 1:
            return self._bases(self._find())

        def renew() -> tf.Tensor:
            tf.nest.map_structure(lambda kept, value: kept.assign(value), self._kept, self._find())
            return tf.constant(True)

        due = tf.equal(self._steps % self._refresh_every, 0)
        with tf.control_dependencies([tf.cond(due, renew, lambda: tf.constant(False))]):
            tensors = tf.nest.map_structure(tf.identity, self._kept)
            self._steps.assign_add(1)
        return self._bases(tensors)

    def project(
        self, gradients: Sequence[PerExampleGradient], subspace: list[Basis]
    ) -> Sequence[Block]:
        pairs = [
            basis.project([gradients[index] for index in group])
            for group, basis in zip(self.groups, subspace, strict=True)
        ]
        blocks: list[Block] = [[embedding for embedding, _ in pairs]]
        return [*blocks, [residual for _, residual in pairs]] if self._residual else blocks

    def lift(
        self, released: Sequence[Sequence[tf.Tensor]], subspace: list[Basis]
    ) -> list[tf.Tensor]:
        lifted = {}
        for number, (group, basis) in enumerate(zip(self.groups, subspace, strict=True)):
            flat = basis.lift(released[0][number])
            if self._residual:
                flat += released[1][number]
            shapes = [self.parameters[index].shape for index in group]
            parts = tf.split(flat, [math.prod(shape) for shape in shapes])
            for index, part, shape in zip(group, parts, shapes, strict=True):
                lifted[index] = tf.reshape(part, shape)
        return [lifted[index] for index in range(len(self.parameters))]

    def noise_energy(
        self, variances: Variances, normal: Normal, subspace: list[Basis] | None = None
    ) -> NoiseEnergy:
        """The lift of the embedding is orthonormal, that of the residual changes nothing.

        No basis is found: the energies are those of complete ones, upper bounds where public
        gradients have fewer directions.  The embedding's noise is not known by variable, and counts
        as if it were spread evenly over those of a group.
        """
        sizes = [math.prod(parameter.shape) for parameter in self.parameters]
        lifted = [0.0] * len(sizes)
        for number, group in enumerate(self.groups):
            density = variances[0][number].sum() / sum(sizes[index] for index in group)
            start = 0
            for index in group:
                lifted[index] = density * sizes[index]
                if self._residual:
                    end = start + sizes[index]
                    lifted[index] += variances[1][number][start:end].sum()
                    start = end
        return NoiseEnergy.of(variances, lifted, shared=self.groups)

    def new_bases(self) -> list[Basis]:
        """A basis of each group at the present weights, whether one is due or not."""
        anchors = self._anchors()
        found = []
        for group, size in zip(self.groups, self.num_bases, strict=True):
            own = _finite([anchors[index] for index in group])
            kind = CoefficientBasis if is_cheaper(own, size) else HeldBasis
            found.append(kind.find(own, size, self._normal, self._power_iterations))
        return found

    def _new_tensors(self) -> list:
        found = self.new_bases()
        self._kinds = [type(basis) for basis in found]
        return [basis.tensors for basis in found]

    def _bases(self, tensors: list) -> list[Basis]:
        return [kind(each) for kind, each in zip(self._kinds, tensors, strict=True)]

    def _make_room(self) -> None:
        """Variables for the bases between refreshes, before a step is traced: it makes none."""
        specs = self._find.structured_outputs
        with tf.init_scope():
            self._kept = tf.nest.map_structure(
                lambda t: tf.Variable(tf.zeros(t.shape, t.dtype), trainable=False), specs
            )
            self._steps = tf.Variable(0, dtype=tf.int64, trainable=False)


def _without_loss() -> NoReturn:
    raise ValueError(
        "Expected an optimizer in a training run, which knows the model's loss. Received: one that "
        "no run was started with. Call model.fit first."
    )


def _finite(anchors: list[Anchor]) -> list[Anchor]:
    """The anchors, with zeros for examples whose gradients are not finite."""
    rows = [
        tf.reduce_all(tf.math.is_finite(tensor), axis=list(range(1, tensor.shape.rank)))
        for anchor in anchors
        for tensor in anchor
    ]
    finite = tf.reduce_all(tf.stack(rows), axis=0)

    def cleaned(tensor: tf.Tensor) -> tf.Tensor:
        mask = tf.reshape(finite, [-1] + [1] * (tensor.shape.rank - 1))
        return tf.where(mask, tensor, 0.0)

    # Mostly there is nothing to do, and a copy of all anchors is not made.
    return tf.cond(
        tf.reduce_all(finite), lambda: anchors, lambda: tf.nest.map_structure(cleaned, anchors)
    )

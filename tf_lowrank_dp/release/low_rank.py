"""RGP's release: gradients of two thin carriers for each matrix (Yu et al. 2021)."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import tensorflow as tf

from tf_lowrank_dp.per_example.gradient import PerExampleGradient
from tf_lowrank_dp.per_example.parameter import Parameter
from tf_lowrank_dp.release.bases import low_rank_factors, orthonormal_columns
from tf_lowrank_dp.release.noise_energy import NoiseEnergy, Variances
from tf_lowrank_dp.release.space import Normal, PerVariableSpace

CARRIERS = ("both", "left", "right")


@dataclasses.dataclass(frozen=True)
class Carriers:
    """The subspace of one matrix: `left` `L (m, k)` with orthonormal columns, `right` `R (k, n)`
    with orthonormal rows, float32."""

    left: tf.Tensor
    right: tf.Tensor


@typing.final
class LowRankSpace(PerVariableSpace):
    """Releases `dL = G R^T` and `dR = L^T G` of each matrix, other gradients as they are.

    The lift is `dL R + L dR - L L^T dL R` (RGP, Equation 3), for exact `dL`, `dR` the projection
    `G - (I - L L^T) G (I - R^T R)`.  With `carriers="left"` only `dL` is released and
    the lift is `dL R`; with "right" it is `L dR`.  `dL` is kept transposed, `(k, m)`, which
    multiplies faster.

    Formal guarantee: carriers are chosen from weights, their history and random numbers alone.

    Args:
        parameters: the trainable variables.
        groups: positions of the parameters of each block.
        ranks: `k` for the position of each matrix that is reparametrised.
        source: gives the matrix `(m, n)` whose leading subspace is followed, for a position; None
            for random orthonormal carriers.
        normal: public random numbers.
        power_iterations: `K` of RGP's Algorithm 2.
        carriers: "both", "left" or "right".
    """

    def __init__(
        self,
        parameters: Sequence[Parameter],
        groups: Sequence[Sequence[int]],
        *,
        ranks: Mapping[int, int],
        source: Callable[[int], tf.Tensor] | None,
        normal: Normal,
        power_iterations: int = 1,
        carriers: str = "both",
    ):
        self.ranks = dict(ranks)
        self._source, self._normal = source, normal
        self._power_iterations = power_iterations
        self.has_left, self.has_right = carriers != "right", carriers != "left"
        super().__init__(parameters, groups)

    def refresh(self) -> dict[int, Carriers]:
        """Carriers by position; matrices of one shape are one batch."""
        found: dict[int, Carriers] = {}
        for indexes in of_one_shape(self.parameters, self.ranks):
            parts = zip(*map(tf.unstack, self._carriers(indexes)), strict=True)
            found.update((i, Carriers(*pair)) for i, pair in zip(indexes, parts, strict=True))
        return found

    def _carriers(self, indexes: list[int]) -> tuple[tf.Tensor, tf.Tensor]:
        """`L (j, m, k)` and `R (j, k, n)` of `j` matrices of one shape."""
        view, k = self.parameters[indexes[0]].matrix_view, self.ranks[indexes[0]]
        j, m, n = len(indexes), view.rows, view.columns
        start, completion = self._normal([(j, n, k), (j, m, k)])
        if self._source is None:
            rows = orthonormal_columns(tf.zeros_like(start), start)
            left = orthonormal_columns(tf.zeros_like(completion), completion)
            return left, tf.linalg.matrix_transpose(rows)
        matrices = tf.stack([self._source(index) for index in indexes])
        return low_rank_factors(matrices, start, completion, self._power_iterations)

    def piece_shapes(self, index: int) -> list[tuple[int, ...]]:
        if index not in self.ranks:
            return super().piece_shapes(index)
        view, rank = self.parameters[index].matrix_view, self.ranks[index]
        found: list[tuple[int, ...]] = [(rank, view.rows)] * self.has_left
        return found + [(rank, view.columns)] * self.has_right

    def pieces(
        self, index: int, gradient: PerExampleGradient, subspace: dict[int, Carriers]
    ) -> Sequence[PerExampleGradient]:
        if index not in self.ranks:
            return super().pieces(index, gradient, subspace)
        carriers, view = subspace[index], self.parameters[index].matrix_view
        found: list[PerExampleGradient] = []
        if self.has_left:
            found.append(gradient.right(carriers.right, view))
        if self.has_right:
            found.append(gradient.left(carriers.left, view))
        return found

    def lift_piece(
        self, index: int, released: list[tf.Tensor], subspace: dict[int, Carriers]
    ) -> tf.Tensor:
        if index not in self.ranks:
            return super().lift_piece(index, released, subspace)
        carriers = subspace[index]
        if self.has_left and self.has_right:
            d_left, d_right = released
            inner = d_right - tf.matmul(tf.matmul(d_left, carriers.left), carriers.right, True)
            matrix = tf.matmul(d_left, carriers.right, transpose_a=True)
            matrix += tf.matmul(carriers.left, inner)
        elif self.has_left:
            matrix = tf.matmul(released[0], carriers.right, transpose_a=True)
        else:
            matrix = tf.matmul(carriers.left, released[0])
        return self.parameters[index].matrix_view.to_variable(matrix)

    def noise_energy(
        self, variances: Variances, normal: Normal, subspace: dict[int, Carriers] | None = None
    ) -> NoiseEnergy:
        """Of `dL R` and `L dR` all; of both together `(I - L L^T) dL R + L dR`, whose parts are
        orthogonal: noise on row `i` of `dL` counts `1 - |L_i|^2` times."""
        subspace = self.refresh() if subspace is None else subspace
        lifted = []
        for index, found in enumerate(self.by_variable(variances)):
            energy = sum(tensor.sum() for tensor in found)
            if len(found) == 2:
                left = np.float64(subspace[index].left)
                energy -= np.sum(found[0] * np.sum(left**2, axis=1))
            lifted.append(energy)
        return NoiseEnergy.of(variances, lifted)


def of_one_shape(parameters: Sequence[Parameter], ranks: Mapping[int, int]) -> list[list[int]]:
    """Positions of matrices of one shape and rank, which are computed as one batch."""
    by_shape: dict[tuple[int, ...], list[int]] = {}
    for index, rank in ranks.items():
        view = parameters[index].matrix_view
        by_shape.setdefault((view.rows, view.columns, view.input_units, rank), []).append(index)
    return list(by_shape.values())

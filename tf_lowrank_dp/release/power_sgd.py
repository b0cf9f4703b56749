"""DP-PowerSGD: the noisy gradient, projected onto its own leading subspace (baseline of RGP)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import tensorflow as tf

from tf_lowrank_dp.per_example.parameter import Parameter
from tf_lowrank_dp.release.bases import low_rank_factors
from tf_lowrank_dp.release.low_rank import Carriers
from tf_lowrank_dp.release.space import Normal, PerVariableSpace


class PowerSGDSpace(PerVariableSpace):
    """Releases the gradients as DP-SGD does and lifts matrices to `L L^T G`.

    `L (m, k)` spans the leading columns of the noisy `G` after some power iterations (Vogels et
    al. 2019), so all of it is post-processing.

    Args:
        parameters: the trainable variables.
        groups: positions of the parameters of each block.
        ranks: `k` for the position of each matrix that is projected.
        normal: public random numbers.
        power_iterations: number of power iterations.
    """

    def __init__(
        self,
        parameters: Sequence[Parameter],
        groups: Sequence[Sequence[int]],
        *,
        ranks: Mapping[int, int],
        normal: Normal,
        power_iterations: int,
    ):
        super().__init__(parameters, groups)
        self.ranks, self._normal, self._power_iterations = dict(ranks), normal, power_iterations

    def lift_piece(
        self, index: int, released: list[tf.Tensor], subspace: dict[int, Carriers]
    ) -> tf.Tensor:
        if index not in self.ranks:
            return released[0]
        view, rank = self.parameters[index].matrix_view, self.ranks[index]
        start, completion = self._normal([(1, view.columns, rank), (1, view.rows, rank)])
        gradient = view.to_matrix(released[0])
        left, _ = low_rank_factors(gradient[None], start, completion, self._power_iterations)
        coordinates = tf.matmul(left[0], gradient, transpose_a=True)
        return view.to_variable(tf.matmul(left[0], coordinates))

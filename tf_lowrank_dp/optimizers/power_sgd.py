"""DP-PowerSGD, a baseline of Yu et al. (ICML 2021)."""

from __future__ import annotations

import keras

from tf_lowrank_dp.optimizers.matrices import RankOptimizer
from tf_lowrank_dp.release.power_sgd import PowerSGDSpace
from tf_lowrank_dp.release.selection import groups_of


@keras.saving.register_keras_serializable("tf_lowrank_dp")
class DPPowerSGDOptimizer(RankOptimizer):
    """DP-SGD whose noisy gradients are projected onto their own leading directions.

    Power iterations find the `rank` leading directions of each matrix's noisy gradient (Vogels et
    al. 2019), which is projected onto them.  This removes noise after it was added; the noise that
    a step pays for is that of DP-SGD.

    Formal guarantee: that of `DPSGDOptimizer`, by post-processing.

    Args:
        optimizer: the inner optimizer, see `DPOptimizer`.
        **kwargs: `rank`, `power_iterations` (see `RankOptimizer`), `include`, `exclude` (see
            `MatrixOptimizer`), and those of `DPOptimizer`.

    Example:

    >>> import tf_lowrank_dp as tfdp
    >>> tfdp.DPPowerSGDOptimizer("sgd", rank=4, l2_norm_clip=1.0, noise_multiplier=1.0).rank
    4
    """

    mechanism_name = "DP-PowerSGD"

    def __init__(self, optimizer="sgd", **kwargs):
        super().__init__(optimizer, **kwargs)

    def release_space(self, parameters, normal):
        return PowerSGDSpace(
            parameters,
            groups_of(parameters, self.clipping),
            ranks=self.ranks(parameters),
            normal=normal,
            power_iterations=self.power_iterations,
        )

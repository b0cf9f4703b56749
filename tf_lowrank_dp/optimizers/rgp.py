"""Reparametrized gradient perturbation (Yu et al., ICML 2021)."""

from __future__ import annotations

import keras

from tf_lowrank_dp.optimizers.carriers import CarrierOptimizer
from tf_lowrank_dp.release.low_rank import LowRankSpace
from tf_lowrank_dp.release.selection import groups_of


@keras.saving.register_keras_serializable("tf_lowrank_dp")
class RGPOptimizer(CarrierOptimizer):
    """Releases the gradients of two thin carriers for each matrix instead of its gradient.

    For each reparametrised matrix a step releases `dL = G R^T` and `dR = L^T G`, `rank (m + n)`
    numbers instead of `m n`, clipped jointly with everything else, and hands the inner optimizer
    `dL R + L dR - L L^T dL R` (RGP, Algorithm 1 and Equation 3).  Kernel gradients are never
    computed.

    Formal guarantee: that of `DPSGDOptimizer` with the same `noise_multiplier`; the carriers
    come from weights that are public already, so they cost nothing.

    Args:
        optimizer: the inner optimizer, see `DPOptimizer`.
        carriers_from: "history" (the paper's choice), "weights" or "random", see
            `CarrierOptimizer`.
        **kwargs: `rank`, `power_iterations`, `warmup_steps`, `carriers` (see `CarrierOptimizer`),
            `include`, `exclude` (see `MatrixOptimizer`), and those of `DPOptimizer`.

    Example:

    >>> import tf_lowrank_dp as tfdp
    >>> optimizer = tfdp.RGPOptimizer("adam", rank=8, warmup_steps=100, l2_norm_clip=1.0,
    ...                               epsilon=3.0, delta=1e-5)
    >>> optimizer.rank
    8
    """

    mechanism_name = "RGP"

    def __init__(self, optimizer="sgd", *, carriers_from: str = "history", **kwargs):
        super().__init__(optimizer, carriers_from=carriers_from, **kwargs)

    def release_space(self, parameters, normal):
        groups = groups_of(parameters, self.clipping)
        return LowRankSpace(parameters, groups, **self.carrier_arguments(parameters, normal))

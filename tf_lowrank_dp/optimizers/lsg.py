"""Low-rank and sparse gradients (Ito et al.)."""

from __future__ import annotations

import keras
import tensorflow as tf

from tf_lowrank_dp import _validate
from tf_lowrank_dp.optimizers.carriers import CarrierOptimizer
from tf_lowrank_dp.release.selection import groups_of
from tf_lowrank_dp.release.sparse_low_rank import MASKS_FROM, SparseLowRankSpace


@keras.saving.register_keras_serializable("tf_lowrank_dp")
class LSGOptimizer(CarrierOptimizer):
    """RGP that also freezes the rows and columns of unimportant units.

    The importance of an input unit is `sum_j |W_ij|`, of an output unit `sum_i |W_ij|`, of the
    weights at the step.  Of the gradients `dL` and `dR` of the carriers only the rows and columns
    of the most important units are clipped, noised and used (Ito et al., Section 3.3); the
    clip is joint, as in RGP.

    Formal guarantee: that of `DPSGDOptimizer` with the same `noise_multiplier`.

    Args:
        optimizer: the inner optimizer, see `DPOptimizer`.
        sparsity: fraction of the input units, and of the output units, that are frozen; 0 is RGP.
        sparsity_start_step: step of the inner optimizer from which on units are frozen.
        carriers_from: "weights" (the paper's choice), "history" or "random", see
            `CarrierOptimizer`.
        masks_from: where importance comes from: "weights", or for study "carriers" (the
            carriers' own entries) or "random", which the paper found to be no better than RGP
            (Section 4.4).
        **kwargs: `rank`, `power_iterations`, `warmup_steps`, `carriers` (see `CarrierOptimizer`),
            `include`, `exclude` (see `MatrixOptimizer`), and those of `DPOptimizer`.

    Example:

    >>> import tf_lowrank_dp as tfdp
    >>> optimizer = tfdp.LSGOptimizer("adam", rank=8, sparsity=0.5, l2_norm_clip=1.0,
    ...                               epsilon=3.0, delta=1e-5)
    >>> optimizer.sparsity
    0.5
    """

    mechanism_name = "LSG"

    def __init__(
        self,
        optimizer="sgd",
        *,
        sparsity: float = 0.5,
        sparsity_start_step: int = 0,
        carriers_from: str = "weights",
        masks_from: str = "weights",
        **kwargs,
    ):
        _validate.fraction(sparsity=sparsity)
        _validate.integer_at_least(0, sparsity_start_step=sparsity_start_step)
        _validate.one_of(MASKS_FROM, masks_from=masks_from)
        super().__init__(optimizer, carriers_from=carriers_from, **kwargs)
        self.sparsity, self.sparsity_start_step = sparsity, sparsity_start_step
        self.masks_from = masks_from

    def release_space(self, parameters, normal):
        return SparseLowRankSpace(
            parameters,
            groups_of(parameters, self.clipping),
            sparsity=self.sparsity,
            is_sparse=self._is_sparse if self.sparsity_start_step else None,
            masks_from=self.masks_from,
            **self.carrier_arguments(parameters, normal),
        )

    def _is_sparse(self) -> tf.Tensor:
        return tf.convert_to_tensor(self.iterations) >= self.sparsity_start_step

    def get_config(self) -> dict:
        own = {
            "sparsity": self.sparsity,
            "sparsity_start_step": self.sparsity_start_step,
            "masks_from": self.masks_from,
        }
        return {**super().get_config(), **own}

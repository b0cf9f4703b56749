"""Sparse DP-SGD, a baseline of Ito et al."""

from __future__ import annotations

import keras

from tf_lowrank_dp import _validate
from tf_lowrank_dp.optimizers.matrices import MatrixOptimizer
from tf_lowrank_dp.release.coordinates import UNITS, CoordinateSpace
from tf_lowrank_dp.release.selection import groups_of


@keras.saving.register_keras_serializable("tf_lowrank_dp")
class SparseDPSGDOptimizer(MatrixOptimizer):
    """DP-SGD that updates only the weights of each matrix that are largest at the step.

    Formal guarantee: that of `DPSGDOptimizer`; which weights are updated depends on the weights
    alone.  With `unit="weight"` the per-example gradients of these matrices are materialised: set
    `microbatch_size` to bound the memory.

    Args:
        optimizer: the inner optimizer, see `DPOptimizer`.
        sparsity: fraction of each matrix that is frozen.
        unit: "weight" keeps single weights of large magnitude, "neuron" all weights of the output
            units with the largest sum of magnitudes.
        **kwargs: `include`, `exclude` (see `MatrixOptimizer`), and those of `DPOptimizer`.

    Example:

    >>> import tf_lowrank_dp as tfdp
    >>> tfdp.SparseDPSGDOptimizer("sgd", sparsity=0.9, l2_norm_clip=1.0, noise_multiplier=1.0).unit
    'weight'
    """

    mechanism_name = "Sparse DP-SGD"

    def __init__(self, optimizer="sgd", *, sparsity: float = 0.5, unit: str = "weight", **kwargs):
        _validate.fraction(sparsity=sparsity)
        _validate.one_of(UNITS, unit=unit)
        super().__init__(optimizer, **kwargs)
        self.sparsity, self.unit = sparsity, unit

    def release_space(self, parameters, normal):
        return CoordinateSpace(
            parameters,
            groups_of(parameters, self.clipping),
            selected=self.selected(parameters),
            sparsity=self.sparsity,
            unit=self.unit,
        )

    def get_config(self) -> dict:
        return {**super().get_config(), "sparsity": self.sparsity, "unit": self.unit}

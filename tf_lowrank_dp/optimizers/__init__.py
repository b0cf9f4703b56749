"""Stage 5: the optimizers that users compile with."""

from tf_lowrank_dp.optimizers.base import DPOptimizer
from tf_lowrank_dp.optimizers.dpsgd import DPSGDOptimizer

__all__ = ["DPOptimizer", "DPSGDOptimizer"]

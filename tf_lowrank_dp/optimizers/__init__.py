"""Stage 5: the optimizers that users compile with."""

from tf_lowrank_dp.optimizers.base import DPOptimizer
from tf_lowrank_dp.optimizers.clips import AutomaticClip, QuantileClip
from tf_lowrank_dp.optimizers.dpsgd import DPSGDOptimizer
from tf_lowrank_dp.optimizers.gep import GEPOptimizer
from tf_lowrank_dp.optimizers.known_files import know_what_files_hold
from tf_lowrank_dp.optimizers.lsg import LSGOptimizer
from tf_lowrank_dp.optimizers.own_compile import restore_private_optimizers
from tf_lowrank_dp.optimizers.power_sgd import DPPowerSGDOptimizer
from tf_lowrank_dp.optimizers.rgp import RGPOptimizer
from tf_lowrank_dp.optimizers.sparse_dpsgd import SparseDPSGDOptimizer

__all__ = [
    "AutomaticClip",
    "DPOptimizer",
    "DPPowerSGDOptimizer",
    "DPSGDOptimizer",
    "GEPOptimizer",
    "LSGOptimizer",
    "QuantileClip",
    "RGPOptimizer",
    "SparseDPSGDOptimizer",
]

restore_private_optimizers()
know_what_files_hold()

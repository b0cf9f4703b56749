"""The algorithms, each a value: settings that make a release space."""

from tf_lowrank_dp.algorithms.algorithm import Algorithm
from tf_lowrank_dp.algorithms.context import ReleaseContext
from tf_lowrank_dp.algorithms.dpsgd import DPSGD
from tf_lowrank_dp.algorithms.gep import GEP
from tf_lowrank_dp.algorithms.lsg import LSG
from tf_lowrank_dp.algorithms.power_sgd import DPPowerSGD
from tf_lowrank_dp.algorithms.rgp import RGP
from tf_lowrank_dp.algorithms.sparse_dpsgd import SparseDPSGD
from tf_lowrank_dp.algorithms.state import AlgorithmState

__all__ = [
    "DPSGD",
    "GEP",
    "LSG",
    "RGP",
    "Algorithm",
    "AlgorithmState",
    "DPPowerSGD",
    "ReleaseContext",
    "SparseDPSGD",
]

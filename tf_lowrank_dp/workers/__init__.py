"""Several processes that train one model together and exchange released sums only."""

from tf_lowrank_dp.workers.alone import ALONE, Workers
from tf_lowrank_dp.workers.join import join_workers

__all__ = ["ALONE", "Workers", "join_workers"]

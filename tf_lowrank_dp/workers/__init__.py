"""Several processes that train one model together and exchange released sums only."""

from tf_lowrank_dp.workers.alone import ALONE, Needed, Workers
from tf_lowrank_dp.workers.join import join_workers

__all__ = ["ALONE", "Needed", "Workers", "join_workers"]

"""Looking into a private model; on private data what these show is not private."""

from tf_lowrank_dp.diagnostics.check_gradients import check_gradients
from tf_lowrank_dp.diagnostics.explain import explain

__all__ = ["check_gradients", "explain"]

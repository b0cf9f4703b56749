"""Looking into a private model; on private data what these show is not private.

`release_summary` and `compare_releases` see no data.
"""

from tf_lowrank_dp.diagnostics.anchor_monitor import AnchorHistory, AnchorMonitor
from tf_lowrank_dp.diagnostics.anchor_residual import AnchorResidual, anchor_residuals
from tf_lowrank_dp.diagnostics.check_gradients import check_gradients
from tf_lowrank_dp.diagnostics.explain import explain
from tf_lowrank_dp.diagnostics.plot_anchors import plot_anchors
from tf_lowrank_dp.diagnostics.plot_privacy import plot_privacy
from tf_lowrank_dp.diagnostics.plot_subspaces import plot_subspaces
from tf_lowrank_dp.diagnostics.projection_residual import (
    historical_projection_residual,
    projection_residual,
    self_projection_residual,
)
from tf_lowrank_dp.diagnostics.release_summary import (
    ReleaseSummary,
    compare_releases,
    release_summary,
)
from tf_lowrank_dp.diagnostics.singular_values import leading_subspace
from tf_lowrank_dp.diagnostics.stable_rank import gradient_stable_ranks, stable_rank
from tf_lowrank_dp.diagnostics.subspace_monitor import SubspaceHistory, SubspaceMonitor

__all__ = [
    "AnchorHistory",
    "AnchorMonitor",
    "AnchorResidual",
    "ReleaseSummary",
    "SubspaceHistory",
    "SubspaceMonitor",
    "anchor_residuals",
    "check_gradients",
    "compare_releases",
    "explain",
    "gradient_stable_ranks",
    "historical_projection_residual",
    "leading_subspace",
    "plot_anchors",
    "plot_privacy",
    "plot_subspaces",
    "projection_residual",
    "release_summary",
    "self_projection_residual",
    "stable_rank",
]

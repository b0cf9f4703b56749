"""DP-SGD releases the gradients as they are (Abadi et al. 2016)."""

from __future__ import annotations

from tf_lowrank_dp.release.space import PerVariableSpace


class IdentitySpace(PerVariableSpace):
    """The gradients themselves, in one block or one block for each group of variables."""

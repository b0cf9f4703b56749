"""Captures for layers of `keras.applications`."""

from __future__ import annotations

from tf_lowrank_dp.layers.normalization import scaled
from tf_lowrank_dp.layers.recorder import current_recorder
from tf_lowrank_dp.layers.registry import register_capture


@register_capture("keras.src.applications.convnext.LayerScale")
class _LayerScale:
    """ConvNeXt's factor `(o,)` of each residual branch."""

    def call(self, x):
        if current_recorder() is None:
            return super().call(x)
        return scaled(self, x, [x.shape.rank - 1], self.gamma, None)

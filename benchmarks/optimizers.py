"""Optimizers that the benchmarks compare.

Add an algorithm by writing a factory and naming it in `OPTIMIZERS`. The library is imported
inside the factories, so that `plain` runs without it.
"""

from collections.abc import Callable
from typing import Any

import keras

PLAIN = "plain"


def plain(inner: keras.optimizers.Optimizer, **privacy: Any) -> keras.optimizers.Optimizer:
    """Returns the inner optimizer itself: ordinary training, the baseline."""
    del privacy
    return inner


def private(name: str, **arguments: Any) -> Callable[..., keras.optimizers.Optimizer]:
    """Returns a factory of the library's optimizer of this name with these arguments."""

    def factory(inner: keras.optimizers.Optimizer, **privacy: Any) -> keras.optimizers.Optimizer:
        import tf_lowrank_dp as tfdp

        return getattr(tfdp, name)(inner, **arguments, **privacy)

    return factory


OPTIMIZERS: dict[str, Callable[..., keras.optimizers.Optimizer]] = {
    PLAIN: plain,
    "dpsgd": private("DPSGDOptimizer"),
    "dpsgd-centred": private("DPSGDOptimizer", centering=True),
    "rgp": private("RGPOptimizer", rank=8),
    "lsg": private("LSGOptimizer", rank=8, sparsity=0.5),
    "sparse": private("SparseDPSGDOptimizer", sparsity=0.5),
    "powersgd": private("DPPowerSGDOptimizer", rank=8),
}
"""Factories `(inner, **privacy) -> optimizer`.

`privacy` holds `l2_norm_clip`, `gradient_method` and either `noise_multiplier` or `epsilon` and
`delta`.
"""

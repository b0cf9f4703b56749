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


def dpsgd(inner: keras.optimizers.Optimizer, **privacy: Any) -> keras.optimizers.Optimizer:
    """Returns DP-SGD around the inner optimizer."""
    import tf_lowrank_dp as tfdp

    return tfdp.DPSGDOptimizer(inner, **privacy)


OPTIMIZERS: dict[str, Callable[..., keras.optimizers.Optimizer]] = {PLAIN: plain, "dpsgd": dpsgd}
"""Factories `(inner, **privacy) -> optimizer`.

`privacy` holds `l2_norm_clip`, `gradient_method` and either `noise_multiplier` or `epsilon` and
`delta`.
"""

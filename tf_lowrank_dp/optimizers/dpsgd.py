"""DP-SGD, with any inner optimizer (Abadi et al. 2016)."""

from __future__ import annotations

import keras

from tf_lowrank_dp.optimizers.base import DPOptimizer
from tf_lowrank_dp.release.identity import IdentitySpace
from tf_lowrank_dp.release.selection import groups_of


@keras.saving.register_keras_serializable("tf_lowrank_dp")
class DPSGDOptimizer(DPOptimizer):
    """Differentially private training with clipped, noised gradients and any Keras optimizer.

    Each step draws a batch, clips the gradient of each example's loss to `l2_norm_clip`, adds up,
    adds Gaussian noise of standard deviation `noise_multiplier * l2_norm_clip`, divides by the
    expected batch size and hands the result to the inner optimizer (Abadi et al. 2016,
    Algorithm 1).

    Formal guarantee: with Poisson sampling of rate q, T steps are (epsilon, delta)-differentially
    private for adding or removing one example, with epsilon by composing T Poisson-sampled
    Gaussians of multiplier `noise_multiplier`.

    Args:
        optimizer: the inner optimizer, see `DPOptimizer` for this and the other arguments.
        **kwargs: see `DPOptimizer`.

    Example:

    >>> import tf_lowrank_dp as tfdp
    >>> optimizer = tfdp.DPSGDOptimizer("adam", l2_norm_clip=1.0, epsilon=3.0, delta=1e-5)
    >>> optimizer.l2_norm_clip
    1.0
    """

    mechanism_name = "DP-SGD"

    def __init__(self, optimizer="sgd", **kwargs):
        super().__init__(optimizer, **kwargs)

    def release_space(self, parameters, normal):
        return IdentitySpace(parameters, groups_of(parameters, self.clipping))

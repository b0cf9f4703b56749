"""DP-SGD, with any inner optimizer (Abadi et al. 2016)."""

from __future__ import annotations

from collections.abc import Mapping

import keras

from tf_lowrank_dp.algorithms.dpsgd import DPSGD
from tf_lowrank_dp.optimizers.base import DPOptimizer
from tf_lowrank_dp.optimizers.clips import ClipNorm


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
        optimizer: the inner optimizer: a Keras optimizer, its name or its config.
        l2_norm_clip: largest L2 norm of one example's contribution, `AutomaticClip()` or
            `QuantileClip()`.
        epsilon: target epsilon; with `delta`, instead of `noise_multiplier`.
        delta: target delta, below 1 / number of examples.
        noise_multiplier: standard deviation of the noise over `l2_norm_clip`.
        planned_steps: number of steps that the budget shall last; None for those of `fit`.
        clipping: "flat" for one joint norm, "per_layer" for one of each layer.
        centering: whether kernels' gradients are those for centred inputs (`docs/centering.md`).
        gradient_scale: factors of gradients before clipping, by parts of variable paths.
        gradient_method: "auto", "bookkeeping", "reweight", "vectorized" or "loop".
        accountant: "pld" (tight) or "rdp".
        seed: makes sampling and noise reproducible, for tests; such a run is not private.
        name: name of the optimizer.

    More on the privacy arguments, from `l2_norm_clip` on, is in `DPOptimizer`.

    Example:

    >>> import tf_lowrank_dp as tfdp
    >>> optimizer = tfdp.DPSGDOptimizer("adam", l2_norm_clip=1.0, epsilon=3.0, delta=1e-5)
    >>> optimizer.l2_norm_clip
    1.0
    """

    def __init__(
        self,
        optimizer: keras.optimizers.Optimizer | str | dict = "sgd",
        *,
        l2_norm_clip: ClipNorm,
        epsilon: float | None = None,
        delta: float | None = None,
        noise_multiplier: float | None = None,
        planned_steps: int | None = None,
        clipping: str = "flat",
        centering: bool = False,
        gradient_scale: Mapping[str, float] | None = None,
        gradient_method: str = "auto",
        accountant: str = "pld",
        seed: int | None = None,
        name: str | None = None,
    ):
        super().__init__(
            optimizer,
            DPSGD(),
            l2_norm_clip=l2_norm_clip,
            epsilon=epsilon,
            delta=delta,
            noise_multiplier=noise_multiplier,
            planned_steps=planned_steps,
            clipping=clipping,
            centering=centering,
            gradient_scale=gradient_scale,
            gradient_method=gradient_method,
            accountant=accountant,
            seed=seed,
            name=name,
        )

"""DP-PowerSGD, a baseline of Yu et al. (ICML 2021)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import keras

from tf_lowrank_dp.algorithms.power_sgd import DPPowerSGD
from tf_lowrank_dp.optimizers.base import DPOptimizer
from tf_lowrank_dp.optimizers.clips import ClipNorm


@keras.saving.register_keras_serializable("tf_lowrank_dp")
class DPPowerSGDOptimizer(DPOptimizer):
    """DP-SGD whose noisy gradients are projected onto their own leading directions.

    Power iterations find the `rank` leading directions of each matrix's noisy gradient (Vogels et
    al. 2019), which is projected onto them.  This removes noise after it was added; the noise that
    a step pays for is that of DP-SGD.

    By default the kernels `(m, n)`, not of an output layer, where two carriers have at most half
    as many numbers, `2 rank (m + n) <= m n`, are projected.

    Formal guarantee: that of `DPSGDOptimizer`, by post-processing.

    Args:
        optimizer: the inner optimizer: a Keras optimizer, its name or its config.
        rank: number of directions of each matrix, at most its smaller side.
        power_iterations: how often the directions are refined.
        include: parts of variable paths: matrices to project whatever the defaults say,
            embeddings and output layers as well.
        exclude: parts of variable paths: matrices to release in full.
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
    >>> tfdp.DPPowerSGDOptimizer("sgd", rank=4, l2_norm_clip=1.0, noise_multiplier=1.0).rank
    4
    """

    def __init__(
        self,
        optimizer: keras.optimizers.Optimizer | str | dict = "sgd",
        *,
        rank: int = 8,
        power_iterations: int = 1,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
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
            DPPowerSGD(
                rank=rank, power_iterations=power_iterations, include=include, exclude=exclude
            ),
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

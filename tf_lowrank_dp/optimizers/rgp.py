"""Reparametrized gradient perturbation (Yu et al., ICML 2021)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import keras
import tensorflow as tf

from tf_lowrank_dp.algorithms.rgp import INITIAL, RGP
from tf_lowrank_dp.optimizers.base import DPOptimizer
from tf_lowrank_dp.optimizers.clips import ClipNorm


@keras.saving.register_keras_serializable("tf_lowrank_dp")
class RGPOptimizer(DPOptimizer):
    """Releases the gradients of two thin carriers for each matrix instead of its gradient.

    For each reparametrised matrix a step releases `dL = G R^T` and `dR = L^T G`, `rank (m + n)`
    numbers instead of `m n`, clipped jointly with everything else, and hands the inner optimizer
    `dL R + L dR - L L^T dL R` (RGP, Algorithm 1 and Equation 3).  Kernel gradients are never
    computed.

    By default the kernels `(m, n)`, not of an output layer, where two carriers have at most half
    as many numbers, `2 rank (m + n) <= m n`, are reparametrised.

    Formal guarantee: that of `DPSGDOptimizer` with the same `noise_multiplier`; the carriers
    come from weights that are public already, so they cost nothing.

    Args:
        optimizer: the inner optimizer: a Keras optimizer, its name or its config.
        rank: number of directions that are followed for each matrix, at most its smaller side.
        power_iterations: how often the directions are refined; 1 is enough (RGP, Section 3.3).
        carriers_from: whose leading subspace the carriers span: "history", the update `W_t - W_0`
            since the start of private training (after `warmup_steps`, before them `W_t`), as in
            the paper;
            "weights", always `W_t`; "random", random orthonormal carriers (RGP-random).
        warmup_steps: number of steps for which "history" uses `W_t`, because the history is noise
            at first.  With 0 the first carriers are random.
        carriers: "both", or only the gradient of the "left" or "right" one is released.
        include: parts of variable paths: matrices to reparametrise whatever the defaults say,
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
    >>> optimizer = tfdp.RGPOptimizer("adam", rank=8, warmup_steps=100, l2_norm_clip=1.0,
    ...                               epsilon=3.0, delta=1e-5)
    >>> optimizer.rank
    8
    """

    def __init__(
        self,
        optimizer: keras.optimizers.Optimizer | str | dict = "sgd",
        *,
        rank: int = 8,
        power_iterations: int = 1,
        carriers_from: str = "history",
        warmup_steps: int = 100,
        carriers: str = "both",
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
            RGP(
                rank=rank,
                power_iterations=power_iterations,
                carriers_from=carriers_from,
                warmup_steps=warmup_steps,
                carriers=carriers,
                include=include,
                exclude=exclude,
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

    @property
    def initial_weights(self) -> dict[int, tf.Variable]:
        """`W_0` of each matrix whose history is followed, by the position of the variable."""
        return self.algorithm_state.by_position(INITIAL)

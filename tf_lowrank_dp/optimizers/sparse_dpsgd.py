"""Sparse DP-SGD, a baseline of Ito et al."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import keras

from tf_lowrank_dp.algorithms.sparse_dpsgd import SparseDPSGD
from tf_lowrank_dp.optimizers.base import DPOptimizer
from tf_lowrank_dp.optimizers.clips import ClipNorm


@keras.saving.register_keras_serializable("tf_lowrank_dp")
class SparseDPSGDOptimizer(DPOptimizer):
    """DP-SGD that updates only the weights of each matrix that are largest at the step.

    By default the kernels are made sparse that are not of an output layer.

    Formal guarantee: that of `DPSGDOptimizer`; which weights are updated depends on the weights
    alone.  With `unit="weight"` the per-example gradients of these matrices are materialised: set
    `microbatch_size` to bound the memory.

    Args:
        optimizer: the inner optimizer: a Keras optimizer, its name or its config.
        sparsity: fraction of each matrix that is frozen.
        unit: "weight" keeps single weights of large magnitude, "neuron" all weights of the output
            units with the largest sum of magnitudes.
        include: parts of variable paths: matrices to make sparse whatever the defaults say,
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
    >>> tfdp.SparseDPSGDOptimizer("sgd", sparsity=0.9, l2_norm_clip=1.0, noise_multiplier=1.0).unit
    'weight'
    """

    def __init__(
        self,
        optimizer: keras.optimizers.Optimizer | str | dict = "sgd",
        *,
        sparsity: float = 0.5,
        unit: str = "weight",
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
            SparseDPSGD(sparsity=sparsity, unit=unit, include=include, exclude=exclude),
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

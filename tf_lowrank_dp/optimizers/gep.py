"""Gradient embedding perturbation (Yu et al., ICLR 2021)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import keras

from tf_lowrank_dp._types import Nested
from tf_lowrank_dp.algorithms.gep import GEP
from tf_lowrank_dp.optimizers.base import DPOptimizer
from tf_lowrank_dp.optimizers.checks import check_finite
from tf_lowrank_dp.release.public_data import RANDOM, PublicData


@keras.saving.register_keras_serializable("tf_lowrank_dp")
class GEPOptimizer(DPOptimizer):
    """Releases each gradient's coordinates in a subspace of public gradients, and its residual.

    A step finds an orthonormal basis `B` near the leading directions of the gradients of public
    examples, and releases the embedding `w = B g`, clipped at `embedding_clip`, and the residual
    `g - B^T w`, clipped at `residual_clip`.  The inner optimizer gets `B^T w + r` (GEP, Algorithms
    1 and 2), or `B^T w` alone with `residual=False` (B-GEP, biased).

    Formal guarantee: that of `DPSGDOptimizer` with the same `noise_multiplier`, for the private
    examples; the public ones are not protected at all.  Both parts come from one batch and are one
    Gaussian release: with the effective multiplier `z` the deviations of the noise are
    `z sqrt(2) embedding_clip` and `z sqrt(2) residual_clip`, and `z embedding_clip` for B-GEP.

    Args:
        optimizer: the inner optimizer: a Keras optimizer, its name or its config.
        public_data: features of public examples as the model takes them: nested arrays `(m, ...)`,
            or a `tf.data.Dataset` of batches of them.  Public means that anybody may know them,
            and that whether somebody's data are among them is no secret.  They are not saved: pass
            them to a loaded optimizer with `set_public_data`.
        public_labels: "random" draws labels anew for each basis, which the paper found to work
            better than true ones (Table 5); or arrays, as the loss takes them.
        num_classes: number of classes of random labels.
        num_bases: number of basis vectors of all groups together, allocated by the root of the
            groups' sizes; fewer where a group has fewer parameters or there are fewer examples.
        num_groups: number of groups of contiguous variables of similar size that have a basis of
            their own; None for one group a layer.
        groups: instead, for each group, parts of the paths of its variables.
        power_iterations: how often a basis is refined; 1 in the paper.
        embedding_clip: `S1`, largest norm of an example's embedding.
        residual_clip: `S2`, largest norm of an example's residual; without meaning for B-GEP.
        residual: whether the residual is released.
        refresh_every: number of steps for which a basis is kept.
        l2_norm_clip: None: it is `sqrt(S1^2 + S2^2)`, or `S1` for B-GEP.
        epsilon: target epsilon; with `delta`, instead of `noise_multiplier`.
        delta: target delta, below 1 / number of examples.
        noise_multiplier: standard deviation of the noise over `l2_norm_clip`.
        planned_steps: number of steps that the budget shall last; None for those of `fit`.
        clipping: "flat": embedding and residual are clipped apart in any case.
        gradient_scale: factors of gradients before clipping, by parts of variable paths.
        gradient_method: "auto", "bookkeeping", "reweight", "vectorized" or "loop".
        accountant: "pld" (tight) or "rdp".
        seed: makes sampling and noise reproducible, for tests; such a run is not private.
        name: name of the optimizer.

    More on the privacy arguments, from `epsilon` on, is in `DPOptimizer`.

    Example:

    >>> import numpy as np, tf_lowrank_dp as tfdp
    >>> optimizer = tfdp.GEPOptimizer(
    ...     "sgd", public_data=np.zeros((200, 28, 28, 1)), num_classes=10, num_bases=100,
    ...     embedding_clip=4.0, residual_clip=3.0, epsilon=3.0, delta=1e-5)
    >>> optimizer.l2_norm_clip
    5.0
    """

    def __init__(
        self,
        optimizer: keras.optimizers.Optimizer | str | dict = "sgd",
        *,
        public_data: Nested = None,
        public_labels: Nested = RANDOM,
        num_classes: int | None = None,
        num_bases: int = 1000,
        num_groups: int | None = None,
        groups: Sequence[Sequence[str]] | None = None,
        power_iterations: int = 1,
        embedding_clip: float = 5.0,
        residual_clip: float = 2.0,
        residual: bool = True,
        refresh_every: int = 1,
        l2_norm_clip: None = None,
        epsilon: float | None = None,
        delta: float | None = None,
        noise_multiplier: float | None = None,
        planned_steps: int | None = None,
        clipping: str = "flat",
        gradient_scale: Mapping[str, float] | None = None,
        gradient_method: str = "auto",
        accountant: str = "pld",
        seed: int | None = None,
        name: str | None = None,
    ):
        _check_clipping(l2_norm_clip, clipping)
        algorithm = GEP(
            num_classes=num_classes,
            num_bases=num_bases,
            num_groups=num_groups,
            groups=groups,
            power_iterations=power_iterations,
            embedding_clip=embedding_clip,
            residual_clip=residual_clip,
            residual=residual,
            refresh_every=refresh_every,
        )
        check_finite(noise_multiplier, embedding_clip=algorithm.embedding_clip)
        check_finite(noise_multiplier, residual_clip=algorithm.residual_clip)
        super().__init__(
            optimizer,
            algorithm,
            l2_norm_clip=algorithm.l2_norm_clip,
            epsilon=epsilon,
            delta=delta,
            noise_multiplier=noise_multiplier,
            planned_steps=planned_steps,
            clipping=clipping,
            gradient_scale=gradient_scale,
            gradient_method=gradient_method,
            accountant=accountant,
            seed=seed,
            name=name,
        )
        if public_data is not None:
            self.set_public_data(public_data, public_labels)

    def set_public_data(self, public_data: Nested, public_labels: Nested = RANDOM) -> None:
        """Sets or replaces the public examples, from the next training run on.

        Args:
            public_data: see the class.
            public_labels: see the class.
        """
        found = PublicData.of(public_data, public_labels)
        self.algorithm = dataclasses.replace(self.algorithm, public_data=found)

    def get_config(self) -> dict:
        config = super().get_config()
        del config["l2_norm_clip"], config["centering"]
        return config


def _check_clipping(l2_norm_clip: float | None, clipping: str) -> None:
    if l2_norm_clip is not None:
        raise ValueError(
            "Expected embedding_clip and residual_clip, no l2_norm_clip. Received: l2_norm_clip="
            f"{l2_norm_clip!r}. GEP clips two parts apart: leave it out."
        )
    if clipping != "flat":
        raise ValueError(
            f"Expected clipping='flat'. Received: clipping={clipping!r}. Embedding and "
            "residual are the blocks of GEP, clipped apart: leave it out."
        )

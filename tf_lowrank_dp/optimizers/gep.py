"""Gradient embedding perturbation (Yu et al., ICLR 2021)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import keras
import tensorflow as tf

from tf_lowrank_dp import _validate
from tf_lowrank_dp.optimizers.base import DPOptimizer, check_clip
from tf_lowrank_dp.per_example.parameter import Parameter
from tf_lowrank_dp.release.anchor import AnchorSpace
from tf_lowrank_dp.release.anchor_groups import allocated_bases, anchor_groups, size_of
from tf_lowrank_dp.release.held_basis import Anchor
from tf_lowrank_dp.release.public_data import RANDOM, PublicData, random_labels
from tf_lowrank_dp.release.scaled import scales_of


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
        optimizer: the inner optimizer, see `DPOptimizer`.
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
        **kwargs: those of `DPOptimizer` but `l2_norm_clip`, which is `sqrt(S1^2 + S2^2)` here, and
            `clipping`, which is "flat".

    Example:

    >>> import numpy as np, tf_lowrank_dp as tfdp
    >>> optimizer = tfdp.GEPOptimizer(
    ...     "sgd", public_data=np.zeros((200, 28, 28, 1)), num_classes=10, num_bases=100,
    ...     embedding_clip=4.0, residual_clip=3.0, epsilon=3.0, delta=1e-5)
    >>> optimizer.l2_norm_clip
    5.0
    """

    mechanism_name = "GEP"

    def __init__(
        self,
        optimizer="sgd",
        *,
        public_data=None,
        public_labels=RANDOM,
        num_classes: int | None = None,
        num_bases: int = 1000,
        num_groups: int | None = None,
        groups: Sequence[Sequence[str]] | None = None,
        power_iterations: int = 1,
        embedding_clip: float = 5.0,
        residual_clip: float = 2.0,
        residual: bool = True,
        refresh_every: int = 1,
        **kwargs,
    ):
        _check_arguments(kwargs, num_groups, groups)
        for name, value in (("num_bases", num_bases), ("power_iterations", power_iterations)):
            _validate.integer_at_least(1, **{name: value})
        _validate.integer_at_least(1, refresh_every=refresh_every)
        if num_classes is not None:
            _validate.integer_at_least(2, num_classes=num_classes)
        check_clip(kwargs.get("noise_multiplier"), embedding_clip=embedding_clip)
        check_clip(kwargs.get("noise_multiplier"), residual_clip=residual_clip)
        clips = (embedding_clip, residual_clip) if residual else (embedding_clip,)
        super().__init__(optimizer, l2_norm_clip=math.hypot(*clips), **kwargs)
        self.embedding_clip, self.residual_clip = float(embedding_clip), float(residual_clip)
        self.residual = bool(residual)
        self.num_classes, self.num_bases = num_classes, num_bases
        self.num_groups = num_groups
        self.groups = None if groups is None else [list(parts) for parts in groups]
        self.power_iterations, self.refresh_every = power_iterations, refresh_every
        self.public_data: PublicData | None = None
        if not residual:
            self.mechanism_name = "B-GEP"
        if public_data is not None:
            self.set_public_data(public_data, public_labels)

    def set_public_data(self, public_data, public_labels=RANDOM) -> None:
        """Sets or replaces the public examples, from the next training run on.

        Args:
            public_data: see the class.
            public_labels: see the class.
        """
        found = PublicData.of(public_data, public_labels)
        if found.labels is None and self.num_classes is None:
            raise ValueError(
                "Expected num_classes, from which random labels are drawn. Received: None with "
                "public_labels='random'. Pass num_classes=..., or the labels themselves."
            )
        self.public_data = found

    def block_clips(self, num_blocks: int) -> tuple[float, ...]:
        return (self.embedding_clip, self.residual_clip)[:num_blocks]

    def release_space(self, parameters, normal):
        if self.public_data is None:
            raise ValueError(
                "Expected public data, from which the basis is found. Received: none; they are not "
                "saved with an optimizer. Call model.optimizer.set_public_data(x_public)."
            )
        groups = anchor_groups(parameters, self.num_groups, self.groups)
        sizes = [size_of(parameters, group) for group in groups]
        return AnchorSpace(
            parameters,
            groups,
            num_bases=allocated_bases(sizes, self.num_bases, self.public_data.num_rows),
            anchors=self._anchors(parameters, normal),
            normal=normal,
            power_iterations=self.power_iterations,
            residual=self.residual,
            refresh_every=self.refresh_every,
        )

    def _anchors(self, parameters: Sequence[Parameter], normal) -> Callable[[], list[Anchor]]:
        """Gradients of the public examples, scaled as the private ones are."""
        data, public_gradients = self.public_data, self.public_gradients
        scales = scales_of(parameters, self.gradient_scale)
        with tf.init_scope():
            features = tf.nest.map_structure(tf.constant, data.features)
            if data.labels is not None:
                labels = tf.nest.map_structure(tf.constant, data.labels)

        def anchors() -> list[Anchor]:
            if public_gradients is None:
                raise ValueError(
                    "Expected an optimizer in a training run, which knows the model's loss. "
                    "Received: one that no run was started with. Call model.fit first."
                )
            if data.labels is None:
                drawn = random_labels(normal, data.num_rows, self.num_classes)
                found = public_gradients(features, drawn, self.num_classes)
            else:
                found = public_gradients(features, labels)
            return [
                (*anchor[:-1], anchor[-1] * scale)
                for anchor, scale in zip(found, scales, strict=True)
            ]

        return anchors

    def get_config(self) -> dict:
        own = {
            "num_classes": self.num_classes,
            "num_bases": self.num_bases,
            "num_groups": self.num_groups,
            "groups": None if self.groups is None else [list(parts) for parts in self.groups],
            "power_iterations": self.power_iterations,
            "embedding_clip": self.embedding_clip,
            "residual_clip": self.residual_clip,
            "residual": self.residual,
            "refresh_every": self.refresh_every,
        }
        config = super().get_config()
        del config["l2_norm_clip"]
        return {**config, **own}


def _check_arguments(kwargs: dict, num_groups, groups) -> None:
    if "l2_norm_clip" in kwargs:
        raise ValueError(
            "Expected embedding_clip and residual_clip, no l2_norm_clip. Received: l2_norm_clip="
            f"{kwargs['l2_norm_clip']!r}. GEP clips two parts apart: leave it out."
        )
    if kwargs.get("clipping", "flat") != "flat":
        raise ValueError(
            f"Expected clipping='flat'. Received: clipping={kwargs['clipping']!r}. Embedding and "
            "residual are the blocks of GEP, clipped apart: leave it out."
        )
    if num_groups is not None:
        _validate.integer_at_least(1, num_groups=num_groups)
        if groups is not None:
            raise ValueError("Expected num_groups or groups. Received: both. Pass one of them.")
    if groups is not None and (
        isinstance(groups, str)
        or any(isinstance(parts, str) for parts in groups)
        or not all(isinstance(part, str) for parts in groups for part in parts)
    ):
        raise _validate.error(
            "to be a list of lists of strings", "Pass parts of variable paths.", groups=groups
        )

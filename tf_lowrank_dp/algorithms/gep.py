"""Gradient embedding perturbation (Yu et al., ICLR 2021)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

import tensorflow as tf

from tf_lowrank_dp import _validate
from tf_lowrank_dp.algorithms.algorithm import Algorithm
from tf_lowrank_dp.algorithms.context import ReleaseContext
from tf_lowrank_dp.release.anchor import AnchorSpace
from tf_lowrank_dp.release.anchor_groups import allocated_bases, anchor_groups, size_of
from tf_lowrank_dp.release.held_basis import Anchor
from tf_lowrank_dp.release.public_data import PublicData, random_labels
from tf_lowrank_dp.release.space import ReleaseSpace


@dataclasses.dataclass(frozen=True)
class GEP(Algorithm):
    """Releases each gradient's coordinates in a subspace of public gradients, and its residual.

    Attributes:
        num_classes: number of classes of random labels.
        num_bases: number of basis vectors of all groups together.
        num_groups: number of groups of contiguous variables, see `anchor_groups`.
        groups: instead, for each group, parts of the paths of its variables.
        power_iterations: how often a basis is refined; 1 in the paper.
        embedding_clip: `S1`, largest norm of an example's embedding.
        residual_clip: `S2`, largest norm of an example's residual; without meaning for B-GEP.
        residual: whether the residual is released; B-GEP is without.
        refresh_every: number of steps for which a basis is kept.
        public_data: public examples; None until they are known.
    """

    num_classes: int | None = None
    num_bases: int = 1000
    num_groups: int | None = None
    groups: Sequence[Sequence[str]] | None = None
    power_iterations: int = 1
    embedding_clip: float = 5.0
    residual_clip: float = 2.0
    residual: bool = True
    refresh_every: int = 1
    public_data: PublicData | None = None

    def __post_init__(self) -> None:
        for name in ("num_bases", "power_iterations", "refresh_every"):
            _validate.integer_at_least(1, **{name: getattr(self, name)})
        if self.num_classes is not None:
            _validate.integer_at_least(2, num_classes=self.num_classes)
        for name in ("embedding_clip", "residual_clip"):
            clip = _validate.clip_norm(**{name: getattr(self, name)})
            object.__setattr__(self, name, clip)
        object.__setattr__(self, "residual", bool(self.residual))
        _check_groups(self.num_groups, self.groups)
        if self.groups is not None:
            object.__setattr__(self, "groups", tuple(tuple(parts) for parts in self.groups))
        if self.public_data is not None and self.public_data.labels is None:
            if self.num_classes is None:
                raise ValueError(
                    "Expected num_classes, from which random labels are drawn. Received: None "
                    "with public_labels='random'. Pass num_classes=..., or the labels themselves."
                )

    @property
    def name(self) -> str:
        return "GEP" if self.residual else "B-GEP"

    @property
    def l2_norm_clip(self) -> float:
        """Largest norm of all that is released of an example."""
        return math.hypot(*self._clips)

    @property
    def _clips(self) -> tuple[float, ...]:
        return (self.embedding_clip, self.residual_clip)[: 1 + self.residual]

    def block_clips(self, l2_norm_clip: float | None, num_blocks: int) -> tuple[float, ...]:
        return self._clips

    def release_space(self, context: ReleaseContext) -> ReleaseSpace:
        if self.public_data is None:
            raise ValueError(
                "Expected public data, from which the basis is found. Received: none; they are not "
                "saved with an optimizer. Call model.optimizer.set_public_data(x_public)."
            )
        groups = anchor_groups(context.parameters, self.num_groups, self.groups)
        sizes = [size_of(context.parameters, group) for group in groups]
        return AnchorSpace(
            context.parameters,
            groups,
            num_bases=allocated_bases(sizes, self.num_bases, self.public_data.num_rows),
            anchors=self._anchors(context),
            normal=context.normal,
            power_iterations=self.power_iterations,
            residual=self.residual,
            refresh_every=self.refresh_every,
        )

    def _anchors(self, context: ReleaseContext) -> Callable[[], list[Anchor]] | None:
        """Gradients of the public examples at the present weights, where the loss is known."""
        data, gradients = self.public_data, context.public_gradients
        assert data is not None
        if gradients is None:
            return None
        with tf.init_scope():
            features = tf.nest.map_structure(tf.constant, data.features)
            if data.labels is not None:
                labels = tf.nest.map_structure(tf.constant, data.labels)

        def anchors() -> list[Anchor]:
            if data.labels is not None:
                return gradients(features, labels)
            assert self.num_classes is not None
            drawn = random_labels(context.normal, data.num_rows, self.num_classes)
            return gradients(features, drawn, self.num_classes)

        return anchors


def _check_groups(num_groups: int | None, groups: Sequence[Sequence[str]] | None) -> None:
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

"""What GEP's anchor subspace misses of a batch's gradients (GEP, Section 3.2, Figures 4, 5, 7)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import keras
import numpy as np
import tensorflow as tf

from tf_lowrank_dp._types import Nested
from tf_lowrank_dp.algorithms.gep import GEP
from tf_lowrank_dp.diagnostics.batch_gradients import (
    per_example_gradients,
    unchanged_random_state,
    whole_batch,
)
from tf_lowrank_dp.diagnostics.stable_rank import stable_rank
from tf_lowrank_dp.layers.parameters import describe_parameters
from tf_lowrank_dp.mechanism.noise import NoiseGenerator
from tf_lowrank_dp.optimizers.base import DPOptimizer
from tf_lowrank_dp.per_example.materialized import Materialized
from tf_lowrank_dp.release.anchor import AnchorSpace, Basis
from tf_lowrank_dp.release.scaled import scales_of
from tf_lowrank_dp.training.public_gradients import public_gradients
from tf_lowrank_dp.training.train_step import private_optimizer

ALL = "all"
"""The key of the figures of all groups together."""


@dataclasses.dataclass(frozen=True)
class AnchorResidual:
    """How much of a group's gradients is outside of the subspace that GEP finds for it.

    With `G (n, p)` the per-example gradients, `B (k, p)` the basis and `R = G - G B^T B`:

    Attributes:
        num_bases: directions of the basis: those that the public gradients have, at most `k`.
        projection_error: `|sum_i R_i| / |sum_i G_i|` (GEP, Figure 4): what B-GEP loses; NaN where
            the gradient is zero.
        gradient_stable_rank: `|G|_F^2 / |G|_2^2` (GEP, Figure 5).
        residual_stable_rank: `|R|_F^2 / |R|_2^2`: large where there is nothing left to project.
        clipped_embeddings: fraction of the examples with `|B g_i|` above `embedding_clip`.
        clipped_residuals: fraction of the examples with `|r_i|` above `residual_clip`; what is
            clipped are the norms over all groups, "all".
    """

    num_bases: int
    projection_error: float
    gradient_stable_rank: float
    residual_stable_rank: float
    clipped_embeddings: float
    clipped_residuals: float


def anchor_residuals(
    model: keras.Model,
    x: Nested,
    y: Nested = None,
    sample_weight: Nested = None,
    *,
    random_basis: bool = False,
    seed: int = 0,
) -> dict[str, AnchorResidual]:
    """What the subspace of a model's `GEPOptimizer` misses of the gradients of one batch.

    A basis is found from the optimizer's public data at the present weights, with random numbers of
    its own: training goes on as if nobody had looked.  `gradient_scale` applies, as in training.

    Not private: these figures are taken from the plain gradients of `x`.  Pass other public data.
    All per-example gradients of the batch are formed, `(n, p)` in float64.

    Args:
        model: built and compiled with a `GEPOptimizer` that has public data.
        x: inputs of one batch, as for `fit`.
        y: its targets.
        sample_weight: its weights.
        random_basis: takes random orthonormal directions, as many as the public data give, instead:
            the ablation of Figure 7.
        seed: of the random start, the random public labels and the random directions.

    Returns:
        By group, the paths of its variables joined by ", "; and "all" for the whole model, whose
        basis is that of all groups.

    Raises:
        NotPrivateError: the model has no private optimizer.
        ValueError: it is no `GEPOptimizer`, or has no public data.

    Example:

    >>> import keras, numpy as np, tf_lowrank_dp as tfdp
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, name="d")])
    >>> model.compile(tfdp.GEPOptimizer(
    ...     "sgd", public_data=np.eye(8, 4), public_labels=np.ones((8, 2)), num_bases=3,
    ...     noise_multiplier=1.0), loss="mse")
    >>> found = tfdp.diagnostics.anchor_residuals(model, np.eye(8, 4), np.ones((8, 2)))
    >>> found["all"].num_bases, 0.0 <= found["all"].projection_error <= 1.0
    (3, True)
    """
    optimizer = private_optimizer(model)
    if not isinstance(optimizer.algorithm, GEP):
        raise ValueError(
            "Expected a model compiled with a GEPOptimizer, whose subspace is looked at. Received: "
            f"{type(optimizer).__name__}. Compile with one; for RGP see projection_residual."
        )
    batch = whole_batch(x, y, sample_weight)
    generator = np.random.default_rng(seed)
    space = _space(model, optimizer, batch.get("y"), seed)
    with unchanged_random_state(model):
        bases = space.new_bases()
    scales = scales_of(space.parameters, optimizer.gradient_scale)
    gradients = [
        Materialized(scale * gradient.materialize())
        for gradient, scale in zip(per_example_gradients(model, batch), scales, strict=True)
    ]
    clips = optimizer.algorithm.embedding_clip, optimizer.algorithm.residual_clip
    found, every = {}, []
    for group, size, basis in zip(space.groups, space.num_bases, bases, strict=True):
        own = [gradients[index] for index in group]
        values = _rows([gradient.materialize() for gradient in own])
        directions = _directions(basis, size)
        if random_basis:
            normal = generator.normal(size=(values.shape[1], directions))
            rows = np.linalg.qr(normal)[0].T
            residuals = values - (values @ rows.T) @ rows
        else:
            residuals = np.float64(basis.project(own)[1].materialize())
        name = ", ".join(space.parameters[index].path for index in group)
        every.append((directions, values, residuals))
        found[name] = _figures(*every[-1], clips)
    counts, all_values, all_residuals = zip(*every, strict=True)
    found[ALL] = _figures(sum(counts), np.hstack(all_values), np.hstack(all_residuals), clips)
    return found


def _space(model: keras.Model, optimizer: DPOptimizer, y: Nested, seed: int) -> AnchorSpace:
    """The optimizer's space, with random numbers and public gradients of its own."""
    spec = None
    if isinstance(y, tf.Tensor):
        spec = tf.TensorSpec([None, *y.shape[1:]], y.dtype)
    context = optimizer.release_context(
        describe_parameters(model),
        NoiseGenerator(seed).normal,
        public_gradients(model, target_spec=spec),
        optimizer.algorithm_state.copy(),
    )
    space = optimizer.algorithm.release_space(context)
    assert isinstance(space, AnchorSpace)
    return space


def _directions(basis: Basis, size: int) -> int:
    """Rows of `B` that are not zero: `|B^T e_i|` is 1 or 0."""
    lengths = [float(tf.norm(basis.lift(unit))) for unit in tf.eye(size)]
    return sum(length > 0.5 for length in lengths)


def _rows(tensors: Sequence[tf.Tensor]) -> np.ndarray:
    return np.hstack([np.float64(t).reshape(len(t), -1) for t in tensors])


def _figures(
    directions: int, values: np.ndarray, residuals: np.ndarray, clips: tuple[float, float]
) -> AnchorResidual:
    norm = np.linalg.norm(values.sum(axis=0))
    error = np.linalg.norm(residuals.sum(axis=0)) / norm if norm > 0 else math.nan
    outside = np.linalg.norm(residuals, axis=1)
    inside = np.linalg.norm(values - residuals, axis=1)
    clipped = [np.mean(n > clip) for n, clip in zip((inside, outside), clips, strict=True)]
    ranks = stable_rank(values), stable_rank(residuals)
    return AnchorResidual(directions, float(error), *ranks, *map(float, clipped))

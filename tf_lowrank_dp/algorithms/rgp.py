"""Reparametrized gradient perturbation (Yu et al., ICML 2021)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence

import tensorflow as tf

from tf_lowrank_dp import _validate
from tf_lowrank_dp.algorithms.algorithm import Algorithm
from tf_lowrank_dp.algorithms.context import ReleaseContext
from tf_lowrank_dp.algorithms.matrices import freeze_parts, ranks_of
from tf_lowrank_dp.release.low_rank import CARRIERS, LowRankSpace

CARRIERS_FROM = ("history", "weights", "random")
INITIAL = "initial_weights_"
"""Name of `W_0` in the state, before the position of the variable."""


@dataclasses.dataclass(frozen=True)
class RGP(Algorithm):
    """Releases the gradients of two carriers `L (m, rank)` and `R (rank, n)` for each matrix.

    Attributes:
        rank: of the carriers, at most the smaller side of the matrix.
        power_iterations: how often carriers are refined; 1 is enough (RGP, Section 3.3).
        carriers_from: whose leading subspace the carriers span: "history", the update `W_t - W_0`
            since the start of private training (after `warmup_steps`, before them `W_t`);
            "weights", always `W_t`; "random", random orthonormal carriers (RGP-random).
        warmup_steps: number of steps for which "history" uses `W_t`, because the history is noise
            at first.  With 0 the first carriers are random.
        carriers: "both", or only the gradient of the "left" or "right" one is released.
        include: parts of variable paths, see `ranks_of`.
        exclude: parts of variable paths, see `ranks_of`.
    """

    rank: int = 8
    power_iterations: int = 1
    carriers_from: str = "history"
    warmup_steps: int = 100
    carriers: str = "both"
    include: Sequence[str] = ()
    exclude: Sequence[str] = ()

    name = "RGP"

    def __post_init__(self) -> None:
        _validate.integer_at_least(1, rank=self.rank)
        _validate.integer_at_least(1, power_iterations=self.power_iterations)
        _validate.one_of(CARRIERS_FROM, carriers_from=self.carriers_from)
        _validate.integer_at_least(0, warmup_steps=self.warmup_steps)
        _validate.one_of(CARRIERS, carriers=self.carriers)
        freeze_parts(self, "include", "exclude")

    def release_space(self, context: ReleaseContext) -> LowRankSpace:
        ranks = ranks_of(context.parameters, self.rank, self.include, self.exclude)
        return LowRankSpace(
            context.parameters,
            context.groups,
            ranks=ranks,
            source=self._source(context, ranks),
            normal=context.normal,
            power_iterations=self.power_iterations,
            carriers=self.carriers,
        )

    def _source(
        self, context: ReleaseContext, positions: Iterable[int]
    ) -> Callable[[int], tf.Tensor] | None:
        """The matrix whose subspace is followed, by position; None for random carriers."""
        parameters = context.parameters
        if self.carriers_from == "random":
            return None
        if self.carriers_from == "weights":
            return lambda index: parameters[index].matrix()
        context.state.keep_first(INITIAL, {index: parameters[index] for index in positions})

        def history(index: int) -> tf.Tensor:
            warm = context.step() >= self.warmup_steps
            initial = parameters[index].matrix_view.to_matrix(context.state[f"{INITIAL}{index}"])
            return parameters[index].matrix() - tf.where(warm, initial, 0.0)

        return history

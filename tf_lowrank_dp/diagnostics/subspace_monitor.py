"""Watches, over training, how low-rank gradients are and whether the past predicts them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from tf_lowrank_dp import _validate
from tf_lowrank_dp._types import Nested
from tf_lowrank_dp.diagnostics.batch_gradients import (
    chosen_matrices,
    gradient_matrices,
    whole_batch,
)
from tf_lowrank_dp.diagnostics.periodic import PeriodicCallback
from tf_lowrank_dp.diagnostics.projection_residual import (
    historical_projection_residual,
    self_projection_residual,
)
from tf_lowrank_dp.diagnostics.release_summary import release_summary
from tf_lowrank_dp.diagnostics.stable_rank import stable_rank
from tf_lowrank_dp.optimizers.base import DPOptimizer

HISTORIES = ("updates", "gradients")


@dataclasses.dataclass
class SubspaceHistory:
    """What a `SubspaceMonitor` recorded: lists by variable path, one entry for each of `steps`.

    Not private where the monitor's data are private.

    Attributes:
        rank: of the subspaces.
        steps: number of updates of the weights before each record.
        stable_rank: of the gradients (RGP, Figure 2).
        historical_residual: see `historical_projection_residual` (RGP, Equation 5).
        self_residual: see `self_projection_residual` (RGP, Equation 6).
        released: number of coordinates that a step releases, see `ReleaseSummary`; NaN where the
            optimizer was not private.
        noise: energy of the noise in a step's gradients over `(z C)^2`, see `ReleaseSummary`; NaN
            where the optimizer was not private.
    """

    rank: int
    steps: list[int] = dataclasses.field(default_factory=list)
    stable_rank: dict[str, list[float]] = dataclasses.field(default_factory=dict)
    historical_residual: dict[str, list[float]] = dataclasses.field(default_factory=dict)
    self_residual: dict[str, list[float]] = dataclasses.field(default_factory=dict)
    released: list[float] = dataclasses.field(default_factory=list)
    noise: list[float] = dataclasses.field(default_factory=list)


class SubspaceMonitor(PeriodicCallback):
    """Records stable ranks and projection residuals of a fixed batch's gradients (RGP, Section 4).

    Of a private optimizer it records as well how much a step releases, and how much noise it adds.

    The data are those given here, never those of `fit`.  Pass public or synthetic data, on which
    the figures are free.  Not private: what is recorded is neither clipped nor noised.  Figures of
    private data depend on them, no budget accounts for that, and neither the figures nor a choice
    that follows from them (of a rank, say) is covered by the model's guarantee.

    A record is made before the first step, then as `every` says.  Training is the same with and
    without the monitor.  The records are in `history`, in no log.  A monitor watches one model.

    Args:
        x: inputs of one batch, as for `fit`; the paper's has 500 examples.
        y: its targets.
        sample_weight: its weights.
        rank: of the subspaces; 8 in the paper's Figure 3.
        every: number of steps between two records; None for the end of each epoch.
        include: parts of variable paths, to watch these matrices only; None for all kernels.
        history: what the historical subspace is taken from: "updates", the update `W_t - W_0` since
            the first record, which RGP follows; or "gradients", the gradient of the record
            before, as in the paper's Figure 3.  The first record has no past and its residual
            is 1.

    Example:

    >>> import keras, numpy as np
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, name="d")])
    >>> model.compile("sgd", loss="mse")
    >>> x, y = np.eye(8, 4), np.ones((8, 2))
    >>> monitor = SubspaceMonitor(x, y, rank=1)
    >>> history = model.fit(x, y, batch_size=4, epochs=2, verbose=0, callbacks=[monitor])
    >>> monitor.history.steps
    [0, 2, 4]
    >>> [len(ranks) for ranks in monitor.history.stable_rank.values()]
    [3]
    """

    def __init__(
        self,
        x: Nested,
        y: Nested = None,
        *,
        sample_weight: Nested = None,
        rank: int = 8,
        every: int | None = None,
        include: Sequence[str] | None = None,
        history: str = "updates",
    ):
        super().__init__(every)
        _validate.integer_at_least(1, rank=rank)
        _validate.one_of(HISTORIES, history=history)
        self.rank, self.include = rank, include
        self.history = SubspaceHistory(rank)
        self._history_from = history
        self._batch = whole_batch(x, y, sample_weight)
        self._past: dict[str, np.ndarray] = {}

    @property
    def recorded_steps(self) -> list[int]:
        return self.history.steps

    def record(self) -> None:
        """Records now; custom training loops call it after `set_model(model)`."""
        gradients = gradient_matrices(self.model, self._batch, self.include)
        weights = self._weights() if self._history_from == "updates" else {}
        released = noise = math.nan
        if isinstance(getattr(self.model, "optimizer", None), DPOptimizer):
            summary = release_summary(self.model)
            released, noise = summary.released, summary.lifted
        history = self.history
        history.steps.append(self.step())
        history.released.append(released)
        history.noise.append(noise)
        for path, gradient in gradients.items():
            if self._history_from == "updates":
                past = weights[path] - self._past.setdefault(path, weights[path])
            else:
                past = self._past.get(path, np.zeros_like(gradient))
                self._past[path] = gradient
            found = {
                "stable_rank": stable_rank(gradient),
                "historical_residual": historical_projection_residual(gradient, past, self.rank),
                "self_residual": self_projection_residual(gradient, self.rank),
            }
            for name, value in found.items():
                getattr(history, name).setdefault(path, []).append(value)

    def _weights(self) -> dict[str, np.ndarray]:
        chosen = chosen_matrices(self.model, self.include)
        return {path: parameter.matrix().numpy() for path, (_, parameter) in chosen.items()}

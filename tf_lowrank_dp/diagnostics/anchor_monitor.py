"""Watches, over training, what GEP's anchor subspace misses."""

from __future__ import annotations

import dataclasses

from tf_lowrank_dp._types import Nested
from tf_lowrank_dp.diagnostics.anchor_residual import AnchorResidual, anchor_residuals
from tf_lowrank_dp.diagnostics.periodic import PeriodicCallback


@dataclasses.dataclass
class AnchorHistory:
    """What an `AnchorMonitor` recorded; not private where its data are private.

    Attributes:
        steps: number of updates of the weights before each record.
        residuals: what `anchor_residuals` found, for each of `steps`.
    """

    steps: list[int] = dataclasses.field(default_factory=list)
    residuals: list[dict[str, AnchorResidual]] = dataclasses.field(default_factory=list)


class AnchorMonitor(PeriodicCallback):
    """Records projection errors and stable ranks of a fixed batch (GEP, Figures 4, 5 and 7).

    The data are those given here, never those of `fit`.  Pass public data, on which the figures are
    free.  Not private: what is recorded is neither clipped nor noised.

    A record is made before the first step, then as `every` says.  Training is the same with and
    without the monitor.  The records are in `history`, in no log.  A monitor watches one model.

    Args:
        x: inputs of one batch, as for `fit`.
        y: its targets.
        sample_weight: its weights.
        every: number of steps between two records; None for the end of each epoch.
        random_basis: see `anchor_residuals`.

    Example:

    >>> import keras, numpy as np, tf_lowrank_dp as tfdp
    >>> x, y = np.eye(8, 4), np.ones((8, 2))
    >>> model = tfdp.make_private(
    ...     keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, name="d")]))
    >>> model.compile(tfdp.GEPOptimizer(
    ...     "sgd", public_data=x + 1, public_labels=y, num_bases=3, noise_multiplier=1.0),
    ...     loss="mse")
    >>> monitor = tfdp.diagnostics.AnchorMonitor(x, y)
    >>> history = model.fit(x, y, batch_size=4, epochs=2, verbose=0, callbacks=[monitor])
    >>> monitor.history.steps
    [0, 2, 4]
    """

    def __init__(
        self,
        x: Nested,
        y: Nested = None,
        *,
        sample_weight: Nested = None,
        every: int | None = None,
        random_basis: bool = False,
    ):
        super().__init__(every)
        self.random_basis = random_basis
        self.history = AnchorHistory()
        self._batch = (x, y, sample_weight)

    @property
    def recorded_steps(self) -> list[int]:
        return self.history.steps

    def record(self) -> None:
        """Records now; custom training loops call it after `set_model(model)`."""
        found = anchor_residuals(self.model, *self._batch, random_basis=self.random_basis)
        self.history.steps.append(self.step())
        self.history.residuals.append(found)

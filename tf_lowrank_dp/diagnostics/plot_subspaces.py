"""Figures 2 and 3 of the RGP paper, for one's own model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tf_lowrank_dp._figure import new_figure
from tf_lowrank_dp.diagnostics.subspace_monitor import SubspaceHistory

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot_subspaces(history: SubspaceHistory, include: Sequence[str] | None = None) -> Figure:
    """Draws stable ranks (RGP, Figure 2) and projection residuals (RGP, Figure 3) over steps.

    On the left one line for each matrix; beside it two in the same colour: solid for the
    historical residual, dashed for the self residual.  Where they are close, the past
    predicts the subspace of the gradient.  Of a private optimizer a third picture has the number of
    coordinates that a step releases and the energy of its noise, which change where a method
    changes its carriers or begins to freeze.

    Not private where the monitor's data are private.

    Args:
        history: of a `SubspaceMonitor`.
        include: parts of variable paths, to draw these matrices only; None for all.

    Returns:
        A matplotlib figure; save it with `figure.savefig("subspaces.png")`.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: nothing was recorded, or `include` matches nothing.

    Example:

    >>> history = SubspaceHistory(
    ...     rank=8, steps=[0, 10], stable_rank={"d/kernel": [1.5, 1.2]},
    ...     historical_residual={"d/kernel": [1.0, 0.3]}, self_residual={"d/kernel": [0.2, 0.1]})
    >>> figure = plot_subspaces(history)
    >>> [len(axes.lines) for axes in figure.axes]
    [1, 2]
    """
    include = [include] if isinstance(include, str) else include
    paths = [
        path
        for path in history.stable_rank
        if include is None or any(part in path for part in include)
    ]
    if not paths:
        raise ValueError(
            "Expected a history with at least one record of the matrices asked for. Received: "
            f"include={include!r}, among {list(history.stable_rank)}. Pass `monitor.history` after "
            "training, and correct `include`."
        )
    is_private = any(math.isfinite(number) for number in history.released)
    figure = new_figure(16.0 if is_private else 11.0, 4.0)
    ranks, residuals, *release = figure.subplots(1, 3 if is_private else 2)
    for number, path in enumerate(paths):
        colour = f"C{number % 10}"
        ranks.plot(history.steps, history.stable_rank[path], color=colour, label=path)
        residuals.plot(
            history.steps, history.historical_residual[path], color=colour, label=f"{path}, history"
        )
        residuals.plot(
            history.steps, history.self_residual[path], "--", color=colour, label=f"{path}, self"
        )
    ranks.set(xlabel="step", ylabel="stable rank of the gradient", ylim=(0.0, None))
    residuals.set(
        xlabel="step", ylabel=f"projection residual, rank {history.rank}", ylim=(0.0, 1.05)
    )
    for axes in release:
        axes.plot(history.steps, history.released, label="coordinates released")
        axes.plot(history.steps, history.noise, "--", label="noise in the gradients / (z C)^2")
        axes.set(xlabel="step", ylabel="of one step", ylim=(0.0, None))
    for axes in (ranks, residuals, *release):
        axes.legend(fontsize="small")
    return figure

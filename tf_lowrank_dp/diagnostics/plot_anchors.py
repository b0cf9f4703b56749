"""Figures 4, 5 and 7 of the GEP paper, for one's own model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tf_lowrank_dp._figure import new_figure
from tf_lowrank_dp.diagnostics.anchor_monitor import AnchorHistory
from tf_lowrank_dp.diagnostics.anchor_residual import ALL

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot_anchors(histories: Mapping[str, AnchorHistory], group: str = ALL) -> Figure:
    """Draws projection errors (GEP, Figures 4 and 7) and stable ranks (GEP, Figure 5) over steps.

    On the left one line for each history; on the right two in the same colour: solid for the
    gradients, dashed for their residuals.

    Not private where the monitors' data are private.

    Args:
        histories: of `AnchorMonitor`s, by the name in the legend: "public gradients" and "random
            basis", say.
        group: which group of variables; "all" for the whole model.

    Returns:
        A matplotlib figure; save it with `figure.savefig("anchors.png")`.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: nothing was recorded, or there is no such group.

    Example:

    >>> from tf_lowrank_dp.diagnostics import AnchorHistory, AnchorResidual
    >>> residual = AnchorResidual(
    ...     num_bases=3, projection_error=0.4, gradient_stable_rank=1.5, residual_stable_rank=6.0,
    ...     clipped_embeddings=0.9, clipped_residuals=0.7)
    >>> history = AnchorHistory(steps=[0, 10], residuals=[{"all": residual}, {"all": residual}])
    >>> figure = plot_anchors({"public gradients": history})
    >>> [len(axes.lines) for axes in figure.axes]
    [1, 2]
    """
    figure = new_figure(11.0, 4.0)
    errors, ranks = figure.subplots(1, 2)
    for number, (name, history) in enumerate(histories.items()):
        colour, records = f"C{number % 10}", _of_group(name, history, group)
        errors.plot(history.steps, [r.projection_error for r in records], color=colour, label=name)
        for style, what, values in (
            ("-", "gradients", [r.gradient_stable_rank for r in records]),
            ("--", "residuals", [r.residual_stable_rank for r in records]),
        ):
            ranks.plot(history.steps, values, style, color=colour, label=f"{name}, {what}")
    errors.set(xlabel="step", ylabel="projection error", ylim=(0.0, 1.05))
    ranks.set(xlabel="step", ylabel="stable rank", yscale="log")
    for axes in (errors, ranks):
        axes.legend(fontsize="small")
    return figure


def _of_group(name: str, history: AnchorHistory, group: str) -> list:
    if not history.steps or any(group not in found for found in history.residuals):
        raise ValueError(
            "Expected histories with at least one record of the group asked for. Received: "
            f"group={group!r}, and {name!r} with {len(history.steps)} records of "
            f"{sorted({key for found in history.residuals for key in found})}. Pass "
            "`monitor.history` after training, and correct `group`."
        )
    return [found[group] for found in history.residuals]

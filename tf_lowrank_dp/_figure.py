"""Figures, where matplotlib is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of this size in inches, of no interactive window.

    Raises:
        ImportError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            "Expected matplotlib, which draws the figure. Received: it is not installed. "
            "Install it: pip install matplotlib."
        ) from error
    return Figure(figsize=(width, height), layout="constrained")

"""Epsilon over the steps of a model's training."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from tf_lowrank_dp._figure import new_figure
from tf_lowrank_dp.accounting import epsilon_curve
from tf_lowrank_dp.optimizers.base import DPOptimizer
from tf_lowrank_dp.training.report import accountant_of, delta_of
from tf_lowrank_dp.training.state import ledger_of

if TYPE_CHECKING:
    import keras
    from matplotlib.figure import Figure


def plot_privacy(model: keras.Model, delta: float | None = None) -> Figure:
    """Draws epsilon over all steps that the model depends on, and the optimizer's target.

    Runs follow each other; a dotted line is where the next one begins.  What is drawn is public.

    Args:
        model: any Keras model, trained or not.
        delta: the delta of the guarantee; the optimizer's if None.

    Returns:
        A matplotlib figure; save it with `figure.savefig("privacy.png")`.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: no delta is known.

    Example:

    >>> import keras, tf_lowrank_dp as tfdp
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    >>> figure = tfdp.plot_privacy(tfdp.make_private(model), delta=1e-5)
    >>> figure.axes[0].get_xlabel()
    'step'
    """
    ledger, delta = ledger_of(model), delta_of(model, delta)
    curve = epsilon_curve(ledger, delta, accountant=accountant_of(model))
    figure = new_figure(6.0, 3.5)
    axes = figure.subplots()
    spent = "spent, prior spend unknown" if ledger.prior_spend_unknown else "spent"
    axes.plot(*zip(*curve, strict=True), label=spent)
    optimizer = getattr(model, "optimizer", None)
    if isinstance(optimizer, DPOptimizer) and optimizer.epsilon is not None:
        target = optimizer.epsilon
        axes.axhline(target, color="C3", linestyle="--", label=f"target {target:g}")
    *begins, end = accumulate((entry.steps for entry in ledger.entries), initial=0)
    for begin in sorted({*begins} - {0, end}):  # entries of no steps name adapted layers
        axes.axvline(begin, color="grey", linestyle=":")
    axes.set(xlabel="step", ylabel=f"epsilon at delta = {delta:g}", ylim=(0.0, None))
    axes.legend()
    return figure

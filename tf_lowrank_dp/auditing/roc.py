"""The trade-off of an attack that calls high scores members."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from scipy import integrate

from tf_lowrank_dp import _validate
from tf_lowrank_dp._figure import new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclasses.dataclass(frozen=True)
class RocCurve:
    """The receiver operating characteristic of a score: members above a threshold are found.

    Attributes:
        thresholds: float64 `(k,)`, falling, from infinity (nobody is called a member) to the
            lowest score (everybody is). A record is called a member if `score >= threshold`.
        true_positive_rates: float64 `(k,)`, the fraction of members called so.
        false_positive_rates: float64 `(k,)`, the fraction of the others called so.

    Example:

    >>> roc = RocCurve.of([3.0, 2.0, 1.0], [2.5, 0.0, 0.0])
    >>> round(roc.auc, 3)
    0.778
    >>> round(roc.true_positive_rate_at(0.0), 3)
    0.333
    """

    thresholds: np.ndarray
    true_positive_rates: np.ndarray
    false_positive_rates: np.ndarray

    @classmethod
    def of(cls, member_scores: npt.ArrayLike, non_member_scores: npt.ArrayLike) -> RocCurve:
        """The curve of these scores, one-dimensional arrays; ties are called together."""
        members = as_scores(member_scores=member_scores)
        others = as_scores(non_member_scores=non_member_scores)
        thresholds = np.append(np.inf, np.unique(np.concatenate([members, others]))[::-1])
        return cls(
            thresholds,
            counts_above(members, thresholds) / len(members),
            counts_above(others, thresholds) / len(others),
        )

    @property
    def auc(self) -> float:
        """Area under the curve: the probability that a member scores above a non-member.

        Ties count one half; 0.5 is an attack that knows nothing.
        """
        return float(integrate.trapezoid(self.true_positive_rates, self.false_positive_rates))

    def true_positive_rate_at(self, false_positive_rate: float) -> float:
        """The largest true positive rate of a threshold with at most this false positive rate.

        Low rates say more than the accuracy: a few members recognised with certainty are a leak
        that averages hide (Carlini et al., 2022).

        Args:
            false_positive_rate: in [0, 1).
        """
        _validate.fraction(false_positive_rate=false_positive_rate)
        return float(self.true_positive_rates[self.false_positive_rates <= false_positive_rate][-1])

    def plot(self) -> Figure:
        """Draws the curve, with linear and with logarithmic axes.

        Returns:
            A matplotlib figure; save it with `figure.savefig("roc.png")`.

        Raises:
            ImportError: matplotlib is not installed.
        """
        figure = new_figure(9.0, 4.0)
        least = min(1e-3, *(rates[rates > 0].min() for rates in self._rates()))
        for axes, scale in zip(figure.subplots(1, 2), ("linear", "log"), strict=True):
            chance = np.geomspace(least, 1.0) if scale == "log" else (0.0, 1.0)
            axes.plot(chance, chance, color="0.7", linestyle="--", label="guessing")
            axes.step(
                self.false_positive_rates,
                self.true_positive_rates,
                where="post",
                label=f"attack, AUC {self.auc:.3f}",
            )
            axes.set(xscale=scale, yscale=scale)
            axes.set(xlabel="false positive rate", ylabel="true positive rate")
        axes.set(xlim=(least, 1.0), ylim=(least, 1.0))
        axes.legend()
        return figure

    def _rates(self) -> tuple[np.ndarray, np.ndarray]:
        return self.true_positive_rates, self.false_positive_rates


def as_scores(**named: npt.ArrayLike) -> np.ndarray:
    """Returns the named one-dimensional, non-empty array as float64.

    Raises:
        ValueError: it is of another shape, empty, or holds a NaN.
    """
    [(name, value)] = named.items()
    scores = np.asarray(value, np.float64)
    if scores.ndim != 1 or not scores.size or np.isnan(scores).any():
        raise ValueError(
            f"Expected {name} to be a non-empty array of shape (n,) without NaN. Received: shape "
            f"{scores.shape} with {int(np.isnan(scores).sum())} NaN. Pass one number per example."
        )
    return scores


def counts_above(scores: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """The number of scores at or above each threshold."""
    return len(scores) - np.searchsorted(np.sort(scores), thresholds, side="left")

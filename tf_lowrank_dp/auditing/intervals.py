"""Confidence bounds of a probability from counts (Clopper and Pearson, 1934)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy import stats


def lower_bound(successes: npt.ArrayLike, trials: int, confidence: float) -> np.ndarray:
    """The probability of success is at least this, at the given confidence.

    Exact in the sense of Clopper and Pearson: the probability that the bound lies above the truth
    is at most `1 - confidence`, for every truth and every number of trials.

    Args:
        successes: number of successes, an integer or an array of them.
        trials: number of independent trials, at least 1.
        confidence: in (0, 1), of this one-sided bound.

    Returns:
        float64, of the shape of `successes`.

    Example:

    >>> float(lower_bound(0, 10, 0.95))
    0.0
    >>> round(float(lower_bound(10, 10, 0.95)), 4)  # 0.05 ** (1 / 10)
    0.7411
    """
    successes = np.asarray(successes)
    found = stats.beta.ppf(1.0 - confidence, np.maximum(successes, 1), trials - successes + 1)
    return np.where(successes > 0, found, 0.0)


def upper_bound(successes: npt.ArrayLike, trials: int, confidence: float) -> np.ndarray:
    """The probability of success is at most this, at the given confidence.

    Args:
        successes, trials, confidence: see `lower_bound`.

    Example:

    >>> round(float(upper_bound(0, 10, 0.95)), 4)
    0.2589
    """
    return 1.0 - lower_bound(trials - np.asarray(successes), trials, confidence)

"""Where a function that falls, or rises, crosses a target, in few evaluations."""

from __future__ import annotations

import math
from collections.abc import Callable

_LARGEST_MOVE = math.log(8.0)
_FLATTEST = -0.01  # slope of what hardly falls
_TRIES = 3  # evaluations in which the bracket has to shrink to a half


def smallest(
    epsilon_at: Callable[[float], float],
    target: float,
    *,
    start: float,
    slope: float,
    lowest: float,
    highest: float,
    tolerance: float,
) -> tuple[float, float] | None:
    """A number at which epsilon is at most the target, within a tolerance of the smallest one.

    It goes where the straight line through the nearest points, in logarithms, crosses the target,
    and half a tolerance to either side of it.  Where that does not close in, it halves.

    Args:
        epsilon_at: falls, or stays, as its argument grows; infinity is allowed.
        target: above 0.
        start: where to begin; the closer, the faster.
        slope: expected slope there in logarithms, below 0.
        lowest: the least number to return.
        highest: the largest one.
        tolerance: relative.

    Returns:
        A number in `[lowest, highest]` that was evaluated, and the slope there; None if none fits.

    Example:

    >>> found = smallest(
    ...     lambda x: 1 / x, 0.5, start=1.0, slope=-1.0, lowest=0.1, highest=9.0, tolerance=1e-6
    ... )
    >>> round(found[0], 3), round(found[1], 3)
    (2.0, -1.0)
    """
    ends, goal = (math.log(lowest), math.log(highest)), math.log(target)
    low: tuple[float, float] | None = None  # the largest that does not fit, and its excess
    high: tuple[float, float] | None = None  # the smallest that fits, and its excess
    at, reach, width, tries = math.log(start), 1.0, math.inf, 0
    while True:
        excess = _log(epsilon_at(math.exp(at))) - goal
        if excess > 0:
            low = at, excess
        else:
            high = at, excess
        if low is None or high is None:
            if at == ends[excess > 0]:
                return None if excess > 0 else (math.exp(at), slope)
            move = min(reach * abs(excess / slope) + tolerance / 2, _LARGEST_MOVE)
            at = max(ends[0], min(at + math.copysign(move, excess), ends[1]))
            reach *= 2
            continue
        is_line = math.isfinite(low[1]) and math.isfinite(high[1])
        if is_line:
            slope = min((high[1] - low[1]) / (high[0] - low[0]), _FLATTEST)
        if high[0] - low[0] <= tolerance:
            return math.exp(high[0]), slope
        tries += 1
        if high[0] - low[0] <= width / 2:
            tries, width = 0, high[0] - low[0]
        at = (low[0] + high[0]) / 2
        if is_line and tries < _TRIES:
            nearest = min(low, high, key=lambda point: abs(point[1]))
            crossing = nearest[0] - nearest[1] / slope
            side = 0.45 if high[0] - crossing > tolerance / 2 else -0.45
            margin = 0.1 * tolerance
            at = max(low[0] + margin, min(crossing + side * tolerance, high[0] - margin))


def largest(
    fits: Callable[[int], bool], *, least: int, start: int, first_step: float, limit: int
) -> int:
    """The largest number in `[least, limit]` that fits, where larger ones do not.

    Args:
        fits: True up to some number, False above it.
        least: a number that fits.
        start: where to begin; the closer, the faster.
        first_step: relative size of the first step away from there.
        limit: the most to return.

    Example:

    >>> largest(lambda steps: steps <= 70, least=0, start=60, first_step=0.01, limit=100)
    70
    """
    low, high = least, limit + 1
    value, gap = min(max(start, least + 1), limit), max(math.ceil(first_step * start), 1)
    while low < value < high:
        if fits(value):
            low, value = value, min(value + gap, limit)
        else:
            high, value = value, max(value - gap, 0)
        gap *= 2
    while high - low > 1:
        middle = (low + high) // 2
        if fits(middle):
            low = middle
        else:
            high = middle
    return low


def _log(value: float) -> float:
    return -math.inf if value <= 0 else math.log(value)

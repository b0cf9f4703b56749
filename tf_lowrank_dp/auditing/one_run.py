"""A lower bound on epsilon from one training run (Steinke, Nasr and Jagielski, 2023)."""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt
from scipy import special, stats

from tf_lowrank_dp import _validate
from tf_lowrank_dp.auditing.roc import RocCurve, as_scores

_PRECISION = 1e-6


@dataclasses.dataclass(frozen=True)
class OneRunAudit:
    """What one training run shows about its privacy.

    Attributes:
        epsilon: lower bound on epsilon at `delta`; 0 if nothing was shown.
        delta: of the privacy guarantee that is tested.
        confidence: probability that the bound holds.
        num_canaries: number of canaries.
        guesses: how many were guessed to be in, and how many to be out.
        num_correct: number of correct guesses.
        roc: the curve of the scores, with included canaries on the positive side.
    """

    epsilon: float
    delta: float
    confidence: float
    num_canaries: int
    guesses: tuple[int, int]
    num_correct: int
    roc: RocCurve

    def __str__(self) -> str:
        return (
            f"One-run audit: epsilon >= {self.epsilon:.3f} at delta={self.delta:g} "
            f"({self.confidence:.0%} confidence), {self.num_correct} of {sum(self.guesses)} "
            f"guesses correct, {self.num_canaries} canaries"
        )


def one_run_audit(
    scores: npt.ArrayLike,
    included: npt.ArrayLike,
    *,
    delta: float,
    guesses: tuple[int, int] | None = None,
    confidence: float = 0.95,
) -> OneRunAudit:
    """Bounds epsilon from below with many canaries in one training run.

    Each canary was included by a fair coin (`Canaries.draw`).  Those with the highest scores are
    guessed to be in, those with the lowest to be out, and the others are not guessed.

    Formal guarantee: if the training is (epsilon, delta)-differentially private for adding or
    removing one example, the bound is above epsilon with probability at most `1 - confidence`
    over the coins and the training.  It rests on `one_run_p_value`, and on these assumptions:
    the coins are fair and independent; scores depend on them only through what the training
    released; `guesses` were chosen without looking at `included`.  The canaries may be any
    examples, and the scores may use everything released, such as the weights after every step.

    One bound has this confidence.  Who computes several from one run, say with several scores, and
    reports the largest, has to divide `1 - confidence` among them.

    Args:
        scores: `(m,)`, higher for canaries that seem to have been trained on, such as
            `-per_example_losses(...)` or `update_scores(...)`.
        included: bool `(m,)`, the coins.
        delta: of the guarantee that is tested, in [0, 1).
        guesses: how many to guess in, and how many out. None tries to guess all, a half, a
            quarter and so on, as many in as out; `1 - confidence` is divided among these trials.
        confidence: in (0, 1).

    Raises:
        ValueError: arrays of different lengths, more guesses than canaries, or a value out of its
            range.

    Example:

    >>> import numpy as np
    >>> included = np.random.default_rng(0).integers(0, 2, 1000).astype(bool)
    >>> print(one_run_audit(1.0 * included, included, delta=1e-5, guesses=(300, 300)))
    One-run audit: epsilon >= 5.270 at delta=1e-05 (95% confidence), 600 of 600 guesses correct, \
1000 canaries
    """
    scores = as_scores(scores=scores)
    included = np.asarray(included).astype(bool)
    if included.shape != scores.shape:
        raise ValueError(
            "Expected one score for each canary. Received: scores of shape "
            f"{scores.shape}, included of shape {included.shape}. Score excluded canaries as well."
        )
    _validate.fraction(remedy="Pass that of the guarantee, such as 1e-5.", delta=delta)
    _validate.below_one(remedy="Pass a confidence such as 0.95.", confidence=confidence)
    trials = _halves(len(scores)) if guesses is None else [_checked(guesses, len(scores))]
    each = 1.0 - (1.0 - confidence) / len(trials)
    # Equal scores in an order of their own: that of a list may tell who was included.
    order = np.lexsort((np.random.default_rng(0).permutation(len(scores)), -scores))

    def correct(num_in: int, num_out: int) -> int:
        lowest = order[len(order) - num_out :]
        return int(included[order[:num_in]].sum() + (~included[lowest]).sum())

    counts = [correct(*trial) for trial in trials]
    bounds = [
        one_run_epsilon(len(scores), sum(trial), count, delta=delta, confidence=each)
        for trial, count in zip(trials, counts, strict=True)
    ]
    best = int(np.argmax(bounds))
    return OneRunAudit(
        epsilon=bounds[best],
        delta=float(delta),
        confidence=float(confidence),
        num_canaries=len(scores),
        guesses=trials[best],
        num_correct=counts[best],
        roc=RocCurve.of(scores[included], scores[~included]),
    )


def one_run_p_value(
    num_canaries: int, num_guesses: int, num_correct: int, *, epsilon: float, delta: float
) -> float:
    """Largest probability of that many correct guesses under (epsilon, delta)-DP.

    The main theorem of Steinke, Nasr and Jagielski (2023, Section 5): let `m` fair coins decide
    independently which of `m` examples a mechanism gets, let the mechanism be (epsilon, delta)-DP
    for adding or removing one of them, and let `r` of the coins be guessed from its output.  Then

        P[at least v guesses are correct] <= P[W >= v] + 2 m delta max_i P[v > W >= v - i] / i

    where `W` is binomial with `r` trials and probability `e^epsilon / (1 + e^epsilon)`, that of
    randomised response, and `i` runs from 1 to `m`.

    Args:
        num_canaries: `m`.
        num_guesses: `r`, at most `m`.
        num_correct: `v`, at most `r`.
        epsilon: at least 0.
        delta: in [0, 1).

    Returns:
        The right-hand side, at most 1.

    Example:

    >>> one_run_p_value(10, 4, 4, epsilon=0.0, delta=0.0)  # four fair coins
    0.0625
    """
    probability = special.expit(epsilon)
    tail = stats.binom.sf(num_correct - 1, num_guesses, probability)
    if not delta or not num_correct:
        return float(tail)
    # Beyond i = v the probability stays the same and only the divisor grows.
    i = np.arange(1, num_correct + 1)
    below = stats.binom.sf(num_correct - i - 1, num_guesses, probability) - tail
    return float(min(1.0, tail + 2.0 * num_canaries * delta * np.max(below / i)))


def one_run_epsilon(
    num_canaries: int, num_guesses: int, num_correct: int, *, delta: float, confidence: float
) -> float:
    """The largest epsilon that so many correct guesses refute; 0 if they refute none.

    Args:
        num_canaries: see `one_run_p_value`.
        num_guesses: see `one_run_p_value`.
        num_correct: see `one_run_p_value`.
        delta: in [0, 1).
        confidence: in (0, 1); an epsilon is refuted if its p-value is at most `1 - confidence`.

    Example:

    >>> import math
    >>> found = one_run_epsilon(100, 60, 60, delta=0.0, confidence=0.95)
    >>> math.isclose(found, -math.log(0.05 ** (-1 / 60) - 1), abs_tol=1e-5)
    True
    """

    def is_refuted(epsilon: float) -> bool:
        p_value = one_run_p_value(
            num_canaries, num_guesses, num_correct, epsilon=epsilon, delta=delta
        )
        return p_value <= 1.0 - confidence

    if not is_refuted(0.0):
        return 0.0
    refuted, possible = 0.0, 1.0
    while is_refuted(possible):
        refuted, possible = possible, 2.0 * possible
    while possible - refuted > _PRECISION:
        middle = (refuted + possible) / 2.0
        refuted, possible = (middle, possible) if is_refuted(middle) else (refuted, middle)
    return refuted


def _halves(num_canaries: int) -> list[tuple[int, int]]:
    """As many in as out: all canaries, a half, a quarter and so on, at least eight of each."""
    counts = [num_canaries // 2]
    while counts[-1] >= 16:
        counts.append(counts[-1] // 2)
    return [(count, count) for count in counts]


def _checked(guesses: tuple[int, int], num_canaries: int) -> tuple[int, int]:
    num_in, num_out = (_validate.integer_at_least(0, guesses=number) for number in guesses)
    if not 0 < num_in + num_out <= num_canaries:
        raise _validate.error(
            f"to be at least 1 and at most {num_canaries} guesses, one for each canary",
            "Pass how many to guess in, and how many out.",
            guesses=guesses,
        )
    return num_in, num_out

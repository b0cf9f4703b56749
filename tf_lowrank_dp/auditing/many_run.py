"""A lower bound on epsilon from many training runs with and without a canary."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy import optimize, special

from tf_lowrank_dp import _validate
from tf_lowrank_dp.auditing.intervals import lower_bound, upper_bound
from tf_lowrank_dp.auditing.roc import RocCurve, as_scores, counts_above


@dataclasses.dataclass(frozen=True)
class ManyRunAudit:
    """What runs with and without a canary show about the privacy of training.

    Attributes:
        epsilon: lower bound on epsilon at `delta`; 0 if nothing was shown.
        delta: of the privacy guarantee that is tested.
        confidence: probability that the bound holds.
        threshold: runs that score at least this are guessed to have had the canary.
        true_positive_rate: lower bound on the probability of this guess with the canary.
        false_positive_rate: upper bound on its probability without.
        num_measured: number of runs with, and without, that these were measured on.
        roc: the curve of all scores, runs with the canary on the positive side.
    """

    epsilon: float
    delta: float
    confidence: float
    threshold: float
    true_positive_rate: float
    false_positive_rate: float
    num_measured: tuple[int, int]
    roc: RocCurve

    def __str__(self) -> str:
        return (
            f"Many-run audit: epsilon >= {self.epsilon:.3f} at delta={self.delta:g} "
            f"({self.confidence:.0%} confidence), true positive rate at least "
            f"{self.true_positive_rate:.1%}, false positive rate at most "
            f"{self.false_positive_rate:.1%}, measured on {self.num_measured[0]} runs with and "
            f"{self.num_measured[1]} without the canary"
        )


def many_run_audit(
    scores_with: npt.ArrayLike,
    scores_without: npt.ArrayLike,
    *,
    delta: float,
    confidence: float = 0.95,
    threshold: float | None = None,
    assume_gaussian: bool = False,
    seed: int | None = None,
) -> ManyRunAudit:
    """Bounds epsilon from below with independent trainings on two neighbouring data sets.

    Under (epsilon, delta)-differential privacy no test tells the two apart better than
    `TPR <= e^epsilon FPR + delta` and `1 - FPR <= e^epsilon (1 - TPR) + delta` (Kairouz et al.,
    2015).  A threshold on the score is such a test; its rates are bounded by Clopper and Pearson
    (Nasr et al., 2021).

    Formal guarantee: if training is (epsilon, delta)-differentially private, the bound is above
    epsilon with probability at most `1 - confidence`.  The runs must be independent, and the
    score a function of what was released that does not depend on the scores of measured runs.

    The largest bound that `n` runs of a kind can show is about `log(n / 4)`: no canary is found
    more certainly than that.

    Args:
        scores_with: scores of runs on data with the canary, `(n,)`, higher where the canary
            seems to have been trained on.
        scores_without: scores of runs on the same data without it, `(m,)`.
        delta: of the guarantee that is tested, in [0, 1).
        confidence: in (0, 1).
        threshold: if it was chosen beforehand; None chooses it with one half of the runs and
            measures with the other half.
        assume_gaussian: whether to assume that training as a whole is mu-GDP, and bound mu (Nasr
            et al., 2023).  This shows larger epsilons with the same runs, but only under the
            assumption, which holds for steps that use all examples and for none that are
            sampled.
        seed: of the random division, to repeat a result.

    Raises:
        ValueError: fewer than two runs of a kind, a NaN, or a value out of range.

    Example:

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> without, included = rng.normal(0, 1, 1000), rng.normal(4, 1, 1000)
    >>> result = many_run_audit(included, without, delta=1e-5, threshold=2.0)
    >>> 3.0 < result.epsilon < 4.0
    True
    """
    scores = [as_scores(scores_with=scores_with), as_scores(scores_without=scores_without)]
    _validate.fraction(remedy="Pass that of the guarantee, such as 1e-5.", delta=delta)
    _validate.below_one(remedy="Pass a confidence such as 0.95.", confidence=confidence)
    measured = scores
    if threshold is None:
        if min(map(len, scores)) < 2:
            raise ValueError(
                "Expected at least two runs with and two without the canary, or a threshold. "
                f"Received: {len(scores[0])} and {len(scores[1])} runs. Train more often."
            )
        generator = np.random.default_rng(seed)
        halves = [np.array_split(generator.permutation(part), 2) for part in scores]
        thresholds = RocCurve.of(*(half[0] for half in halves)).thresholds
        measured = [half[1] for half in halves]
        rates = _bounded_rates([half[0] for half in halves], thresholds, confidence)
        strengths = _mus(*rates) if assume_gaussian else _epsilons(*rates, delta)
        threshold = thresholds[np.argmax(strengths)]
    rates = _bounded_rates(measured, np.array([threshold]), confidence)
    if assume_gaussian:
        [mu] = _mus(*rates)
        epsilon = _epsilon_of(mu, delta)
    else:
        [epsilon] = _epsilons(*rates, delta)
    return ManyRunAudit(
        epsilon=float(epsilon),
        delta=float(delta),
        confidence=float(confidence),
        threshold=float(threshold),
        true_positive_rate=float(rates[0][0]),
        false_positive_rate=float(rates[1][0]),
        num_measured=(len(measured[0]), len(measured[1])),
        roc=RocCurve.of(*scores),
    )


def _bounded_rates(
    scores: Sequence[np.ndarray], thresholds: np.ndarray, confidence: float
) -> tuple[np.ndarray, np.ndarray]:
    """Lower bounds of true and upper bounds of false positive rates, which hold together."""
    each = (1.0 + confidence) / 2.0
    with_, without = (counts_above(part, thresholds) for part in scores)
    return lower_bound(with_, len(scores[0]), each), upper_bound(without, len(scores[1]), each)


def _epsilons(true_positive: np.ndarray, false_positive: np.ndarray, delta: float) -> np.ndarray:
    """For each pair of rates the epsilon below which they are impossible, at least 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        members = np.log((true_positive - delta) / false_positive)
        others = np.log((1.0 - false_positive - delta) / (1.0 - true_positive))
    return np.fmax(0.0, np.fmax(members, others))


def _mus(true_positive: np.ndarray, false_positive: np.ndarray) -> np.ndarray:
    """For each pair of rates the mu of mu-GDP below which they are impossible, or less than 0."""
    return np.fmax(-np.inf, special.ndtri(true_positive) - special.ndtri(false_positive))


def _epsilon_of(mu: float, delta: float) -> float:
    """The smallest epsilon at which mu-GDP is (epsilon, delta)-DP (Balle and Wang, 2018)."""

    def excess(epsilon: float) -> float:
        below = special.log_ndtr(-mu / 2.0 - epsilon / mu)
        return special.ndtr(mu / 2.0 - epsilon / mu) - np.exp(epsilon + below) - delta

    if mu <= 0.0 or excess(0.0) <= 0.0:
        return 0.0
    if delta == 0.0:
        return np.inf
    return optimize.brentq(excess, 0.0, mu * (mu / 2.0 - special.ndtri(delta)))

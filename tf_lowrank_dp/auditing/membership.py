"""Membership inference by a threshold on the loss (RGP, Section 5.3 and Table 5)."""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

from tf_lowrank_dp import _validate
from tf_lowrank_dp.auditing.intervals import lower_bound, upper_bound
from tf_lowrank_dp.auditing.roc import RocCurve, as_scores


@dataclasses.dataclass(frozen=True)
class MembershipInference:
    """How well a threshold on the loss tells training examples from others.

    Attributes:
        accuracy: fraction of correct answers on the measuring half; 0.5 is guessing.
        interval: Clopper-Pearson interval of the accuracy, two-sided, at `confidence`.
        confidence: of the interval.
        threshold: examples with a loss of at most this are called members.
        num_measured: number of examples that the accuracy was measured on, half of them members.
        roc: the curve of all losses given, with members on the positive side.
    """

    accuracy: float
    interval: tuple[float, float]
    confidence: float
    threshold: float
    num_measured: int
    roc: RocCurve

    def __str__(self) -> str:
        low, high = self.interval
        return (
            f"Membership inference: accuracy {self.accuracy:.1%} ({self.confidence:.0%} interval "
            f"{low:.1%} to {high:.1%}, {self.num_measured} examples), AUC {self.roc.auc:.3f}, "
            f"true positive rate {self.roc.true_positive_rate_at(0.01):.1%} at 1% false positives"
        )


def membership_inference(
    member_losses: npt.ArrayLike,
    non_member_losses: npt.ArrayLike,
    *,
    confidence: float = 0.95,
    seed: int | None = None,
) -> MembershipInference:
    """Attacks a model with the losses of members and of other examples.

    The attack of Sablayrolles et al. (2019) as the RGP paper measures it (Section 5.3, Table 5):
    as many members as non-members, the larger set being subsampled; both are divided evenly and
    at random; one half finds the threshold on the loss with the best accuracy, below which an
    example is called a member, and the other half measures the accuracy of that threshold.

    It is one attack with no knowledge of the canaries' gradients: an accuracy of 50 % does not
    prove privacy, a higher one disproves it.  The two sets must be drawn from one distribution;
    otherwise the attack tells the distributions apart, not the members.

    Args:
        member_losses: losses of training examples, `(n,)`, see `per_example_losses`.
        non_member_losses: losses of examples that were not trained on, `(m,)`.
        confidence: of the interval, in (0, 1).
        seed: of the random division, to repeat a result; None for another one every time.

    Raises:
        ValueError: a NaN, another shape, or fewer than two examples of a kind.

    Example:

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> result = membership_inference(rng.exponential(1, 2000), rng.exponential(2, 2000), seed=0)
    >>> result.interval[0] > 0.5
    True
    """
    _validate.below_one(remedy="Pass a confidence such as 0.95.", confidence=confidence)
    members = -as_scores(member_losses=member_losses)
    others = -as_scores(non_member_losses=non_member_losses)
    half = min(len(members), len(others)) // 2
    if not half:
        raise ValueError(
            "Expected at least two members and two non-members. Received: "
            f"{len(members)} and {len(others)}. Pass more of them, thousands for a narrow interval."
        )
    generator = np.random.default_rng(seed)
    found, measured = zip(
        *(np.split(generator.permutation(scores)[: 2 * half], 2) for scores in (members, others)),
        strict=True,
    )
    roc = RocCurve.of(*found)
    best = np.argmax(roc.true_positive_rates - roc.false_positive_rates)
    threshold = roc.thresholds[best]
    correct = int((measured[0] >= threshold).sum() + (measured[1] < threshold).sum())
    one_sided = (1.0 + confidence) / 2.0
    return MembershipInference(
        accuracy=correct / (2 * half),
        interval=(
            float(lower_bound(correct, 2 * half, one_sided)),
            float(upper_bound(correct, 2 * half, one_sided)),
        ),
        confidence=confidence,
        threshold=float(-threshold),
        num_measured=2 * half,
        roc=RocCurve.of(members, others),
    )

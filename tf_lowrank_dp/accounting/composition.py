"""Epsilon of composed Gaussian mechanisms: the only file that calls an accountant.

Under REPLACE_ONE a sum of clipped vectors moves by up to 2 l2_norm_clip, while a noise multiplier
is standard deviation / l2_norm_clip. What dp_accounting does about it differs by accountant:
`PLDAccountant` doubles the sensitivity itself, also inside a Poisson-sampled Gaussian;
`RdpAccountant` computes a Gaussian as if neighbours were ADD_OR_REMOVE_ONE, whatever it is told, so
the noise multiplier is halved here; and it has no bound for a Poisson-sampled Gaussian under
REPLACE_ONE, which is refused here.
"""

from __future__ import annotations

import functools
import json
import math
from typing import NamedTuple

import dp_accounting
from dp_accounting import dp_event, pld, rdp
from scipy import stats

from tf_lowrank_dp import _validate
from tf_lowrank_dp.accounting.event_text import event_from_dict

ACCOUNTANTS = ("pld", "rdp")

_ADD_OR_REMOVE_ONE = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
_REPLACE_ONE = dp_accounting.NeighboringRelation.REPLACE_ONE

# PLD rounds privacy losses up to multiples of an interval: dp_accounting's default, 1e-4, up to an
# epsilon of about 10, and in proportion to epsilon above, where time and memory would explode.
# Any interval gives an upper bound.  The coarse ones are whole multiples: what is rounded up to
# them is rounded up to the fine one as well, so their bounds are never below that of "pld".
_INTERVAL, _RELATIVE_INTERVAL = 1e-4, 1e-5
_SEARCH_INTERVAL = {"coarse_pld": 2e-4, "coarsest_pld": 2e-3}
_MIXTURE_INTERVAL = 1e-3  # of epsilon: of a mixture each multiple takes a search
_WIDEST_INTERVAL = 100.0  # dp_accounting takes its exponential
_ROUGH_ORDERS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128, 256)
_MEANINGLESS_EPSILON = 1e6


class Mechanism(NamedTuple):
    """`count` Gaussian mechanisms, each on a Poisson sample.

    Attributes:
        sampling_rate: probability that a sample includes an example; 1 means without sampling.
        noise_multiplier: standard deviation / l2_norm_clip, above 0.
        count: number of mechanisms, at least 1.
    """

    sampling_rate: float
    noise_multiplier: float
    count: int  # type: ignore[assignment]  # hides `tuple.count`, which nobody calls


class OtherMechanism(NamedTuple):
    """`count` mechanisms of another kind, for neighbours by adding or removing one example.

    Attributes:
        event: JSON text of an event of dp_accounting.
        count: number of mechanisms, at least 1.
    """

    event: str
    count: int  # type: ignore[assignment]  # hides `tuple.count`, which nobody calls


@functools.lru_cache(maxsize=1024)
def composed_epsilon(
    mechanisms: tuple[Mechanism | OtherMechanism, ...],
    relation: dp_accounting.NeighboringRelation,
    delta: float,
    method: str,
) -> float:
    """Epsilon of all mechanisms together. It depends on the arguments alone and is cached.

    Args:
        mechanisms: what was released, in any order.
        relation: ADD_OR_REMOVE_ONE or REPLACE_ONE.
        delta: in (0, 1).
        method: "pld" or "rdp"; "coarse_pld" and "coarsest_pld", looser bounds, never below that
            of "pld", in a tenth and a fiftieth of its time; "rough", the order of magnitude
            within milliseconds, which is NO bound.

    Returns:
        Epsilon; with PLD infinity above a million. An upper bound with every method but "rough".
        Infinity if there is another mechanism than Gaussians under REPLACE_ONE.

    Raises:
        ValueError: "rdp" for Poisson-sampled mechanisms under REPLACE_ONE, or for an event that
            has no such bound.

    Example:

    >>> relation = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
    >>> epsilon = composed_epsilon((Mechanism(1.0, 4.0, 1),), relation, 1e-5, "pld")
    >>> round(epsilon, 3)
    0.926
    """
    if not mechanisms:
        return 0.0
    gaussians = tuple(m for m in mechanisms if isinstance(m, Mechanism))
    others = [_self_composed(m) for m in mechanisms if isinstance(m, OtherMechanism)]
    if others and relation is _REPLACE_ONE:
        return math.inf
    if method == "rdp" or (method != "rough" and any(map(is_search, others))):
        return _rdp_epsilon(gaussians, others, relation, delta)
    rough = _rough_epsilon(gaussians, others, relation, delta)
    if method == "rough":
        return rough
    if rough > _MEANINGLESS_EPSILON:
        return math.inf
    interval = max(_INTERVAL, _RELATIVE_INTERVAL * rough)
    wide = min(_SEARCH_INTERVAL.get(method, 0.0) * rough, _WIDEST_INTERVAL)
    interval *= max(1, round(wide / interval))
    accountant = pld.PLDAccountant(relation, interval)
    return float(accountant.compose(_event(gaussians, others)).get_epsilon(delta))


def has_search(mechanisms: tuple[Mechanism | OtherMechanism, ...]) -> bool:
    """Whether there is a private search, which is accounted for by RDP whatever was asked for."""
    others = [m for m in mechanisms if isinstance(m, OtherMechanism)]
    return any(is_search(event_from_dict(json.loads(m.event))) for m in others)


def is_search(event: dp_accounting.DpEvent) -> bool:
    """Whether an event is a private search, or one of its parts is."""
    parts = [getattr(event, "event", None), *getattr(event, "events", ())]
    found = any(is_search(part) for part in parts if part is not None)
    return found or isinstance(event, dp_event.RepeatAndSelectDpEvent)


@functools.lru_cache(maxsize=1024)
def group_epsilon(
    mechanisms: tuple[Mechanism | OtherMechanism, ...],
    relation: dp_accounting.NeighboringRelation,
    delta: float,
    size: int,
) -> float:
    """Epsilon for neighbours that differ by up to `size` examples, by PLD (Ganesh 2024).

    A Poisson sample has `i` of them with probability `Binomial(size, rate)(i)`, and then its sum
    moves by at most `i` clips: a mixture of Gaussians with the sensitivities `0, ..., size`.
    Without sampling all of them move it.

    Args:
        mechanisms, relation, delta: as in `composed_epsilon`.
        size: at least 1.

    Raises:
        ValueError: there are other mechanisms than Gaussians, or Poisson samples beside shuffled
            passes: then no such bound is implemented.

    Example:

    >>> relation = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
    >>> round(group_epsilon((Mechanism(1.0, 8.0, 1),), relation, 1e-5, size=2), 3)
    0.926
    """
    if size == 1:
        return composed_epsilon(mechanisms, relation, delta, "pld")
    gaussians = tuple(m for m in mechanisms if isinstance(m, Mechanism))
    sampled = any(mechanism.sampling_rate < 1 for mechanism in gaussians)
    if len(gaussians) < len(mechanisms) or (sampled and relation is _REPLACE_ONE):
        raise _validate.error(
            "to be 1 for a history with other releases than Gaussians, or with both Poisson "
            "samples and shuffled passes",
            "No epsilon of several examples is implemented for it: leave it out.",
            max_examples_per_user=size,
        )
    if not gaussians:
        return 0.0
    together = tuple(
        Mechanism(min(1.0, size * m.sampling_rate), m.noise_multiplier / size, m.count)
        for m in gaussians
    )
    found = _rough_epsilon(together, [], relation, delta)  # far too large where few are sampled
    if found > _MEANINGLESS_EPSILON:
        return math.inf
    interval = math.inf
    while max(_INTERVAL, _MIXTURE_INTERVAL * found) < interval / 2.0:
        interval = max(_INTERVAL, _MIXTURE_INTERVAL * found)
        accountant = pld.PLDAccountant(relation, interval)
        for mechanism in gaussians:
            accountant.compose(_of_group(mechanism, size), mechanism.count)
        found = float(accountant.get_epsilon(delta))
    return found


def _of_group(mechanism: Mechanism, size: int) -> dp_accounting.DpEvent:
    """One mechanism for neighbours by `size` examples that all push in the same direction."""
    rate, noise = mechanism.sampling_rate, mechanism.noise_multiplier
    if rate == 1.0:
        return dp_accounting.GaussianDpEvent(noise / size)
    probabilities = stats.binom.pmf(range(size + 1), size, rate)
    probabilities[-1] = max(0.0, 1.0 - math.fsum(probabilities[:-1]))
    return dp_event.MixtureOfGaussiansDpEvent(
        noise, [float(i) for i in range(size + 1)], [float(p) for p in probabilities]
    )


def _rough_epsilon(
    mechanisms: tuple[Mechanism, ...],
    others: list[dp_accounting.DpEvent],
    relation: dp_accounting.NeighboringRelation,
    delta: float,
) -> float:
    """The order of magnitude: RDP at a few orders, at twice the sensitivity if need be."""
    if relation is _REPLACE_ONE:
        mechanisms = _with_half_noise(mechanisms)
    accountant = rdp.RdpAccountant(_ROUGH_ORDERS, _ADD_OR_REMOVE_ONE)
    known = [event for event in others if accountant.supports(event)]
    return float(accountant.compose(_event(mechanisms, known)).get_epsilon(delta))


def _rdp_epsilon(
    mechanisms: tuple[Mechanism, ...],
    others: list[dp_accounting.DpEvent],
    relation: dp_accounting.NeighboringRelation,
    delta: float,
) -> float:
    """The bound by Renyi differential privacy."""
    if relation is _REPLACE_ONE:
        if any(mechanism.sampling_rate < 1 for mechanism in mechanisms):
            raise _validate.error(
                "to be 'pld' for a history with Poisson sampling and shuffled passes, which is "
                "computed for neighbours by replacing one example",
                "Pass accountant='pld', or set it on the optimizer: no bound by Renyi differential "
                "privacy is implemented.",
                accountant="rdp",
            )
        mechanisms = _with_half_noise(mechanisms)
    accountant = rdp.RdpAccountant(neighboring_relation=_ADD_OR_REMOVE_ONE)
    searched = any(map(is_search, others))
    for event in others:
        if not accountant.supports(event) and searched:
            raise _validate.error(
                "to have a bound by Renyi differential privacy, which a private search needs of "
                "all that is composed with it or was recorded in its trials",
                "Record a bound that has one, such as a GaussianDpEvent or a LaplaceDpEvent.",
                event=event,
            )
        if not accountant.supports(event):
            raise _validate.error(
                f"to be 'pld' for a history with {event}",
                "Pass accountant='pld', or set it on the optimizer: there is no bound by Renyi "
                "differential privacy.",
                accountant="rdp",
            )
    return float(accountant.compose(_event(mechanisms, others)).get_epsilon(delta))


def _with_half_noise(mechanisms: tuple[Mechanism, ...]) -> tuple[Mechanism, ...]:
    """The mechanisms with noise relative to a sensitivity of 2 l2_norm_clip."""
    return tuple(m._replace(noise_multiplier=m.noise_multiplier / 2) for m in mechanisms)


def _event(
    mechanisms: tuple[Mechanism, ...], others: list[dp_accounting.DpEvent]
) -> dp_accounting.DpEvent:
    """The composition of all mechanisms."""
    return dp_accounting.ComposedDpEvent([*map(_self_composed, mechanisms), *others])


def _self_composed(mechanism: Mechanism | OtherMechanism) -> dp_accounting.DpEvent:
    """The event of one group of equal mechanisms."""
    if isinstance(mechanism, OtherMechanism):
        event = event_from_dict(json.loads(mechanism.event))
        return dp_accounting.SelfComposedDpEvent(event, mechanism.count)
    event = dp_accounting.GaussianDpEvent(mechanism.noise_multiplier)
    if mechanism.sampling_rate < 1:
        event = dp_accounting.PoissonSampledDpEvent(mechanism.sampling_rate, event)
    return dp_accounting.SelfComposedDpEvent(event, mechanism.count)

"""Hyperparameters chosen privately: a random number of trials, of which only the best is known."""

from __future__ import annotations

import copy
import dataclasses
import math
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import dp_accounting
import keras
import numpy as np
from dp_accounting import dp_event
from scipy import optimize

from tf_lowrank_dp import _validate
from tf_lowrank_dp.accounting import LedgerEntry, PrivacyLedger, ReleaseEntry
from tf_lowrank_dp.accounting.ledger_entry import Entry, mechanisms_of
from tf_lowrank_dp.accounting.notes import adapted_entry, adapted_in, is_by_user
from tf_lowrank_dp.accounting.statement import reasons_of
from tf_lowrank_dp.errors import UnsupportedModelError
from tf_lowrank_dp.sampling.randomness import secret_generator
from tf_lowrank_dp.spending import SPENDING
from tf_lowrank_dp.training.other_releases import record
from tf_lowrank_dp.training.refused_history import refuse_without_epsilon
from tf_lowrank_dp.training.state import ledger_of, things_of
from tf_lowrank_dp.training.written_beside import tell_what_is_written_beside
from tf_lowrank_dp.workers.join import joined

_NAME = "private search"
_SHAPES = {"geometric": 1.0, "logarithmic": 0.0}
_LEAST_TRIALS = {"geometric": 1.0, "logarithmic": 1.001}


@dataclasses.dataclass(frozen=True)
class BestTrial:
    """What a private search releases.

    Attributes:
        hyperparameters: of the trial with the highest score.
        score: its score.
        weights: of its model, as `model.get_weights` gives them.
        ledger: what the search cost, as one release, and what is to be said of its trials.
    """

    hyperparameters: Any
    score: float
    weights: Sequence[np.ndarray] = dataclasses.field(repr=False)
    ledger: PrivacyLedger = dataclasses.field(repr=False)

    @property
    def event(self) -> dp_accounting.DpEvent:
        """What the search cost."""
        release = self.ledger.entries[0]
        assert isinstance(release, ReleaseEntry)
        return release.event

    def load_into(self, model: keras.Model) -> None:
        """Gives a new model the weights, and its ledger what the search cost.

        Args:
            model: made as that of the trial was, and not trained since.  Compile it with a private
                optimizer before it is saved, which keeps the ledger in the file.

        Raises:
            ValueError: there is no epsilon of the search and what the model depends on already.
        """
        before = model.get_weights()
        model.set_weights(self.weights)
        try:
            record(model, self.ledger)
        except BaseException:  # weights without what they cost
            model.set_weights(before)
            raise
        of_all = zip(model.weights, before, self.weights, strict=True)
        SPENDING.computed([v for v, old, new in of_all if not np.array_equal(old, new)])


class PrivateSearch:
    """Random search of which only the best trial is released (Papernot and Steinke 2022).

    The number of trials is random, so that the best of many costs little more than one: two to
    three times its epsilon, whatever their mean.

    Formal guarantee: what `run` returns is private as its `event` states
    (`dp_accounting.RepeatAndSelectDpEvent`), if all trials have the same distribution and each is
    private with its score as its ledger says.  So hyperparameters are drawn from a space that
    does not depend on the data, and a score on private data is released with noise and recorded
    (`record_release`), or computed on public data.  Nothing else of the search may be known, not
    even how many trials there were: models and files of trials that are kept are not what `run`
    returns.  Models that still exist when it ends get its cost in their ledgers as well.

    Args:
        mean_trials: expected number of trials, at least 1 (1.001 for "logarithmic").
        trials: distribution of their number, "geometric" or "logarithmic", which has more
            searches of a single trial and costs less.

    Raises:
        ValueError: an argument is out of its range.

    Example:

    >>> import keras, tf_lowrank_dp as tfdp
    >>> x, y = np.ones((64, 2), "float32"), np.ones((64, 1), "float32")
    >>> def make():
    ...     return keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    >>> def train(hyperparameters):
    ...     model = tfdp.make_private(make())
    ...     inner = keras.optimizers.SGD(hyperparameters["learning_rate"])
    ...     model.compile(tfdp.DPSGDOptimizer(inner, l2_norm_clip=1.0, noise_multiplier=2.0), "mse")
    ...     model.fit(x, y, batch_size=16, verbose=0)
    ...     return model, -float(np.sum(np.square(model.get_weights()[0])))  # on public data
    >>> best = PrivateSearch(mean_trials=2).run({"learning_rate": [0.1, 0.3]}, train)
    >>> best.load_into(model := make())
    >>> 0.0 < tfdp.privacy_spent(model, delta=1e-3) < 10.0
    True
    """

    def __init__(self, mean_trials: float, trials: str = "geometric"):
        self.mean_trials = _validate.positive(mean_trials=mean_trials)
        self.trials = _validate.one_of(tuple(_SHAPES), trials=trials)
        if self.mean_trials < _LEAST_TRIALS[self.trials]:
            raise _validate.error(
                f"to be at least {_LEAST_TRIALS[self.trials]:g} for '{self.trials}'",
                "Pass the number of trials expected.",
                mean_trials=mean_trials,
            )

    def run(
        self,
        space: Mapping[str, Sequence] | Callable[[np.random.Generator], Any],
        train: Callable[[Any], tuple[keras.Model, float]],
    ) -> BestTrial:
        """Trains with random hyperparameters and returns the best trial.

        Args:
            space: lists of values, drawn alike; or a function that draws hyperparameters with the
                generator it is given, for example by filling KerasTuner's `HyperParameters`.
            train: takes hyperparameters, and returns a privately trained model and its score; NaN
                is below all numbers.

        Raises:
            UnsupportedModelError: there are several workers.
            ValueError: a trial is not private by example with Poisson samples, or has another
                ledger than the first: all have to cost the same.
        """
        if not joined().alone:
            raise UnsupportedModelError(
                f"Expected one process. Received: {joined()!r}, each of which would draw trials of "
                "its own. Search in one process, and train on."
            )
        generator = secret_generator()
        models: list[weakref.ref[keras.Model]] = []
        best: tuple[float, Any, list[np.ndarray]] | None = None
        first: tuple[Entry, ...] = ()
        by_user, adapted = False, set()
        for _ in range(self._number_of_trials(generator)):
            drawn = space(generator) if callable(space) else _drawn(space, generator)
            model, score = train(drawn)
            tell_what_is_written_beside(model)
            models.append(weakref.ref(model))
            score = -math.inf if math.isnan(score) else float(score)
            ledger = ledger_of(model)
            entries = _entries(ledger)
            by_user |= any(map(is_by_user, entries))
            adapted |= {*adapted_in(ledger.entries)}
            if not first:
                first, event = entries, self._event_of(entries)
            if mechanisms_of(entries) != mechanisms_of(first):
                raise ValueError(
                    "Expected trials of one privacy cost. Received: one with another ledger than "
                    "the first. Keep noise multiplier, batch size and steps out of the space, and "
                    "in train neither load another trial nor share its ledger_path; where scores "
                    "are recorded, give each trial a frozen backbone of its own, as what is "
                    "recorded for a model is so for all its layers (keras.models.clone_model)."
                )
            if best is None or score > best[0]:
                best = score, _kept(drawn), model.get_weights()
        assert best is not None  # there is at least one trial
        score, drawn, weights = best
        # One entry: models that share a variable, or load the weights, have paid for one search.
        search = ReleaseEntry(event, _NAME, drawn_by="user" if by_user else "library")
        cost = PrivacyLedger([search, *map(adapted_entry, sorted(adapted))])
        for model in filter(None, (reference() for reference in models)):
            # Not of a frozen public backbone; of a quantised layer the layer knows what it spent.
            touched = [each for each in things_of(model) if SPENDING.ledger([each]).num_steps]
            record(model, cost, touched)
        return BestTrial(drawn, score, weights, cost)

    def _event_of(self, entries: Sequence[Entry]) -> dp_accounting.DpEvent:
        """The search's, of one trial's: refused before others are trained if it has no epsilon."""
        event = dp_event.RepeatAndSelectDpEvent(
            dp_accounting.ComposedDpEvent([_event(entry) for entry in entries]),
            self.mean_trials,
            _SHAPES[self.trials],
        )
        refuse_without_epsilon(PrivacyLedger([ReleaseEntry(event, _NAME)]))
        return event

    def _number_of_trials(self, generator: np.random.Generator) -> int:
        """At least 1, of the distribution that the event names."""
        if self.trials == "geometric":
            return int(generator.geometric(1.0 / self.mean_trials))

        def excess(log_odds: float) -> float:  # of the mean for gamma = exp(-log_odds)
            return np.expm1(log_odds) / log_odds - self.mean_trials

        gamma = np.exp(-optimize.brentq(excess, 1e-9, 2.0 + 3.0 * np.log(self.mean_trials)))
        return int(generator.logseries(1.0 - gamma))


def _drawn(space: Mapping[str, Sequence], generator: np.random.Generator) -> dict[str, Any]:
    return {name: values[int(generator.integers(len(values)))] for name, values in space.items()}


def _kept(drawn: Any) -> Any:
    """A copy of hyperparameters, as a space may fill one object again; not of what has none."""
    try:
        return copy.deepcopy(drawn)
    except Exception:  # such as of a data set, a module or a lock, by whatever these raise
        return copy.copy(drawn) if isinstance(drawn, dict | list) else drawn


def _entries(ledger: PrivacyLedger) -> tuple[Entry, ...]:
    """What was released in a trial, if a search of such trials can be accounted for."""
    entries = tuple(entry for entry in ledger.entries if entry.is_released)
    reasons = reasons_of(ledger) + ("prior spend is unknown",) * ledger.prior_spend_unknown
    if reasons:
        raise ValueError(
            f"Expected trials that are private. Received: one that is not, as {reasons[0]}. Leave "
            "seed out, and begin from public weights."
        )
    for entry in entries:
        of_users = entry.unit == "user"
        of_passes = isinstance(entry, LedgerEntry) and entry.sampling.kind != "poisson"
        if of_users or of_passes or entry.noise_multiplier == 0:
            raise ValueError(
                "Expected trials with privacy of examples, on Poisson samples, with noise. "
                f"Received: {entry}. No epsilon of a search is implemented for it."
            )
    if not entries:
        raise ValueError(
            "Expected a train function that trains privately. Received: a model that nothing was "
            "spent on. Call make_private and fit in it."
        )
    return entries


def _event(entry: Entry) -> dp_accounting.DpEvent:
    if isinstance(entry, LedgerEntry):
        gaussian = dp_accounting.GaussianDpEvent(entry.noise_multiplier)
        return entry.sampling.event(gaussian, entry.steps)
    return dp_accounting.SelfComposedDpEvent(entry.event, entry.steps)

"""What was released about the training data, and the epsilon of all of it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable

import dp_accounting

from tf_lowrank_dp import _validate
from tf_lowrank_dp.accounting import composition, serialization
from tf_lowrank_dp.accounting.ledger_entry import (
    Entry,
    mechanisms_of,
    neighboring_relation,
    units,
)


class PrivacyLedger:
    """The releases that a model depends on. Entries can be added and can grow, nothing else.

    Formal guarantees:
        * No method removes an entry or lowers its steps.
        * `merge` never reports less than either ledger.
        * `epsilon` is an upper bound of the privacy loss of all entries together, adaptive choices
          included, and never falls when steps or entries are added.
        * If any entry with steps is for neighbours by replacing one example, the whole history is
          computed for them.
        * An unknown prior spend stays unknown.

    Args:
        entries: the entries to begin with.
        prior_spend_unknown: whether the model may have been trained on the data in ways that are
            not recorded.

    Example:

    >>> from tf_lowrank_dp.accounting import LedgerEntry, Sampling
    >>> ledger = PrivacyLedger()
    >>> sampling = Sampling.poisson(num_examples=60_000, batch_size=600)
    >>> run = ledger.append(LedgerEntry(sampling, noise_multiplier=1.1))
    >>> ledger.update_steps(run, 100)
    >>> ledger.num_steps
    100
    >>> round(ledger.epsilon(1e-5), 2)
    0.55
    """

    def __init__(self, entries: Iterable[Entry] = (), *, prior_spend_unknown: bool = False) -> None:
        self._entries: dict[str, Entry] = {}
        self._prior_spend_unknown = bool(prior_spend_unknown)
        for entry in entries:
            self.append(entry)

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The entries in the order in which they were added."""
        return tuple(self._entries.values())

    @property
    def num_steps(self) -> int:
        """The number of releases of all entries."""
        return sum(entry.steps for entry in self.entries)

    @property
    def prior_spend_unknown(self) -> bool:
        """Whether there may be releases that are not recorded. Once True, it stays True."""
        return self._prior_spend_unknown

    @property
    def neighboring_relation(self) -> dp_accounting.NeighboringRelation:
        """REPLACE_ONE if any entry with steps needs it, else ADD_OR_REMOVE_ONE."""
        return neighboring_relation(self.entries)

    def append(self, entry: Entry) -> str:
        """Adds an entry and returns its id. An entry that is known keeps the larger steps.

        Args:
            entry: a run, with 0 or more steps.

        Raises:
            ValueError: the ledger holds a different run under the same id.

        Example:

        >>> from tf_lowrank_dp.accounting import LedgerEntry, Sampling
        >>> entry = LedgerEntry(Sampling.poisson(10, 2), noise_multiplier=1.0, entry_id="a")
        >>> PrivacyLedger().append(entry)
        'a'
        """
        known = self._entries.get(entry.entry_id)
        if known is None:
            self._entries[entry.entry_id] = entry
        elif dataclasses.replace(known, steps=entry.steps) == entry:
            self.update_steps(entry.entry_id, entry.steps)
        else:
            raise _validate.error(
                f"to identify one run, here {known}",
                "Give a run with other parameters a new id.",
                entry=entry,
            )
        return entry.entry_id

    def update_steps(self, entry_id: str, steps: int) -> None:
        """Sets the steps of an entry to `steps`, unless it already has more.

        Args:
            entry_id: what `append` returned.
            steps: number of releases of this run so far, in total.

        Raises:
            ValueError: `steps` is no integer of at least 0.
            KeyError: there is no such entry.

        Example:

        >>> from tf_lowrank_dp.accounting import LedgerEntry, Sampling
        >>> entry = LedgerEntry(Sampling.poisson(10, 2), noise_multiplier=1.0, steps=5)
        >>> ledger = PrivacyLedger([entry])
        >>> ledger.update_steps(entry.entry_id, 3)
        >>> ledger.num_steps
        5
        """
        steps = _validate.integer_at_least(0, steps=steps)
        if entry_id not in self._entries:
            raise KeyError(
                f"Expected `entry_id` of an entry of this ledger. Received: entry_id={entry_id!r}. "
                "Call `append` first."
            )
        entry = self._entries[entry_id]
        self._entries[entry_id] = dataclasses.replace(entry, steps=max(entry.steps, steps))

    def mark_prior_spend_unknown(self) -> None:
        """States that there may be releases that are not recorded. It cannot be taken back."""
        self._prior_spend_unknown = True

    def merge(self, other: PrivacyLedger) -> None:
        """Adds what `other` holds: the union of the entries, each with the larger steps.

        Args:
            other: a ledger of the same model, such as one from a checkpoint.

        Raises:
            ValueError: both hold different runs under one id. Nothing is changed then.

        Example:

        >>> from tf_lowrank_dp.accounting import LedgerEntry, Sampling
        >>> ledger, entry = PrivacyLedger(), LedgerEntry(Sampling.poisson(10, 2), 1.0, steps=5)
        >>> ledger.merge(PrivacyLedger([entry]))
        >>> ledger.merge(PrivacyLedger([entry]))
        >>> ledger.num_steps
        5
        """
        merged = PrivacyLedger(self.entries + other.entries)
        self._entries = merged._entries
        self._prior_spend_unknown = self._prior_spend_unknown or other._prior_spend_unknown

    def epsilon(
        self, delta: float, *, accountant: str = "pld", extra: Iterable[Entry] = ()
    ) -> float:
        """An upper bound of epsilon at `delta` of all entries together.

        Args:
            delta: in (0, 1), should be below 1 / number of examples.
            accountant: "pld" (privacy loss distributions, tight, up to seconds) or "rdp" (Renyi
                differential privacy, looser, milliseconds).  Of ten thousand and more equal steps,
                "pld" may be 3 % too small at deltas below 1e-9, by rounding: take "rdp" there.
            extra: planned runs that are counted as well. The steps of one that continues a recorded
                run (the same id) are added to it.

        Returns:
            Epsilon: 0 without any step, infinity if there are steps without noise, steps by example
            and steps by user, or if it exceeds a million. An unknown prior spend is not part of it.

        Raises:
            ValueError: an argument is out of its range, or "rdp" for a history in which Poisson
                sampling and shuffled passes are mixed.

        Example:

        >>> from tf_lowrank_dp.accounting import LedgerEntry, Sampling
        >>> entry = LedgerEntry(Sampling.shuffle(10, 6), noise_multiplier=8.0, steps=6)
        >>> round(PrivacyLedger().epsilon(1e-5, extra=[entry]), 2)
        0.93
        """
        delta = _validate.below_one(delta=delta)
        accountant = _validate.one_of(composition.ACCOUNTANTS, accountant=accountant)
        return self.epsilon_by(accountant, delta, extra)

    def epsilon_of_users(
        self, delta: float, max_examples_per_user: int, extra: Iterable[Entry] = ()
    ) -> float:
        """Epsilon for users with up to so many examples, of steps that were private by example.

        Args:
            delta: as in `epsilon`.
            max_examples_per_user: at least 1, which is `epsilon` itself.
            extra: as in `epsilon`.

        Raises:
            ValueError: steps were private by user already, or there is no such bound, see
                `composition.group_epsilon`.
        """
        delta = _validate.below_one(delta=delta)
        size = _validate.integer_at_least(1, max_examples_per_user=max_examples_per_user)
        entries = self._with(extra)
        if "user" in units(entries):
            raise _validate.error(
                "to be left out for steps that were private by user",
                "They protect users whatever they contributed.",
                max_examples_per_user=size,
            )
        if any(entry.noise_multiplier == 0 for entry in entries):
            return math.inf
        relation = neighboring_relation(entries)
        return composition.group_epsilon(mechanisms_of(entries), relation, delta, size)

    def epsilon_by(self, method: str, delta: float, extra: Iterable[Entry] = ()) -> float:
        """Epsilon by any method of `composed_epsilon`, for searches that need it often.

        Args:
            method: as in `composition.composed_epsilon`. "rough" is no bound.
            delta: as in `epsilon`.
            extra: as in `epsilon`.

        Example:

        >>> PrivacyLedger().epsilon_by("rough", 1e-5)
        0.0
        """
        entries = self._with(extra)
        if any(entry.noise_multiplier == 0 for entry in entries) or len(units(entries)) > 1:
            return math.inf
        mechanisms = mechanisms_of(entries)
        relation = neighboring_relation(entries)
        return composition.composed_epsilon(mechanisms, relation, delta, method)

    def to_json(self) -> str:
        """The ledger as text for `from_json`.

        Example:

        >>> PrivacyLedger.from_json(PrivacyLedger().to_json()) == PrivacyLedger()
        True
        """
        return serialization.dumps(self.entries, self._prior_spend_unknown)

    @classmethod
    def from_json(cls, text: str) -> PrivacyLedger:
        """The ledger that `to_json` wrote.

        Args:
            text: the text.

        Raises:
            ValueError: the text is no ledger, is damaged, or comes from a later version.

        Example:

        >>> PrivacyLedger.from_json("{")
        Traceback (most recent call last):
            ...
        ValueError: Expected the text of a privacy ledger. Received: text that is no JSON. \
Restore it from a backup; without it the prior spend is unknown.
        """
        entries, prior_spend_unknown = serialization.loads(text)
        return cls(entries, prior_spend_unknown=prior_spend_unknown)

    def __eq__(self, other: object) -> bool:
        """Ledgers are equal if they hold the same entries, in any order, and the same flag."""
        if not isinstance(other, PrivacyLedger):
            return NotImplemented
        return (self._entries, self._prior_spend_unknown) == (
            other._entries,
            other._prior_spend_unknown,
        )

    def __repr__(self) -> str:
        unknown = ", prior spend unknown" if self._prior_spend_unknown else ""
        return f"<PrivacyLedger: {len(self._entries)} entries, {self.num_steps} steps{unknown}>"

    def _with(self, extra: Iterable[Entry]) -> tuple[Entry, ...]:
        """The entries with steps, after those of `extra` were added to them."""
        entries = dict(self._entries)
        for entry in extra:
            known = entries.get(entry.entry_id)
            if known is None:
                entries[entry.entry_id] = entry
                continue
            if dataclasses.replace(known, steps=entry.steps) != entry:
                raise _validate.error(
                    f"to continue the run of the same id, {known}",
                    "Give a run with other parameters a new id.",
                    extra=entry,
                )
            entries[entry.entry_id] = dataclasses.replace(entry, steps=known.steps + entry.steps)
        return tuple(entry for entry in entries.values() if entry.is_released)

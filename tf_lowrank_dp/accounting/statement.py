"""The privacy guarantee as text, with what it assumes and what it does not cover."""

from __future__ import annotations

import functools
import math
import textwrap
from collections.abc import Iterable

import dp_accounting

from tf_lowrank_dp import _validate
from tf_lowrank_dp.accounting import composition
from tf_lowrank_dp.accounting.ledger import PrivacyLedger
from tf_lowrank_dp.accounting.ledger_entry import (
    Entry,
    LedgerEntry,
    mechanisms_of,
    neighboring_relation,
    units,
)
from tf_lowrank_dp.accounting.notes import is_adapted, notes_on_batches
from tf_lowrank_dp.accounting.release_entry import ReleaseEntry
from tf_lowrank_dp.accounting.sampling import Sampling

_WIDTH = 100
_MAX_ENTRIES = 8

RELATIONS = {
    dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE: "adding or removing one",
    dp_accounting.NeighboringRelation.REPLACE_ONE: "replacing one",
}
_UNITS = {"example": "example", "user": "user with all examples of theirs"}
ACCOUNTANTS = {
    "pld": "privacy loss distributions (PLD), rounded up",
    "rdp": "Renyi differential privacy (RDP)",
}
_INITIAL_WEIGHTS = (
    "Initial weights are taken as public: values that no step above has made, such as copied "
    "arrays or a file without its ledger, do not depend on the data."
)
_PROTECTS = {
    "example": "It protects single examples, not users who contributed several of them.",
    "user": "It protects users as the data tell them apart, with all examples of each.",
}
_SHARDS = "Several workers drew from rows of their own: no {unit} has rows on two, as was stated."
_ASSUMPTIONS = (
    "Batches were drawn as stated, each row of one example, and the number of {unit}s is public.",
    "{protects}",
    "Not covered: metrics and losses printed during training, and the choice of hyperparameters.",
    "Out of scope: the random generator is not cryptographic, and attacks on floating-point noise.",
)


def statement(
    ledger: PrivacyLedger,
    delta: float,
    *,
    accountant: str = "pld",
    num_examples: int | None = None,
    planned: Iterable[LedgerEntry] | LedgerEntry | None = None,
    not_private_reasons: Iterable[str] = (),
    notes: Iterable[str] = (),
    max_examples_per_user: int | None = None,
) -> str:
    """The privacy guarantee of a ledger as text of at most about 30 lines.

    The same arguments give the same text.

    Args:
        ledger: what was released.
        delta: in (0, 1).
        accountant: "pld" or "rdp".
        num_examples: number of examples; the largest of this and those of the entries counts.
        planned: runs that are not part of the ledger yet; adds a line with epsilon after them.
        notes: sentences on what else the model holds, which epsilon does not include.
        not_private_reasons: sentences that say why the guarantee does not hold, if it does not.
        max_examples_per_user: states what holds for users with up to so many examples, by PLD
            (Ganesh 2024); None for single examples.

    Raises:
        ValueError: an argument is out of its range, or `max_examples_per_user` is given for a
            history that has no such bound.

    Example:

    >>> print(statement(PrivacyLedger(), 1e-5).splitlines()[0])
    Nothing was released: epsilon = 0 at delta = 1e-05, with initial weights taken as public.
    """
    delta = _validate.below_one(delta=delta)
    accountant = _validate.one_of(tuple(ACCOUNTANTS), accountant=accountant)
    planned = _as_tuple(planned)
    if num_examples is not None:
        num_examples = _validate.integer_at_least(1, num_examples=num_examples)
    reasons = (*not_private_reasons, *reasons_of(ledger, planned))
    size = max_examples_per_user
    if size is None:
        epsilon = functools.partial(ledger.epsilon, delta, accountant=accountant)
    else:
        accountant = "pld"
        epsilon = functools.partial(ledger.epsilon_of_users, delta, size)
    spent = epsilon()
    accountant = accountant_used(accountant, [*ledger.entries, *planned])
    lines = [headline(ledger, spent, delta, reasons)]
    if planned:
        after = epsilon(extra=planned)
        lines.append(f"After the planned steps: epsilon = {number_up(after)}.")
    lines += warnings_of(ledger, planned, delta, num_examples, spent, reasons)
    lines += [f"Warning: {note}" for note in notes]
    lines += _entry_lines("Released", ledger.entries)
    lines += _entry_lines("Planned", planned)
    is_guaranteed = not (reasons or ledger.prior_spend_unknown or math.isinf(spent))
    whose = "The guarantee holds for the trained weights" if is_guaranteed else "Epsilon is known"
    lines += [
        f"Neighbouring data sets differ by {neighbours_of([*ledger.entries, *planned], size)}.",
        f"Accountant: {ACCOUNTANTS[accountant]}.",
        f"{whose} under these assumptions:",
        *(f"  - {assumption}" for assumption in assumptions_of(ledger, planned, size)),
    ]
    return "\n".join(_wrapped(line) for line in lines)


def neighbours_of(entries: Iterable[Entry], size: int | None = None) -> str:
    """By what neighbouring data sets differ.

    Args:
        entries: the history.
        size: number of examples of a user, for a guarantee of users; None for that of the steps.
    """
    entries = tuple(entries)
    relation = neighboring_relation(entries)
    whom = _UNITS[unit_of(entries)] if size is None else f"user with at most {size} examples"
    return f"{RELATIONS[relation]} {whom} ({relation.name})"


def accountant_used(accountant: str, entries: Iterable[Entry]) -> str:
    """The accountant by which epsilon is found: searches are accounted for by one alone."""
    return "rdp" if composition.has_search(mechanisms_of(tuple(entries))) else accountant


def reasons_of(ledger: PrivacyLedger, planned: Iterable[Entry] = ()) -> tuple[str, ...]:
    """Why no guarantee holds, as far as the ledger tells."""
    reasons: tuple[str, ...] = ()
    if any(entry.seeded and entry.is_released for entry in ledger.entries):
        reasons += ("sampling or noise follow a given seed",)
    if len(units([*ledger.entries, *planned])) > 1:
        reasons += ("some steps are by user and others by example: no epsilon holds for either",)
    return reasons


def assumptions_of(
    ledger: PrivacyLedger, planned: Iterable[Entry] = (), size: int | None = None
) -> tuple[str, ...]:
    """Under which assumptions the guarantee holds; `size` as in `neighbours_of`."""
    entries = [*ledger.entries, *planned]
    unit = unit_of(entries)
    protects = _PROTECTS[unit]
    if size is not None:
        protects = f"It protects users who contributed at most {size} examples each."
    lines = tuple(line.format(unit=unit, protects=protects) for line in _ASSUMPTIONS)
    if any(isinstance(entry, LedgerEntry) and entry.sampling.shards > 1 for entry in entries):
        lines = (_SHARDS.format(unit=unit), *lines)
    return lines if ledger.prior_spend_unknown else (_INITIAL_WEIGHTS, *lines)


def unit_of(entries: Iterable[Entry]) -> str:
    """What the guarantee of a history is for, "example" or "user"."""
    return max(units(entries), default="example")


def headline(ledger: PrivacyLedger, epsilon: float, delta: float, reasons: tuple[str, ...]) -> str:
    """The first line: the guarantee, or that there is none."""
    if reasons or math.isinf(epsilon):
        return f"NOT PRIVATE: no guarantee can be given (recorded epsilon = {number_up(epsilon)})."
    if ledger.prior_spend_unknown:
        return (
            f"No guarantee for the weights: epsilon = {number_up(epsilon)} at delta = {delta:g} is "
            "of what is recorded alone, with prior spend unknown."
        )
    if not ledger.num_steps:
        return (
            f"Nothing was released: epsilon = 0 at delta = {delta:g}, with initial weights taken "
            "as public."
        )
    return (
        f"({number_up(epsilon)}, {delta:g})-differentially private: "
        f"epsilon = {number_up(epsilon)} at delta = {delta:g}."
    )


def warnings_of(
    ledger: PrivacyLedger,
    planned: tuple[LedgerEntry, ...],
    delta: float,
    num_examples: int | None,
    epsilon: float,
    reasons: tuple[str, ...],
) -> list[str]:
    """What makes the guarantee weaker than it looks, or void."""
    entries = [*ledger.entries, *planned]
    warnings = [f"Not private: {reason}" for reason in reasons]
    without_noise = any(e.noise_multiplier == 0 and e.is_released for e in ledger.entries)
    if without_noise:
        warnings.append("Not private: there are steps without noise, so epsilon is infinite.")
    elif math.isinf(epsilon):
        warnings.append("Not private: at this noise and this delta, epsilon is beyond any use.")
    if any(e.noise_multiplier == 0 and e.is_released for e in planned):
        warnings.append("Warning: planned steps without noise will make epsilon infinite.")
    if ledger.prior_spend_unknown:
        warnings.append(
            "Warning: prior spend unknown. The weights may depend on the data through training "
            "that is not recorded here, which epsilon does not include."
        )
    warnings += notes_on_batches(ledger.entries)
    begun = [entry for entry in entries if entry.is_released] or entries
    sizes = [e.num_examples for e in [*begun, *planned] if e.num_examples is not None]
    if unit_of(entries) == "user" and len(set(sizes)) > 1:
        warnings.append(
            f"Warning: users were told apart in several ways, as {min(sizes)} to {max(sizes)} of "
            "them. The guarantee is for those who are one user in each of these."
        )
    size = max([*sizes, *([] if num_examples is None else [num_examples])], default=None)
    if size is None:
        warnings.append("Note: the number of examples is not known; delta should be below 1 / it.")
    elif delta * size >= 1:
        warnings.append(
            f"Warning: delta = {delta:g} is not below 1 / number of examples = {1 / size:g}, so "
            "that publishing an example at random would satisfy it. Choose a smaller delta."
        )
    return warnings


def _entry_lines(title: str, entries: tuple[Entry, ...]) -> list[str]:
    """A line for each entry, and one for those that are too many to list."""
    entries = tuple(entry for entry in entries if not is_adapted(entry))
    shown = entries[-_MAX_ENTRIES:]
    lines = [_entry_line(entry) for entry in shown]
    if len(entries) > len(shown):
        hidden = entries[: -len(shown)]
        steps = sum(entry.steps for entry in hidden)
        lines.insert(0, f"  - {len(hidden)} earlier entries with {steps} steps")
    return [f"{title}:", *lines] if lines else []


def _entry_line(entry: Entry) -> str:
    """The parameters of one run, or the event of another release."""
    if isinstance(entry, ReleaseEntry):
        times = "" if entry.steps == 1 else f"{entry.steps} times "
        return f"  - {entry.mechanism}: {times}{entry.event}"
    clip = "" if entry.l2_norm_clip is None else f", l2_norm_clip = {entry.l2_norm_clip:g}"
    return (
        f"  - {entry.mechanism}: {entry.steps} steps, noise_multiplier (sigma) = "
        f"{entry.noise_multiplier:g}{clip}, {_sampling_text(entry.sampling)}"
    )


def _sampling_text(sampling: Sampling) -> str:
    """How the batches were drawn."""
    size = f"expected batch size {sampling.batch_size}"
    count, unit = sampling.num_examples, sampling.unit
    examples = "" if count is None else f" of {count} {unit}s"
    if sampling.kind == "poisson":
        return f"Poisson sampling at rate {sampling.sampling_rate:g}, {size}{examples}"
    return (
        f"shuffled passes of {sampling.steps_per_pass} steps without amplification, "
        f"{size}{examples}"
    )


def number_up(epsilon: float) -> str:
    """Epsilon with up to four decimals, rounded up, so that the text promises no more."""
    if math.isinf(epsilon):
        return "infinity"
    return f"{math.ceil(epsilon * 10_000) / 10_000:.4f}"


def _wrapped(line: str) -> str:
    """The line broken at the width of the text; continuations of a list are indented."""
    indent = "    " if line.startswith("  - ") else ""
    return textwrap.fill(line, _WIDTH, subsequent_indent=indent, break_long_words=False)


def _as_tuple(planned: Iterable[LedgerEntry] | LedgerEntry | None) -> tuple[LedgerEntry, ...]:
    """The planned runs, of which there may be one or none."""
    if planned is None:
        return ()
    return (planned,) if isinstance(planned, LedgerEntry) else tuple(planned)

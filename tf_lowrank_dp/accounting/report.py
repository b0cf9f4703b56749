"""What a paper or a model card has to say about privacy, as data, JSON or Markdown."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import math
from collections.abc import Iterable
from typing import Any

from tf_lowrank_dp import _validate
from tf_lowrank_dp.accounting.ledger import PrivacyLedger
from tf_lowrank_dp.accounting.ledger_entry import Entry
from tf_lowrank_dp.accounting.notes import is_adapted
from tf_lowrank_dp.accounting.release_entry import ReleaseEntry
from tf_lowrank_dp.accounting.statement import (
    ACCOUNTANTS,
    accountant_used,
    assumptions_of,
    headline,
    neighbours_of,
    number_up,
    reasons_of,
    unit_of,
    warnings_of,
)

_NOT_STATED = (
    "Not stated. What was chosen by looking at results on the private data is not covered by "
    "epsilon, unless it is among the releases."
)


@dataclasses.dataclass(frozen=True)
class PrivacyReport:
    """All that section 5.3 of "How to DP-fy ML" (Ponomareva et al., 2023) asks to report.

    Attributes:
        guarantee: one sentence.
        epsilon: an upper bound, of what is recorded; `inf` if something was released without noise,
            or with noise or sampling that follow a given seed.
        delta: of the guarantee.
        holds: whether a guarantee can be given: finite epsilon, no seeded noise, no unknown prior
            spend.
        setting: who is trusted.
        unit: whose data are protected.
        neighbours: the relation of data sets that the guarantee compares.
        output: what may be published.
        releases: one dictionary for each run of steps or other release: mechanism, steps, noise
            multiplier (sigma), clip norm, sampling; in the order in which they began.
        accountant: the kind of accounting.
        hyperparameter_search: how hyperparameters were chosen, as the caller says.
        metrics: whether losses and metrics were noised.
        assumptions: what has to hold for the guarantee.
        warnings: what makes it weaker than it looks.
        versions: of the packages that train and account, by name.

    Example:

    >>> report = report_of(PrivacyLedger(), delta=1e-5)
    >>> report.epsilon, report.holds
    (0.0, True)
    """

    guarantee: str
    epsilon: float
    delta: float
    holds: bool
    setting: str
    unit: str
    neighbours: str
    output: str
    releases: tuple[dict[str, Any], ...]
    accountant: str
    hyperparameter_search: str
    metrics: str
    assumptions: tuple[str, ...]
    warnings: tuple[str, ...]
    versions: dict[str, str]

    def to_json(self) -> str:
        """The report as a JSON object whose keys are the attributes.

        Infinite numbers are the text "infinity", which JSON has no number for.

        Example:

        >>> import json
        >>> json.loads(report_of(PrivacyLedger(), delta=1e-5).to_json())["delta"]
        1e-05
        """
        return json.dumps(_finite(dataclasses.asdict(self)), indent=2, allow_nan=False)

    def to_markdown(self) -> str:
        """The report as two Markdown tables: what is guaranteed, and what was released.

        Example:

        >>> print(report_of(PrivacyLedger(), delta=1e-5).to_markdown().splitlines()[0])
        # Privacy report
        """
        facts = {
            "Guarantee": self.guarantee,
            "Epsilon, delta": f"{number_up(self.epsilon)}, {self.delta:g}",
            "Setting": self.setting,
            "Unit of privacy": self.unit,
            "Neighbouring data sets": self.neighbours,
            "Output covered": self.output,
            "Accountant": self.accountant,
            "Hyperparameter search": self.hyperparameter_search,
            "Metrics": self.metrics,
            "Versions": ", ".join(f"{name} {version}" for name, version in self.versions.items()),
        }
        lines = ["# Privacy report", "", *_table(("what", "is"), facts.items())]
        columns = ("mechanism", "steps", "noise multiplier (sigma)", "clip norm", "sampling")
        keys = ("mechanism", "steps", "noise_multiplier", "l2_norm_clip", "sampling")
        rows = ([_cell(release.get(key)) for key in keys] for release in self.releases)
        lines += ["", "## Releases", "", *_table(columns, rows)]
        for title, items in (("Assumptions", self.assumptions), ("Warnings", self.warnings)):
            if items:
                lines += ["", f"## {title}", "", *(f"- {item}" for item in items)]
        return "\n".join(lines) + "\n"


def report_of(
    ledger: PrivacyLedger,
    delta: float,
    *,
    accountant: str = "pld",
    num_examples: int | None = None,
    notes: Iterable[str] = (),
    hyperparameter_search: str | None = None,
) -> PrivacyReport:
    """The report on a ledger.  It says what `statement` says, in parts.

    Args:
        ledger: what was released.
        delta: in (0, 1).
        accountant: "pld" or "rdp".
        num_examples: number of examples; the largest of this and those of the entries counts.
        notes: sentences on what else the model holds, which epsilon does not include.
        hyperparameter_search: how hyperparameters were chosen; None if that is not known.

    Raises:
        ValueError: an argument is out of its range.

    Example:

    >>> from tf_lowrank_dp.accounting import LedgerEntry, Sampling
    >>> entry = LedgerEntry(Sampling.poisson(60_000, 600), 1.1, steps=100, l2_norm_clip=1.0)
    >>> report = report_of(PrivacyLedger([entry]), 1e-6, accountant="rdp")
    >>> report.unit, report.releases[0]["noise_multiplier"]
    ('one example', 1.1)
    """
    delta = _validate.below_one(delta=delta)
    accountant = _validate.one_of(tuple(ACCOUNTANTS), accountant=accountant)
    epsilon, reasons = ledger.epsilon(delta, accountant=accountant), reasons_of(ledger)
    warnings = warnings_of(ledger, (), delta, num_examples, epsilon, reasons)
    return PrivacyReport(
        guarantee=headline(ledger, epsilon, delta, reasons),
        epsilon=math.inf if reasons else epsilon,
        delta=delta,
        holds=not (reasons or ledger.prior_spend_unknown or math.isinf(epsilon)),
        setting="central: whoever trains holds the data and runs the mechanism as stated",
        unit=f"one {unit_of(ledger.entries)}",
        neighbours=neighbours_of(ledger.entries),
        output="all weights, those after each step included, and what is computed from them alone",
        releases=tuple(_release(entry) for entry in ledger.entries if not is_adapted(entry)),
        accountant=ACCOUNTANTS[accountant_used(accountant, ledger.entries)],
        hyperparameter_search=hyperparameter_search or _NOT_STATED,
        metrics=(
            "Losses and metrics on private data, shown during training or by validation, have no "
            "noise and are not private."
        ),
        assumptions=assumptions_of(ledger),
        warnings=(*warnings, *notes),
        versions={name: _version(name) for name in ("tf_lowrank_dp", "dp-accounting")},
    )


def _release(entry: Entry) -> dict[str, Any]:
    """The public facts of an entry of the ledger."""
    if isinstance(entry, ReleaseEntry):
        return {
            "mechanism": f"{entry.mechanism}: {entry.event}",
            "steps": entry.steps,
        }
    sampling = {k: v for k, v in dataclasses.asdict(entry.sampling).items() if v is not None}
    return {
        "mechanism": entry.mechanism,
        "steps": entry.steps,
        "noise_multiplier": entry.noise_multiplier,
        "l2_norm_clip": entry.l2_norm_clip,
        "sampling": sampling,
        "seeded": entry.seeded,
    }


def _table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    """Lines of a Markdown table."""
    columns = tuple(columns)
    lines = [columns, ["---"] * len(columns), *rows]
    return [f"| {' | '.join(str(c).replace('|', chr(92) + '|') for c in line)} |" for line in lines]


def _cell(value: Any) -> str:
    """A value as text in a table."""
    if isinstance(value, dict):
        return ", ".join(f"{name.replace('_', ' ')} {_cell(v)}" for name, v in value.items())
    if isinstance(value, float):
        return f"{value:g}"
    return "" if value is None else str(value)


def _finite(value: Any) -> Any:
    """The value with infinite numbers as text."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return "infinity" if value == math.inf else value


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"

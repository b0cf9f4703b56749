"""Epsilon beside the privacy statement of TensorFlow Privacy.

python -m benchmarks.faults.tensorflow_privacy

It needs `pip install --no-deps "tensorflow-privacy==0.9.0"`. Exits with 1 where a difference is
larger than what the three decimals of the statement hide.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import re
import sys
from types import ModuleType
from typing import NamedTuple

from tf_lowrank_dp.accounting import ACCOUNTANTS, LedgerEntry, PrivacyLedger, Sampling

INSTALL = 'pip install --no-deps "tensorflow-privacy==0.9.0"'
TOLERANCE = 5.001e-4  # the statement has three decimals

_MODULE = "tensorflow_privacy.privacy.analysis.compute_dp_sgd_privacy_lib"
_EPSILON = re.compile(r"Epsilon assuming Poisson sampling \(\*\):\s+(\S+)")


class Case(NamedTuple):
    """A training run: `steps` Poisson samples of expected size `batch_size`."""

    noise_multiplier: float
    batch_size: int
    num_examples: int
    steps: int
    delta: float

    @property
    def sampling_rate(self) -> float:
        """Probability that a batch includes an example."""
        return self.batch_size / self.num_examples


CASES = (
    Case(1.1, 256, 60_000, 14_063, 1e-5),
    Case(1.0, 1_000, 60_000, 900, 1e-5),
    Case(0.7, 500, 50_000, 2_000, 1e-5),
    Case(1.5, 128, 45_000, 14_063, 1e-6),
    Case(1.64, 2_000, 60_000, 450, 1e-5),
    Case(4.0, 2_000, 10_000, 500, 1e-5),
    Case(2.0, 512, 1_437, 30, 1e-4),
    Case(10.0, 1_000, 1_000, 50, 1e-4),
    Case(0.5, 64, 100_000, 1, 1e-6),
)


class Comparison(NamedTuple):
    """One epsilon of both libraries."""

    case: Case
    accountant: str
    own: float
    theirs: float

    @property
    def difference(self) -> float:
        """Own epsilon less that of the statement."""
        return self.own - self.theirs


def load_tensorflow_privacy() -> ModuleType:
    """Returns the module of TensorFlow Privacy that writes privacy statements.

    The package imports TensorFlow 1 estimators, which current TensorFlow no longer has, unless it
    finds this attribute in `sys`; its privacy statements need none of them.

    Raises:
        ImportError: TensorFlow Privacy is not installed.
    """
    sys.skip_tf_privacy_import = True
    try:
        return importlib.import_module(_MODULE)
    finally:
        del sys.skip_tf_privacy_import


def own_epsilon(case: Case, accountant: str) -> float:
    """Returns epsilon as this library computes it."""
    sampling = Sampling.poisson(case.num_examples, case.batch_size)
    entry = LedgerEntry(sampling, case.noise_multiplier, steps=case.steps)
    return PrivacyLedger([entry]).epsilon(case.delta, accountant=accountant)


def stated_epsilon(library: ModuleType, case: Case, accountant: str) -> float:
    """Returns epsilon from the text of TensorFlow Privacy's statement.

    Args:
        library: what `load_tensorflow_privacy` returned.
        case: the training run.
        accountant: "pld" or "rdp".
    """
    return parse_statement(
        library.compute_dp_sgd_privacy_statement(
            number_of_examples=case.num_examples,
            batch_size=case.batch_size,
            num_epochs=epochs_of(case),
            noise_multiplier=case.noise_multiplier,
            delta=case.delta,
            used_microbatching=False,  # otherwise it doubles the sensitivity
            accountant_type=library.AccountantType[accountant.upper()],
        )
    )


def epochs_of(case: Case) -> float:
    """Returns a number of epochs that TensorFlow Privacy rounds up to the steps of the case.

    It takes epochs and counts `ceil(epochs / sampling rate)` steps. Half a step less than a whole
    number keeps float rounding from adding one.
    """
    return (case.steps - 0.5) * case.sampling_rate


def parse_statement(text: str) -> float:
    """Returns the epsilon that a statement gives for Poisson sampling.

    Raises:
        ValueError: there is none in the text.
    """
    found = _EPSILON.search(text)
    if found is None:
        raise ValueError(
            "Expected a privacy statement of TensorFlow Privacy with an epsilon for Poisson "
            f"sampling. Received: {text!r}. Is it another version?"
        )
    return float(found.group(1))


def compare(library: ModuleType, case: Case) -> list[Comparison]:
    """Returns epsilon of both libraries, by each accountant."""
    return [
        Comparison(
            case,
            accountant,
            own_epsilon(case, accountant),
            stated_epsilon(library, case, accountant),
        )
        for accountant in sorted(ACCOUNTANTS, reverse=True)
    ]


def table(rows: list[list[Comparison]]) -> str:
    """Returns a Markdown table with one line for each case."""
    head = ["sigma", "batch / n", "q", "steps", "delta"]
    for comparison in rows[0]:
        name = comparison.accountant.upper()
        head += [f"{name}, this", f"{name}, TF Privacy", "difference"]
    lines = [head, ["---"] * len(head)]
    for row in rows:
        case = row[0].case
        line = [
            f"{case.noise_multiplier:g}",
            f"{case.batch_size} / {case.num_examples}",
            f"{case.sampling_rate:.5f}",
            str(case.steps),
            f"{case.delta:g}",
        ]
        for comparison in row:
            line += [
                f"{comparison.own:.6f}",
                f"{comparison.theirs:.3f}",
                f"{comparison.difference:+.6f}",
            ]
        lines.append(line)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main(argv: list[str] | None = None) -> int:
    """Runs the command line and returns the exit status."""
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args(argv)
    try:
        library = load_tensorflow_privacy()
    except ImportError as error:
        print(f"TensorFlow Privacy cannot be imported ({error}). Install it: {INSTALL}")
        return 2
    rows = [compare(library, case) for case in CASES]
    worst = max(abs(comparison.difference) for row in rows for comparison in row)
    print(table(rows))
    versions = (
        f"{package} {importlib.metadata.version(package)}"
        for package in ("tensorflow-privacy", "dp-accounting")
    )
    verdict = "PASS" if worst <= TOLERANCE else "FAIL"
    print(f"\n{', '.join(versions)}. Largest difference {worst:.6f}, at most 0.0005: {verdict}")
    return 0 if worst <= TOLERANCE else 1


if __name__ == "__main__":
    sys.exit(main())

"""Planning and reporting from the command line.

python -m tf_lowrank_dp plan --examples 60000 --epsilon 3 --delta 1e-5
python -m tf_lowrank_dp report model.keras
"""

from __future__ import annotations

import argparse
import importlib
import math
import sys

from tf_lowrank_dp.accounting import ACCOUNTANTS
from tf_lowrank_dp.accounting.plan import PlanRow, plan
from tf_lowrank_dp.training import privacy_report
from tf_lowrank_dp.training.saving import load_private_model

_COLUMNS = ("batch size", "epochs", "steps", "sigma", "noise", "signal/noise")
_EXPLAINED = """
sigma         noise multiplier: deviation of the noise over the clip norm
noise         deviation in each coordinate of a step's mean gradient, in clip norms
signal/noise  sqrt(steps) / noise: how far the steps of one direction stand out of the noise. More
              is better, but the last doubling of a batch size gains less than the first.
The cost is in the epochs: time grows with the examples that are processed, epochs x examples.
"""


def main(argv: list[str] | None = None) -> int:
    """Runs the command line and returns its exit status."""
    arguments = _parser().parse_args(argv)
    try:
        arguments.run(arguments)
    except (ImportError, OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _plan(arguments: argparse.Namespace) -> None:
    """Prints a row for each batch size and number of epochs, as soon as it is known."""
    rate = arguments.examples_per_second
    if rate is not None and not 0.0 < rate < math.inf:
        raise ValueError(
            f"Expected `--examples-per-second` to be above 0. Received: {rate}. Leave it out, or "
            "pass what was measured."
        )
    columns = (*_COLUMNS, *(["minutes"] if rate else []))
    print("  ".join(f"{column:>12}" for column in columns))
    rows = plan(
        arguments.examples,
        arguments.epsilon,
        arguments.delta,
        batch_sizes=arguments.batch_sizes,
        epochs=arguments.epochs,
        accountant=arguments.accountant,
    )
    for row in rows:
        cells = _cells(row)
        if rate:
            cells.append(f"{row.steps * row.batch_size / rate / 60:.1f}")
        print("  ".join(f"{cell:>12}" for cell in cells), flush=True)
    print(_EXPLAINED, end="")


def _cells(row: PlanRow) -> list[str]:
    return [
        str(row.batch_size),
        str(row.epochs),
        str(row.steps),
        f"{math.ceil(1000 * row.noise_multiplier) / 1000:.3f}",  # never less noise
        f"{row.noise:.2e}",
        f"{row.signal_to_noise:.3g}",
    ]


def _report(arguments: argparse.Namespace) -> None:
    """Prints the report on a saved model."""
    for name in arguments.modules:
        importlib.import_module(name)
    model = load_private_model(arguments.model)
    report = privacy_report(
        model, arguments.delta, hyperparameter_search=arguments.hyperparameter_search
    )
    print(report.to_json() if arguments.json else report.to_markdown(), end="")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tf_lowrank_dp",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True)

    planning = commands.add_parser("plan", help="noise over batch sizes and epochs")
    planning.set_defaults(run=_plan)
    planning.add_argument("--examples", type=int, required=True, help="number of examples")
    planning.add_argument("--epsilon", type=float, required=True)
    planning.add_argument("--delta", type=float, required=True)
    planning.add_argument("--batch-sizes", type=int, nargs="+", default=[256, 1024, 4096])
    planning.add_argument("--epochs", type=int, nargs="+", default=[5, 20, 80])
    planning.add_argument(
        "--accountant", choices=ACCOUNTANTS, default="pld", help="rdp: faster, more noise"
    )
    planning.add_argument(
        "--examples-per-second", type=float, help="as measured; adds a column of minutes"
    )

    reporting = commands.add_parser("report", help="what a saved model guarantees")
    reporting.set_defaults(run=_report)
    reporting.add_argument("model", help="a .keras file")
    reporting.add_argument("--delta", type=float, help="default: that of the model's optimizer")
    reporting.add_argument(
        "--import",
        dest="modules",
        nargs="+",
        default=[],
        metavar="MODULE",
        help="what registers layers and losses of your own",
    )
    reporting.add_argument("--json", action="store_true", help="JSON instead of Markdown")
    reporting.add_argument("--hyperparameter-search", help="how they were chosen, a sentence")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())

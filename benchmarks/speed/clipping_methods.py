"""Time of a step by how per-example gradients are clipped: Figures 5 to 9 of Lee and Kifer 2020.

python -m benchmarks.speed.clipping_methods --json benchmarks/results/records/clipping_methods.jsonl
python -m benchmarks.speed.clipping_methods --quick

| here | in the paper | |
| --- | --- | --- |
| plain | Non-private | the ordinary step of Keras |
| loop | nxBP | a backward pass for each example |
| vectorized | multiLoss | all per-example gradients at once |
| reweight | ReweightGP | norms first, then the gradient of the weighted losses |
| bookkeeping | | what `"auto"` chooses: norms and the clipped sum from one pass |

Steps of all methods are taken in turn in one process, a fresh one for each case, in graph mode.
What is recorded is not measured again.
"""

import argparse
import json
import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.optimizers import PLAIN
from benchmarks.results.report import origin
from benchmarks.results.script_version import mark
from benchmarks.speed.measure import SAMPLE_SECONDS, run_isolated
from benchmarks.speed.steps import Spec, build_step, build_workload

ORIGIN = origin(__file__)

METHODS = (PLAIN, "loop", "vectorized", "reweight", "bookkeeping")


class Case(NamedTuple):
    """A point of a curve.

    Attributes:
        figure: of the paper.
        model: name in `MODELS`.
        batch: examples of a step.
        argument: of the model's builder that the figure varies, or "".
        value: of this argument.
    """

    figure: str
    model: str
    batch: int
    argument: str = ""
    value: int = 0


def cases() -> list[Case]:
    """All points.  What takes longest comes last."""
    found = [Case("5", model, 32) for model in ("mlp", "cnn", "simple_rnn", "lstm", "transformer")]
    for model in ("mlp", "cnn", "simple_rnn"):
        found += [Case("6", model, batch) for batch in (16, 32, 64, 128)]
    found += [Case("7", "mlp", 128, "layers", layers) for layers in (2, 4, 6, 8)]
    found += [Case("9", "resnet18", 32, "size", size) for size in (32, 64, 128)]
    found += [Case("8", "resnet18", 20, "size", 64), Case("8", "vgg16", 20, "size", 64)]
    return [*found, Case("9", "resnet18", 32, "size", 256)]


def measure(case: Case, methods: Sequence[str], repeat: int) -> dict[str, list[float]]:
    """Seconds of a step of each method, `repeat` samples taken in turn.

    Each sample is the mean over as many steps as fill `SAMPLE_SECONDS`.
    """
    arguments = {case.argument: case.value} if case.argument else {}
    steps = {}
    for method in methods:
        optimizer, method_of = (PLAIN, "auto") if method == PLAIN else ("dpsgd", method)
        spec = Spec(
            case.model, case.batch, optimizer, gradient_method=method_of, model_args=arguments
        )
        steps[method] = build_step(build_workload(spec), spec)
    calls = {}
    for method, step in steps.items():
        step()
        calls[method] = math.ceil(SAMPLE_SECONDS / step())
    samples: dict[str, list[float]] = {method: [] for method in steps}
    for _ in range(repeat):
        for method, step in steps.items():
            samples[method].append(sum(step() for _ in range(calls[method])) / calls[method])
    return samples


def over_plain(seconds: dict[str, list[float]], method: str) -> float:
    """Median over the rounds of a method's time over that of the plain step beside it."""
    pairs = zip(seconds[PLAIN], seconds[method], strict=True)
    return statistics.median(private / plain for plain, private in pairs)


def table(records: Sequence[dict[str, Any]], names: dict[str, str]) -> list[list[str]]:
    """Rows of a table: each method's time over the plain step, and the loop's over the fastest."""
    rows = [["figure", "model", "batch", "varied", "plain, ms", *METHODS[1:]]]
    rows[0].append("loop over bookkeeping")
    for record in records:
        case, seconds = Case(**record["case"]), record["seconds"]
        varied = f"{case.argument} {case.value}" if case.argument else ""
        milliseconds = f"{1e3 * statistics.median(seconds[PLAIN]):.1f}"
        model = names.get(case.model, case.model) + mark([record])
        row = [case.figure, model, str(case.batch), varied, milliseconds]
        row += [
            f"{over_plain(seconds, method):.2f}" if method in seconds else "no memory"
            for method in METHODS[1:]
        ]
        slow, fast = over_plain(seconds, "loop"), over_plain(seconds, "bookkeeping")
        rows.append([*row, f"{slow / fast:.1f}"])
    return rows


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--figures", nargs="+", choices=list("56789"), default=list("56789"))
    parser.add_argument("--repeat", type=int, default=7, help="rounds")
    parser.add_argument("--quick", action="store_true", help="two small cases, one round")
    parser.add_argument("--json", type=Path, help="the record, to which cases are added")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    """Runs the command line."""
    args = parse_args(argv)
    exists = args.json is not None and args.json.exists()
    records = [json.loads(line) for line in args.json.read_text().splitlines()] if exists else []
    wanted = [case for case in cases() if case.figure in args.figures]
    if args.quick:
        wanted, args.repeat = [Case("6", "mlp", 16), Case("7", "mlp", 16, "layers", 4)], 1
    for case in wanted:
        if case._asdict() in [record["case"] for record in records]:
            continue
        # All gradients of 20 examples of VGG-16 at once are 11 GB: it failed in the paper as well.
        methods = [m for m in METHODS if (case.model, m) != ("vgg16", "vectorized")]
        seconds = run_isolated(measure, case, methods, args.repeat)
        record = {"case": case._asdict(), "seconds": seconds, **ORIGIN}
        records.append(record)
        print(*table([record], {})[1], sep="  ", flush=True)
        if args.json:
            with args.json.open("a") as file:
                file.write(json.dumps(record) + "\n")
    print("\n".join(f"| {' | '.join(row)} |" for row in table(records, {})))


if __name__ == "__main__":
    main()

"""Cost of a private training step relative to the plain Keras step of the same model.

python -m benchmarks.speed.step_time --model transformer --batch 64 --optimizer dpsgd --jit
python -m benchmarks.speed.step_time --all --optimizer rgp --json step_time.json
"""

import argparse
import dataclasses
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.models import MODELS
from benchmarks.optimizers import OPTIMIZERS, PLAIN
from benchmarks.results.report import origin
from benchmarks.speed.measure import measure_start, run_isolated, summarize, time_steps
from benchmarks.speed.steps import Spec

ORIGIN = origin(__file__)


class Target(NamedTuple):
    """A row of the acceptance list.

    Attributes:
        model: Name of the model.
        batch: Number of examples of a step.
        ratio: Highest allowed ratio of the step times.
        model_args: Arguments of the model's builder.
        against: Optimizer whose step is the other one; memory and first call are judged beside
            the plain step only.
    """

    model: str
    batch: int
    ratio: float
    model_args: dict[str, int] = {}
    against: str = PLAIN


DEEP = {"layers": 12}
ACCEPTANCE = {
    "dpsgd": [
        Target("transformer", 64, 1.10),
        Target("resnet20", 64, 1.20),
        Target("mlp", 128, 1.30),
        Target("cnn", 128, 1.30),
        Target("lstm", 128, 1.50),
        Target("simple_rnn", 128, 1.50),
        Target("vgg16", 20, 1.40),
        Target("resnet18", 20, 1.40),
        Target("convnext_tiny", 20, 1.50),
    ],
    "rgp": [
        Target("transformer", 64, 0.82),
        Target("transformer", 64, 0.82, DEEP),
        Target("bert_small", 64, 0.75),
        Target("wrn28_4", 32, 1.00),
        Target("decoder", 16, 0.80),
    ],
    "lsg": [
        Target("transformer", 64, 0.80),
        Target("transformer", 64, 0.80, DEEP),
        Target("transformer", 64, 1.00, against="rgp"),
        Target("bert_small", 64, 0.75),
        Target("bert_small", 64, 1.00, against="rgp"),
        Target("wrn28_4", 32, 1.00),
        Target("wrn28_4", 32, 1.00, against="rgp"),
        Target("decoder", 16, 0.80),
    ],
}
# By optimizer: highest allowed ratio of peak memory, and of the first call.
START_TARGETS = {"dpsgd": (1.3, 2.5), "rgp": (1.0, 2.0), "lsg": (1.0, 2.0)}

COLUMNS = [
    ("model", 21),
    ("batch", 5),
    ("mode", 5),
    ("optimizer", 10),
    ("plain ms", 8),
    ("priv. ms", 8),
    ("ratio", 6),
    ("quartiles", 9),
    ("fastest", 7),
    ("memory", 6),
    ("process", 7),
    ("trace", 6),
    ("trace s", 11),
]


def measure(spec: Spec, start_runs: int) -> dict[str, Any]:
    """Measures one spec in fresh processes and returns its JSON record."""
    timing = run_isolated(time_steps, spec)
    starts = None
    if start_runs and spec.against == PLAIN:
        plain_spec = dataclasses.replace(spec, optimizer=PLAIN)
        starts = measure_start(plain_spec, start_runs), measure_start(spec, start_runs)
    return {
        "spec": dataclasses.asdict(spec),
        "summary": summarize(timing, starts),
        "samples": dataclasses.asdict(timing),
    }


def line(cells: Iterable[str]) -> str:
    """Aligns cells under the columns of the table."""
    return " ".join(cell.rjust(width) for cell, (_, width) in zip(cells, COLUMNS, strict=True))


def row(record: dict[str, Any]) -> str:
    """Formats one record as a line of the table."""
    spec, result = record["spec"], record["summary"]
    cells = [
        spec["model"] + "".join(f" {n}={v}" for n, v in spec["model_args"].items()),
        str(spec["batch"]),
        "xla" if spec["jit"] else "graph",
        spec["optimizer"] + ("" if spec["against"] == PLAIN else f"/{spec['against']}"),
        f"{result['plain_ms']:.1f}",
        f"{result['private_ms']:.1f}",
        f"{result['ratio']:.3f}",
        f"{result['ratio_q1']:.2f}-{result['ratio_q3']:.2f}",
        f"{result['ratio_fastest']:.2f}",
    ]
    if "trace_ratio" in result:
        cells += [
            f"{result['memory_ratio']:.2f}",
            f"{result['process_memory_ratio']:.2f}",
            f"{result['trace_ratio']:.2f}",
            f"{result['plain_first_call_s']:.2f}/{result['private_first_call_s']:.2f}",
        ]
    else:
        cells += ["-"] * 4
    return line(cells)


def verdicts(
    result: dict[str, float], optimizer: str, time_target: float
) -> dict[str, dict[str, Any]]:
    """Compares the summary with the targets of the acceptance list."""
    memory_target, trace_target = START_TARGETS[optimizer]
    targets = {
        "ratio": time_target,
        "memory_ratio": memory_target,
        "process_memory_ratio": memory_target,
        "trace_ratio": trace_target,
    }
    return {
        name: {"value": result[name], "target": target, "pass": result[name] <= target}
        for name, target in targets.items()
        if name in result
    }


def run_acceptance(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Measures the acceptance list in graph and XLA mode and yields judged records."""
    for target in ACCEPTANCE[args.optimizer]:
        for jit in (False, True):
            spec = Spec(
                target.model,
                target.batch,
                args.optimizer,
                jit,
                args.repeat,
                args.gradient_method,
                target.model_args,
                args.microbatch_size,
                target.against,
            )
            record = measure(spec, args.start_runs)
            record["verdicts"] = verdicts(record["summary"], args.optimizer, target.ratio)
            yield record


def _assignment(text: str) -> tuple[str, int]:
    name, _, value = text.partition("=")
    return name, int(value)


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", choices=sorted(MODELS), default="mlp")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--optimizer", choices=sorted(OPTIMIZERS), default="dpsgd")
    parser.add_argument(
        "--against", choices=sorted(OPTIMIZERS), default=PLAIN, help="what the ratio compares with"
    )
    parser.add_argument("--gradient-method", default="auto")
    parser.add_argument("--microbatch-size", type=int, help="of the private step; default: none")
    parser.add_argument("--jit", action="store_true", help="compile the steps with XLA")
    parser.add_argument("--repeat", type=int, default=15, help="number of timed pairs of samples")
    parser.add_argument(
        "--start-runs",
        type=int,
        default=3,
        help="processes for memory and trace time; 0: skip them",
    )
    parser.add_argument("--all", action="store_true", help="the acceptance list, graph and XLA")
    parser.add_argument("--json", type=Path, help="write the records to this file")
    parser.add_argument(
        "--model-args",
        type=_assignment,
        nargs="*",
        default=[],
        metavar="NAME=INT",
        help="arguments of the model's builder, e.g. layers=1 width=32",
    )
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Runs the command line and returns its exit status: 1 where a target is missed."""
    args = parse_args(argv)
    if args.all:
        if args.optimizer not in ACCEPTANCE:
            raise SystemExit(f"--all needs one of the optimizers {sorted(ACCEPTANCE)}")
        records_iterator = run_acceptance(args)
    else:
        spec = Spec(
            args.model,
            args.batch,
            args.optimizer,
            args.jit,
            args.repeat,
            args.gradient_method,
            dict(args.model_args),
            args.microbatch_size,
            args.against,
        )
        records_iterator = iter([measure(spec, args.start_runs)])

    print(line(name for name, _ in COLUMNS))
    records, passed = [], True
    for record in records_iterator:
        records.append(record)
        print(row(record), flush=True)
        for name, verdict in record.get("verdicts", {}).items():
            passed = passed and verdict["pass"]
            word = "PASS" if verdict["pass"] else "FAIL"
            print(f"    {word}  {name} {verdict['value']:.3f}, target {verdict['target']:.2f}")
        if args.json:
            document = {**ORIGIN, "records": records}
            args.json.write_text(json.dumps(document, indent=1) + "\n")
    return 0 if passed else 1


if __name__ == "__main__":
    raise SystemExit(main())

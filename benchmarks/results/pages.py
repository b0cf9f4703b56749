"""Writes the figures of README and docs from what is recorded.

python -m benchmarks.results.pages            rewrites the marked parts of README.md and docs/*.md
python -m benchmarks.results.pages --stale    lists the records whose script has changed since

A part begins with `<!-- recorded: NAME -->` and ends with `<!-- end -->`.  `tests/docs` compares.
"""

import argparse
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import mean, median

from benchmarks.reproductions import accuracy, first_gradients, pate
from benchmarks.results import gpu
from benchmarks.results.recorded import (
    MODEL_NAMES,
    OPTIMIZER_NAMES,
    RECORDS,
    ROOT,
    interval,
    lines,
    model_of,
    quickstart,
    step_times,
)
from benchmarks.results.script_version import STATES, mark, note, state
from benchmarks.speed import clipping_methods, where_time_goes
from benchmarks.speed.peers.__main__ import table as rows_of_peers
from tf_lowrank_dp.accounting import Sampling
from tf_lowrank_dp.sampling.padding import part_rows, rows_computed

_PART = re.compile(r"(<!-- recorded: ([\w ]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def pages() -> Iterator[Path]:
    """The pages that may have recorded parts."""
    yield ROOT / "README.md"
    yield from sorted((ROOT / "docs").rglob("*.md"))


def table(rows: list[list[str]]) -> str:
    """A Markdown table whose first row is the names of the columns."""
    ruled = [rows[0], ["---"] * len(rows[0]), *rows[1:]]
    return "".join(f"| {' | '.join(line)} |\n" for line in ruled)


def fit_time_table() -> str:
    """What users wait for: later epochs of `fit`, and the first step."""
    columns = "model, batch; optimizer; compiled by; epoch; processor; epoch as it is; first step"
    rows = [columns.split("; ")]
    for run in lines("fit_time"):
        spec, found = run["spec"], run["summary"]
        starts = [run[side]["first_step_s"] for side in ("private", "plain")]
        rows.append(
            [
                f"{MODEL_NAMES[spec['model']]}, {spec['batch']}{mark([run])}",
                OPTIMIZER_NAMES[spec["optimizer"]],
                "XLA (`jit_compile=True`)" if spec["jit"] is True else "nothing (the default)",
                f"{found['wall_ratio']:.2f}",
                f"{found['cpu_ratio']:.2f}",
                f"{found['wall_ratio_as_it_is']:.2f}",
                f"{found['first_step_ratio']:.2f} ({starts[0]:.0f} and {starts[1]:.0f} s)",
            ]
        )
    return table(rows) + note(lines("fit_time"))


def peers_table() -> str:
    """Other libraries beside this one, on the same models in the same run."""
    columns = "model, library, mode, ms a step, over its plain step, over our DP-SGD, peak MiB"
    rows = [
        [MODEL_NAMES[model] + mark([run]), *cells]
        for run in lines("peers")
        for model, *cells in rows_of_peers(run["records"])
    ]
    return table([columns.split(", "), *rows]) + note(lines("peers"))


def step_time_table() -> str:
    """All models."""
    columns = ("model, batch", "optimizer", "private / plain, graph", "XLA")
    rows = [[*columns]]
    for row in step_times():
        cells = [row[column] for column in columns]
        if cells[0] == next((line[0] for line in reversed(rows) if line[0]), None):
            cells[0] = ""
        rows.append(cells)
    return table(rows)


def faster() -> str:
    """The models whose private step takes less time than the ordinary one, by optimizer."""
    found: dict[str, list[str]] = {}
    for row in step_times():
        if interval(row["private / plain, graph"]).high < 1:
            found.setdefault(row["optimizer"].split(",")[0], []).append(model_of(row))
    return "".join(f"* {name}: {', '.join(models)}.\n" for name, models in found.items())


def quickstart_table() -> str:
    """Both data sets of the quickstart."""
    rows = [["data", "images", "non-private", "private", "epsilon, delta"]]
    for name, output in {"digits": "quickstart", "MNIST": "quickstart_mnist"}.items():
        run = quickstart(output)
        rows.append(
            [
                name,
                f"{run.training:,}",
                run.plain,
                run.private,
                f"{run.epsilon}, 1e-5",
            ]
        )
    return table(rows)


def accuracy_table() -> str:
    """Methods, networks and tasks of which all seeds are recorded."""
    found = accuracy.table(lines("accuracy"))
    rows = [f"{line}\n" for line in found if not line.endswith(("| 1 |", "| 2 |"))]
    return "".join(rows) + note(lines("accuracy"))


def wide_resnet_table() -> str:
    """Wide ResNets by their methods and numbers of steps, and what a step takes."""
    by_steps, took = [], dict[str, list[float]]()
    for run in lines("wide_resnet"):
        chosen = run["settings"]
        task = f"{chosen['task'].removeprefix('cifar10-')}, {chosen['steps']} steps"
        by_steps.append(run | {"settings": chosen | {"task": task}})
        took.setdefault(chosen["method"], []).append(1000 * run["wall_s"] / chosen["steps"])
    times = ", ".join(f"{method} {median(each):.1f} ms" for method, each in sorted(took.items()))
    rows = "".join(f"{line}\n" for line in accuracy.table(by_steps))
    return f"{rows}\nA step, drawing included, median of all runs: {times}.\n"


def sst2_table() -> str:
    """Each method at its better rate; a rate that the tuning seed alone has was not chosen."""
    found: dict[tuple, list[dict]] = {}
    for run in lines("sst2"):
        chosen = run["settings"]
        key = chosen["epsilon"] or math.inf, chosen["method"], chosen["learning_rate"]
        found.setdefault(key, []).append(run)
    columns = "epsilon, method, rate, held out, lowest to highest, validation, seeds"
    rows = [columns.split(", ")]
    for (epsilon, method, rate), runs in sorted(found.items()):
        if len(runs) == 1:
            continue
        held, validation = (
            [100 * run[name] for run in runs] for name in ("held_out_accuracy", "accuracy")
        )
        name = method.removesuffix("-centred") + " centred" * method.endswith("-centred")
        spent = f"{epsilon:g}" if math.isfinite(epsilon) else "none"
        rows.append([spent, name + mark(runs), f"{rate:g}", f"{mean(held):.2f}"])
        rows[-1] += [f"{min(held):.2f} to {max(held):.2f}", f"{mean(validation):.2f}"]
        rows[-1].append(str(len(runs)))
    return table(rows) + note(lines("sst2"))


def without_noise_table() -> str:
    """What methods reach on CIFAR-10 with next to no noise, and what GEP's subspace misses."""
    columns = "noise; method; rate; test accuracy; outside, at the start and after each third"
    rows = [columns.split("; ")]
    tried: dict[tuple[str, str], list[dict]] = {}
    for run in lines("without_noise"):
        of = run["settings"]
        tried.setdefault((of["noise"], of["method"]), []).append(run)
    for (noise, method), runs in tried.items():
        best = max(runs, key=lambda run: run["held_out"])
        seen = ", ".join(f"{look['projection_error']:.2f}" for look in best["subspace"])
        rows.append([noise, method + mark(runs), f"{best['settings']['rate']:g}"])
        rows[-1] += [f"{100 * best['test']:.1f}", seen]
    return table(rows) + note(lines("without_noise"))


def image_subspaces_table() -> str:
    """RGP's Figures 2 and 3 on CIFAR-10."""
    columns = "trained by, kernel; stable rank; missed: its own; of the gradient before"
    rows = [[*columns.split("; "), "of the update so far"]]
    for run in lines("image_subspaces"):
        for path, ranks in run["stable_rank"].items():
            name = "/".join(path.split("/")[-2:])
            rows.append([f"{run['settings']['method']}{mark([run])}, {name}", _shown(ranks, 1)])
            for residual in run["residual"].values():
                rows[-1].append(_shown(residual[path], 2))
    return table(rows) + note(lines("image_subspaces"))


def _shown(values: list[float], digits: int) -> str:
    """Values that are numbers: a layer below a kernel of zeros has no gradient."""
    return ", ".join(f"{value:.{digits}f}" for value in values if value == value)


def noise_by_width() -> str:
    """GEP's Figure 1."""
    runs = [run for run in lines("first_gradients") if run["settings"]["part"] == "noise"]
    return table(first_gradients.noise_table(runs)) + note(runs)


def neurons() -> str:
    """LSG's Figure 1."""
    [run] = [run for run in lines("first_gradients") if run["settings"]["part"] == "neurons"]
    return table(first_gradients.neurons_table(run["shares"])) + note([run])


def centring() -> str:
    """Why centring gains on images."""
    [run] = [run for run in lines("first_gradients") if run["settings"]["part"] == "centring"]
    return table(first_gradients.centring_table(run["left"])) + note([run])


def membership() -> str:
    """How well members are told from others, by method and epsilon."""
    columns = "method, epsilon, attack accuracy, 95 % interval, AUC, TPR at 1 % FPR"
    rows = [[*columns.split(", "), "training / test accuracy"]]
    for run in lines("membership"):
        low, high = run["interval_95"]
        epsilon = run["target_epsilon"]
        rows.append([run["method"] + mark([run]), "" if epsilon is None else f"{epsilon:g}"])
        rows[-1] += [f"{100 * run['accuracy']:.1f} %", f"{100 * low:.1f} to {100 * high:.1f} %"]
        rows[-1] += [f"{run['auc']:.3f}", f"{100 * run['tpr_at_1_percent_fpr']:.1f} %"]
        of = (run["train_accuracy"], run["test_accuracy"])
        rows[-1].append(" / ".join(f"{100 * each:.1f}" for each in of) + " %")
    return table(rows) + note(lines("membership"))


def clipping_methods_table() -> str:
    """Lee and Kifer's Figures 5 to 9: the slow ways to clip beside ours."""
    runs = lines("clipping_methods")
    return table(clipping_methods.table(runs, MODEL_NAMES)) + note(runs)


def centring_cost_table() -> str:
    """Steps of DP-SGD with centring over those without."""
    rows = [["model, batch", "compiled by", "median of pairs", "fastest steps"]]
    for run in lines("centring_cost"):
        spec, found = run["spec"], run["summary"]
        rows.append(
            [
                f"{MODEL_NAMES[spec['model']]}, {spec['batch']}{mark([run])}",
                "XLA" if spec["jit"] else "nothing",
                f"{found['ratio']:.2f}",
                f"{found['ratio_fastest']:.2f}",
            ]
        )
    return table(rows) + note(lines("centring_cost"))


def where_time_goes_table() -> str:
    """Epochs over plain ones with one part of a private step after another, and what is padded."""
    columns = "model, batch; draws; and clip; and noise; shuffled instead; rows computed"
    rows = [columns.split("; ")]
    for run in lines("where_time_goes"):
        found = where_time_goes.ratios(run)
        rows.append(
            [
                f"{MODEL_NAMES[run['model']]}, {run['batch']}{mark([run])}",
                *(f"{found[name]:.2f}" for name in where_time_goes.VARIANTS[1:]),
                f"{_computed(run['batch']):.2f}",
            ]
        )
    return table(rows) + note(lines("where_time_goes"))


def units_table() -> str:
    """Epochs of units of several rows over those of as many single rows, and what is padded."""
    rows = [["model", "units, copies of each", "epoch", "rows computed"]]
    for run in lines("units"):
        of = run["settings"]
        single = _computed(of["rows"])
        for copies, ratio in run["ratios"].items():
            units = of["rows"] // int(copies)
            rows.append(
                [
                    MODEL_NAMES[of["model"]] + mark([run]),
                    f"{units}, {copies}",
                    f"{ratio:.2f}",
                    f"{_computed(units) / single:.2f}",
                ]
            )
    return table(rows) + note(lines("units"))


def _computed(units: int) -> float:
    """Rows computed of each that is expected in a draw of so many, of data of any size."""
    sampling = Sampling.poisson(num_examples=10**6, batch_size=units)
    return rows_computed(units, part_rows(sampling)) / units


def pate_table() -> str:
    """PATE at each epsilon, by the aggregator that held-out images choose with the first seed."""
    found: dict[tuple[float, str], list[dict]] = {}
    for run in lines("pate"):
        of = run["settings"]
        found.setdefault((of["epsilon"], of["aggregator"]), []).append(run)
    rows = []
    for epsilon in sorted({epsilon for epsilon, _ in found}):
        tried = {name: runs for (of, name), runs in found.items() if of == epsilon}
        best = max(tried, key=lambda name: tried[name][0]["held_out_accuracy"])
        rows.append((epsilon, best, tried[best]))
    return pate.table(rows) + "\n"


PARTS: dict[str, Callable[[], str]] = {
    "fit time": fit_time_table,
    "peers": peers_table,
    "step time": step_time_table,
    "faster": faster,
    "quickstart": quickstart_table,
    "accuracy": accuracy_table,
    "wide resnet": wide_resnet_table,
    "sst2": sst2_table,
    "without noise": without_noise_table,
    "image subspaces": image_subspaces_table,
    "noise by width": noise_by_width,
    "neurons": neurons,
    "centring": centring,
    "centring cost": centring_cost_table,
    "units": units_table,
    "where time goes": where_time_goes_table,
    "membership": membership,
    "pate": pate_table,
    "clipping methods": clipping_methods_table,
    "gpu steps": lambda: table(gpu.step_rows()),
    "gpu releases": lambda: table(gpu.released_rows()),
}


def written(text: str) -> str:
    """A page with its recorded parts as they are recorded."""
    return _PART.sub(lambda part: part[1] + PARTS[part[2]]() + part[3], text)


def states() -> Iterator[str]:
    """How many records of each file are in which state, and which lines are stale."""
    for path in sorted(RECORDS.glob("*.json*")):
        found = [state(run) for run in lines(path.stem)]
        counts = ", ".join(f"{found.count(name)} {name}" for name in STATES)
        stale = [str(line) for line, each in enumerate(found, start=1) if each == "stale"]
        yield f"{path.name}: {counts}" + (f" (lines {', '.join(stale)})" if stale else "")


def main(argv: list[str] | None = None) -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--stale", action="store_true", help="list records by state; write nothing")
    if parser.parse_args(argv).stale:
        print(*states(), *(f"{name}: {meaning}" for name, meaning in STATES.items()), sep="\n")
        return
    for path in pages():
        before = path.read_text(encoding="utf-8")
        after = written(before)
        if after != before:
            path.write_text(after, encoding="utf-8")
            print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()

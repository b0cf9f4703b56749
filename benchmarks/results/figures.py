"""Draws the pictures of README and docs from recorded figures.

python -m benchmarks.results.figures            writes docs/images/*.svg
"""

import statistics
from collections.abc import Callable
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.results.recorded import (
    MODEL_NAMES,
    OPTIMIZER_NAMES,
    ROOT,
    energy_kept,
    interval,
    lines,
    mnist,
    model_of,
    sst2,
    step_times,
)

IMAGES = ROOT / "docs" / "images"
OURS = "tf_lowrank_dp, dpsgd"
COLOURS = {"DP-SGD": "C0", "RGP": "C2", "LSG": "C1", "GEP": "C3", "B-GEP": "C4"}
STYLE = {
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "tf_lowrank_dp",  # the same file each time
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def fit_time() -> Figure:
    """Private over plain `fit`, and a step of other libraries over one of ours."""
    figure = Figure(figsize=(9.0, 3.6), layout="constrained")
    own, others = figure.subplots(1, 2)
    _fits(own)
    _peers(others)
    return figure


def _fits(axes: Axes) -> None:
    runs = lines("fit_time")
    places = list(
        dict.fromkeys((run["spec"]["model"], run["spec"]["optimizer"]) for run in runs[::-1])
    )
    for shift, jit, label in (
        (0.2, "auto", "by default"),
        (-0.2, True, "jit_compile=True"),
    ):
        found = [run for run in runs if run["spec"]["jit"] == jit]
        axes.barh(
            [places.index((r["spec"]["model"], r["spec"]["optimizer"])) + shift for r in found],
            [run["summary"]["wall_ratio"] for run in found],
            height=0.38,
            label=label,
        )
    names = [f"{_short(m)}, {OPTIMIZER_NAMES[o].split(',')[0]}" for m, o in places]
    axes.set_yticks(range(len(places)), names, fontsize="small")
    axes.axvline(1.0, color="black", linewidth=1)
    axes.set(xlabel="an epoch of `fit`: private over ordinary", xlim=(0.0, None))
    axes.figure.legend(*axes.get_legend_handles_labels(), loc="outside lower left", ncols=2)


def _peers(axes: Axes) -> None:
    """A group of bars for each model; what a library refuses has none."""
    runs = [run["records"] for run in lines("peers")]
    medians = {
        (r["model"], f"{r['library']}, {r['mode']}"): statistics.median(r["step_ms"])
        for records in runs
        for r in records
        if "fails" not in r and (r["library"] != "tf_lowrank_dp" or r["mode"] == "dpsgd")
        if r["mode"] != "plain"
    }
    models = list(dict.fromkeys(model for model, _ in medians))
    peers = list(dict.fromkeys(name for _, name in medians if name != OURS))
    for number, name in enumerate(peers):
        found = [model for model in models if (model, name) in medians]
        axes.bar(
            [models.index(m) + (number + 0.5) / (len(peers) + 1) - 0.5 for m in found],
            [medians[m, name] / medians[m, OURS] for m in found],
            width=0.9 / (len(peers) + 1),
            label=name.replace("_", "-"),
        )
    axes.set_xticks(range(len(models)), [_short(model) for model in models], fontsize="small")
    axes.axhline(1.0, color="black", linewidth=1)
    axes.set(ylabel="their private step over ours", yscale="log")
    axes.figure.legend(
        *axes.get_legend_handles_labels(), loc="outside upper right", ncols=2, fontsize="small"
    )


def _short(model: str) -> str:
    return MODEL_NAMES[model].split(" (")[0].split(",")[0].split(" of ")[0].split(" with ")[0]


def step_time() -> Figure:
    """Bars of private over plain step time in graph mode; a whisker is a range of several runs."""
    rows = step_times()[::-1]
    figure = Figure(figsize=(8.0, 0.24 * len(rows) + 0.9), layout="constrained")
    axes = figure.subplots()
    seen = set()
    for place, row in enumerate(rows):
        name = row["optimizer"].split(",")[0]
        ratio = interval(row["private / plain, graph"])
        label = name if name not in seen else None
        seen.add(name)
        axes.barh(
            place,
            ratio.middle,
            color=COLOURS[name],
            label=label,
            xerr=(ratio.high - ratio.low) / 2 or None,
        )
        axes.text(0.02, place, row["private / plain, graph"], va="center", color="white")
    axes.set_yticks(range(len(rows)), [model_of(row) for row in rows])
    axes.axvline(1.0, color="black", linewidth=1)
    axes.set(
        xlabel="time of a private step over an ordinary one (line: as fast as ordinary training)",
        xlim=(0.0, None),
    )
    handles, names = axes.get_legend_handles_labels()
    axes.legend(handles[::-1], names[::-1], loc="upper right")
    return figure


def accuracy() -> Figure:
    """Accuracy over epsilon on MNIST, and of all methods at one epsilon on SST-2."""
    figure = Figure(figsize=(9.0, 3.6), layout="constrained")
    over_epsilon, at_one = figure.subplots(1, 2)
    _mnist(over_epsilon)
    _sst2(at_one)
    return figure


def _mnist(axes: Axes) -> None:
    rows = mnist()
    for name, column in {"DP-SGD": "DP-SGD", "GEP": "GEP", "B-GEP": _column("B-GEP")}.items():
        means = [float(row[column].split()[0]) for row in rows]
        ranges = [interval(row[column].partition("(")[2]) for row in rows]
        below = [mean - found.low for mean, found in zip(means, ranges, strict=True)]
        above = [found.high - mean for mean, found in zip(means, ranges, strict=True)]
        axes.errorbar(
            [float(row["epsilon"]) for row in rows],
            means,
            yerr=[below, above],
            color=COLOURS[name],
            marker="o",
            capsize=3,
            label=name,
        )
    axes.set(xlabel="epsilon (delta 1e-5)", ylabel="test accuracy, %", title="MNIST, three seeds")
    axes.legend()


def _column(begin: str) -> str:
    return next(name for name in mnist()[0] if name.startswith(begin))


def _sst2(axes: Axes) -> None:
    rows = sst2()[::-1]
    for place, row in enumerate(rows):
        mean, found = float(row["held out, % (mean)"]), interval(row["lowest to highest"])
        error = [[mean - found.low], [found.high - mean]]
        colour = "black" if row["method"] == "np" else "C0"
        axes.errorbar(mean, place, xerr=error, color=colour, marker="o", capsize=2)
    axes.set_yticks(range(len(rows)), [row["method"] for row in rows])
    axes.set(xlabel="held-out accuracy, %", title="SST-2, epsilon 3.3 (np: without privacy)")


def subspaces() -> Figure:
    """Which part of the gradient's energy carriers of several kinds keep, by rank."""
    rows = energy_kept()
    figure = Figure(figsize=(5.5, 3.0), layout="constrained")
    axes = figure.subplots()
    for name in [column for column in rows[0] if column != "rank"][::-1]:
        kept = [interval(row[name]).middle for row in rows]
        axes.plot([row["rank"] for row in rows], kept, marker="o", label=name)
    axes.set(xlabel="rank", ylabel="energy kept, %", ylim=(0.0, 105.0))
    axes.legend(fontsize="small", loc="center right")
    return figure


def membership() -> Figure:
    """Accuracy of a membership attack over epsilon, with intervals; guessing is 50 %."""
    runs = lines("membership")
    figure = Figure(figsize=(6.5, 3.2), layout="constrained")
    axes = figure.subplots()
    [free] = [run for run in runs if run["target_epsilon"] is None]
    private = [run for run in runs if run is not free]
    names = list(dict.fromkeys(run["method"] for run in private))
    epsilons = sorted({run["target_epsilon"] for run in private})
    for number, name in enumerate(names):
        found = [run for run in private if run["method"] == name]
        places = [epsilons.index(run["target_epsilon"]) + 0.1 * (number - 2) for run in found]
        axes.errorbar(places, *_accuracies(found), marker="o", linestyle="", capsize=2, label=name)
    place = len(epsilons)
    axes.errorbar([place], *_accuracies([free]), color="black", marker="o", capsize=2)
    axes.set_xticks(range(place + 1), [*(f"{each:g}" for each in epsilons), "without\nprivacy"])
    axes.axhline(50.0, color="black", linewidth=1)
    axes.set(xlabel="epsilon (delta 1e-5)", ylabel="attack accuracy, %")
    axes.legend(fontsize="small", ncols=2)
    return figure


def _accuracies(runs: list[dict]) -> tuple[list[float], list[list[float]]]:
    """In per cent, with how far the interval reaches below and above."""
    means = [100 * run["accuracy"] for run in runs]
    pairs = list(zip(means, [run["interval_95"] for run in runs], strict=True))
    below = [mean - 100 * low for mean, (low, _) in pairs]
    return means, [below, [100 * high - mean for mean, (_, high) in pairs]]


FIGURES: dict[str, Callable[[], Figure]] = {
    "fit_time": fit_time,
    "step_time": step_time,
    "accuracy": accuracy,
    "subspaces": subspaces,
    "membership": membership,
}


def draw(folder: Path) -> list[Path]:
    """Writes all pictures to a folder and returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    with matplotlib.rc_context(STYLE):
        for name, figure in FIGURES.items():
            path = folder / f"{name}.svg"
            figure().savefig(path, metadata={"Date": None})
            paths.append(path)
    return paths


if __name__ == "__main__":
    for drawn in draw(IMAGES):
        print(drawn.relative_to(ROOT))

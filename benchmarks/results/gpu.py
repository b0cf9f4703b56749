"""Tables of what was measured on a GPU."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.results.recorded import OPTIMIZER_NAMES, lines
from benchmarks.results.script_version import mark

_MODELS = {"bert_base": "BERT-base, 128 tokens", "wrn28_10": "WRN-28-10, 32x32"}
_CARELESS = ", as on a CPU"  # of the names of programs
_PEERS = {"opacus": "Opacus", "jax-privacy": "jax-privacy"}


def step_rows() -> list[list[str]]:
    """Whole steps, each over the plain one of its library."""
    recorded, found = lines("gpu"), dict[tuple, list[dict]]()
    for run in recorded:
        found.setdefault((run["model"], run["precision"], run["batch"], _name(run)), []).append(run)
    rows = ["model; precision; batch; step; ms; over its plain step; peak GiB".split("; ")]
    for (model, precision, batch, name), runs in sorted(found.items(), key=_by_batch):
        ratios = [run["median_ms"] / _plain(run, recorded)["median_ms"] for run in runs]
        rows.append(
            [
                _MODELS[model],
                precision,
                str(batch),
                name + mark(runs),
                " and ".join(f"{run['median_ms']:.1f}" for run in runs),
                "" if _is_plain(runs[0]) else " and ".join(f"{ratio:.2f}" for ratio in ratios),
                f"{max(run['peak_bytes'] for run in runs) / 2**30:.1f}",
            ]
        )
    return rows


def released_rows() -> list[list[str]]:
    """The largest norms that hostile records reached, over the clip."""
    runs = {run["name"]: run for run in lines("gpu_released")}
    careless = {name: run for name, run in runs.items() if name.endswith(_CARELESS)}
    pairs = {name.removesuffix(_CARELESS) for name in careless}
    groups: dict[str, Callable[[str], bool]] = {
        "steps of small models": lambda name: name not in pairs and name not in careless,
        "captured pairs of up to 128 positions and 768 numbers": pairs.__contains__,
        "the same pairs, multiplied as on a CPU": careless.__contains__,
    }
    rows = ["what; programs; records released alone; largest norm over the clip".split("; ")]
    for group, is_in in groups.items():
        of_group = [run for name, run in runs.items() if is_in(name)]
        counts = len(of_group), sum(run["releases"] for run in of_group)
        largest = max(run["largest"] for run in of_group)
        rows.append([group, *map(str, counts), f"{largest:.5f}"])
    return rows


def _name(run: dict) -> str:
    if "library" in run:
        return f"{_PEERS[run['library']]}, {run['mode']}"
    name = OPTIMIZER_NAMES.get(run["optimizer"], "plain")
    return f"{name}; {run['code']}" if "code" in run else name


def _is_plain(run: dict) -> bool:
    return "plain" in (run.get("optimizer"), run.get("mode"))


def _plain(run: dict, recorded: list[dict]) -> dict:
    """The plain step of the same library, model, precision, batch and call."""
    same = "library", "model", "precision", "batch", "run"
    alike = [r for r in recorded if all(r.get(key) == run.get(key) for key in same)]
    return next(filter(_is_plain, alike))


def _by_batch(item: tuple) -> tuple:
    (model, precision, batch, _), _ = item
    return model, batch, precision

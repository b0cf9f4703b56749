"""Time and memory of a private step against the plain step of the same model."""

import dataclasses
import math
import multiprocessing
import os
import resource
import statistics
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

from benchmarks.optimizers import PLAIN
from benchmarks.speed.steps import Spec, Step, build_step, build_workload

WARM_UP_STEPS = 3
SAMPLE_SECONDS = 0.05


@dataclass(frozen=True)
class Timing:
    """Seconds of the plain and the private step, measured in turn in one process.

    The plain step is that of the optimizer compared with, where it is another one.

    A value is the mean of as many steps as fill `SAMPLE_SECONDS`.

    Attributes:
        plain_s: Seconds of the plain step.
        private_s: Seconds of the private step, paired with `plain_s`.
    """

    plain_s: list[float]
    private_s: list[float]


@dataclass(frozen=True)
class Start:
    """What it takes one process to start training one model.

    Attributes:
        prepare_s: Seconds of compiling (in Keras' sense), converting and preparing the model.
        first_call_s: Seconds of the first step: tracing, compilation and the step itself.
        memory_mib: Peak resident memory over the first steps, less what was in use after
            imports, warm-up of the runtime, building the model and the data.
        process_mib: Peak resident memory of the whole process.
    """

    prepare_s: float
    first_call_s: float
    memory_mib: float
    process_mib: float


def run_isolated(function: Callable[..., Any], *args: Any) -> Any:
    """Returns `function(*args)` computed in a fresh Python process."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=1, mp_context=context) as pool:
        return pool.submit(function, *args).result()


def time_steps(spec: Spec) -> Timing:
    """Times plain and private steps in turn, so that a busy machine slows both alike."""
    plain = _step(dataclasses.replace(spec, optimizer=spec.against))
    private = _step(spec)
    warm_s = min(plain() + private() for _ in range(WARM_UP_STEPS)) / 2
    calls = math.ceil(SAMPLE_SECONDS / warm_s)
    pairs = [_timed_pair(plain, private, calls, swap=bool(i % 2)) for i in range(spec.repeat)]
    return Timing(plain_s=[pair[0] for pair in pairs], private_s=[pair[1] for pair in pairs])


def measure_start(spec: Spec, processes: int) -> Start:
    """Starts training in fresh processes and returns the median of each figure.

    The variants are not compared within one process: the second one to be traced profits from
    the first, and memory once in use hides what comes later.
    """
    starts = [run_isolated(start_training, spec) for _ in range(processes)]
    names = [field.name for field in dataclasses.fields(Start)]
    return Start(*(statistics.median(getattr(start, name) for start in starts) for name in names))


def start_training(spec: Spec) -> Start:
    """Takes the first steps in this process, which must be a fresh one."""
    _step(Spec("mlp", batch=2, optimizer=PLAIN, jit=spec.jit))()  # starts the runtime
    workload = build_workload(spec)
    reset_peak()
    baseline = peak_mib()
    step = build_step(workload, spec)
    first_call_s = step()
    for _ in range(WARM_UP_STEPS):
        step()
    peak = peak_mib()
    return Start(step.prepare_s, first_call_s, peak - baseline, peak)


def summarize(timing: Timing, starts: tuple[Start, Start] | None) -> dict[str, float]:
    """Reduces the measurements of one spec to the figures that are reported.

    Args:
        timing: Times of both steps.
        starts: The plain and the private start, where they were measured.

    Returns:
        `ratio`, the median over pairs, its quartiles, and `ratio_fastest`, the ratio of the
        fastest samples. `memory_ratio` compares the increases over the baseline,
        `process_memory_ratio` whole processes.
    """
    ratios = [b / a for a, b in zip(timing.plain_s, timing.private_s, strict=True)]
    quartiles = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    summary = {
        "ratio": statistics.median(ratios),
        "ratio_q1": quartiles[0],
        "ratio_q3": quartiles[2],
        "ratio_fastest": min(timing.private_s) / min(timing.plain_s),
        "plain_ms": 1e3 * statistics.median(timing.plain_s),
        "private_ms": 1e3 * statistics.median(timing.private_s),
    }
    if starts:
        plain, private = starts
        summary["memory_ratio"] = private.memory_mib / plain.memory_mib
        summary["process_memory_ratio"] = private.process_mib / plain.process_mib
        summary["trace_ratio"] = private.first_call_s / plain.first_call_s
        for prefix, start in zip(("plain", "private"), starts, strict=True):
            for name, value in dataclasses.asdict(start).items():
                summary[f"{prefix}_{name}"] = value
    return summary


def _step(spec: Spec) -> Step:
    return build_step(build_workload(spec), spec)


def _timed_pair(plain: Step, private: Step, calls: int, swap: bool) -> tuple[float, float]:
    """Times both steps, the private one first where `swap`, as means over `calls` calls."""
    order = (private, plain) if swap else (plain, private)
    first, second = (sum(step() for _ in range(calls)) / calls for step in order)
    return (second, first) if swap else (first, second)


def reset_peak() -> None:
    """Makes the kernel forget the highest resident size so far, where it can (Linux)."""
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
    except OSError:
        pass


def peak_mib() -> float:
    """Returns the highest resident size since the start or the last reset.

    On Linux from `VmHWM`: `ru_maxrss` cannot be reset, and a child starts with its parent's.
    """
    if os.path.exists("/proc/self/status"):
        with open("/proc/self/status") as file:
            for line in file:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) / 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 1024

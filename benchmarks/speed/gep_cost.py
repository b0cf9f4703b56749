"""Cost of a GEP step: beside DP-SGD, the sum of its parts, and Table 4 of the paper.

python -m benchmarks.speed.gep_cost --json gep_cost.json
python -m benchmarks.speed.gep_cost --curves --repeat 3

All steps of a comparison run in turn in one process, and ratios are those of medians, of wall-clock
and of processor time: the latter is what other load disturbs least.
"""

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from benchmarks.models import MODELS, Workload
from benchmarks.results.report import origin
from benchmarks.speed.measure import peak_mib, reset_peak, run_isolated
from benchmarks.speed.steps import step_of_run

ORIGIN = origin(__file__)

# Public examples, bases, steps a basis is kept, highest allowed ratio to a DP-SGD step.
ACCEPTANCE = [(2000, 500, 1, 4.5), (512, 500, 2, 1.8)]
SUM_OF_PARTS, MEMORY = 1.5, 0.6


@dataclass(frozen=True)
class Case:
    """A step of GEP, or of DP-SGD where `anchors` is 0.

    Attributes:
        model: Name of the model in `MODELS`.
        batch: Number of private examples.
        anchors: Number of public examples.
        num_bases: Directions of all groups together.
        refresh_every: Number of steps a basis is kept.
        jit: Whether XLA compiles the step.
    """

    model: str = "mnist_cnn"
    batch: int = 1000
    anchors: int = 0
    num_bases: int = 500
    refresh_every: int = 1
    jit: bool = False


def prepare(case: Case) -> Workload:
    """Builds the workload, private and bound to a sampler, with the optimizer of the case."""
    import tf_lowrank_dp as tfdp
    from tf_lowrank_dp.training.compiled_loss import CompiledLoss
    from tf_lowrank_dp.training.start_run import start_run

    keras.utils.set_random_seed(0)
    workload = MODELS[case.model](num_examples=2 * case.batch)
    inner, noise = keras.optimizers.Adam(1e-3), {"noise_multiplier": 1.1}
    if case.anchors:
        shape = (case.anchors, *workload.x.shape[1:])
        optimizer = tfdp.GEPOptimizer(
            inner,
            public_data=np.random.default_rng(7).uniform(size=shape).astype("float32"),
            num_classes=workload.model.output_shape[-1],
            num_bases=case.num_bases,
            refresh_every=case.refresh_every,
            **noise,
        )
    else:
        optimizer = tfdp.DPSGDOptimizer(inner, l2_norm_clip=1.0, **noise)
    tfdp.make_private(workload.model)
    workload.model.compile(optimizer=optimizer, loss=workload.loss, jit_compile=case.jit)
    sampler = tfdp.PoissonSampler(workload.x, workload.y, batch_size=case.batch, steps=1)
    loss = CompiledLoss(workload.model, float(case.batch))
    start_run(workload.model, sampler.sampling, steps=1, loss=loss)
    return workload


def step_of(case: Case) -> Callable[[], None]:
    """Returns a function that runs `refresh_every` steps on one batch and waits for them."""
    from tf_lowrank_dp.training.state import state_of

    workload = prepare(case)
    x, y = tf.constant(workload.x[: case.batch]), tf.constant(workload.y[: case.batch])
    batch = {"x": x, "y": y, "presence": tf.ones(case.batch)}
    run = state_of(workload.model).run
    function = tf.function(step_of_run(workload.model, run, batch), autograph=False)

    def steps() -> None:
        for _ in range(case.refresh_every):
            float(function(batch)["loss"])

    return steps


def space_of(case: Case):
    """Returns the model of a GEP case and its release space."""
    from tf_lowrank_dp.training.state import state_of

    model = prepare(case).model
    return model, state_of(model).run.engine.space


def parts_of(case: Case) -> dict[str, Callable[[], None]]:
    """Returns what a step consists of, each to be timed alone.

    Per-example passes over private and over public examples, and for each group the matrix products
    of Algorithm 1 and Table 4 on numbers of the same sizes, all in float32: `2 m k p` and
    `2 p k^2` for the basis, `2 n k p` for embeddings and residuals.
    """
    from tf_lowrank_dp.release.anchor_groups import size_of

    _, space = space_of(case)
    parts = {f"private pass ({case.batch})": step_of(Case(case.model, case.batch, jit=case.jit))}
    parts[f"public pass ({case.anchors})"] = graph(space._anchors)
    for group, k in zip(space.groups, space.num_bases, strict=True):
        p = size_of(space.parameters, group)
        parts[f"products k={k} p={p}"] = products(case.anchors, case.batch, k, p)
    return parts


def products(m: int, n: int, k: int, p: int) -> Callable[[], None]:
    """Returns the matrix products of one group with one power iteration."""
    public, private, rows = (tf.random.normal((size, p)) for size in (m, n, k))

    def run():
        images = tf.matmul(rows, public, transpose_b=True)
        basis = tf.matmul(images, public)
        basis = tf.matmul(tf.matmul(basis, basis, transpose_b=True), basis)
        return tf.matmul(tf.matmul(private, basis, transpose_b=True), basis)

    return graph(run)


def graph(function: Callable) -> Callable[[], None]:
    """Returns the function as a graph that is run to its end."""
    compiled = tf.function(function, autograph=False)

    def run() -> None:
        for tensor in tf.nest.flatten(compiled()):
            tensor[..., :1].numpy()

    return run


def timed(functions: Mapping[str, Callable[[], None]], repeat: int) -> dict[str, tuple]:
    """Returns median milliseconds, wall-clock and processor, of functions that run in turn."""
    for function in functions.values():
        function()
    samples: dict[str, list[tuple[float, float]]] = {name: [] for name in functions}
    for _ in range(repeat):
        for name, function in functions.items():
            wall, cpu = time.perf_counter(), time.process_time()
            function()
            samples[name].append((time.perf_counter() - wall, time.process_time() - cpu))
    return {
        name: tuple(1e3 * statistics.median(column) for column in zip(*found, strict=True))
        for name, found in samples.items()
    }


def ratios(repeat: int, jit: bool) -> list[dict[str, Any]]:
    """Measures the acceptance cases beside DP-SGD and beside the sum of their parts."""
    cases = [Case(anchors=m, num_bases=k, refresh_every=e, jit=jit) for m, k, e, _ in ACCEPTANCE]
    parts = parts_of(cases[0])
    steps = {str(number): step_of(case) for number, case in enumerate(cases)}
    found = timed({**parts, **steps}, repeat)
    dpsgd = next(iter(found.values()))
    records = []
    for number, (case, target) in enumerate(zip(cases, ACCEPTANCE, strict=True)):
        step = [value / case.refresh_every for value in found[str(number)]]
        record = {"case": asdict(case), "step_ms": step, "dpsgd_ms": dpsgd, "target": target[-1]}
        record["ratio"] = [a / b for a, b in zip(step, dpsgd, strict=True)]
        records.append(record)
    totals = [sum(found[name][kind] for name in parts) for kind in (0, 1)]
    records[0]["parts_ms"] = {name: found[name] for name in parts}
    records[0]["over_parts"] = [a / b for a, b in zip(records[0]["step_ms"], totals, strict=True)]
    return records


def materialising_step(case: Case) -> Callable[[], None]:
    """Returns Algorithm 1 as the published code runs it: all per-example gradients are formed."""
    from tf_lowrank_dp.gradient_methods.recorded import bookkeeping
    from tf_lowrank_dp.training.compiled_loss import CompiledLoss

    workload = prepare(case)
    model, (_, space) = workload.model, space_of(case)
    generator = np.random.default_rng(7)
    public = generator.uniform(size=(case.anchors, *workload.x.shape[1:])).astype("float32")
    labels = tf.constant(generator.integers(0, 2, case.anchors), tf.int32)
    x, y = tf.constant(workload.x[: case.batch]), tf.constant(workload.y[: case.batch])

    def gradients(x, y):
        loss = CompiledLoss(model, float(x.shape[0]))
        found = bookkeeping(model, loss, {"x": x, "y": y}).gradients
        return [tf.reshape(g.materialize(), [x.shape[0], -1]) for g in found]

    def step():
        anchors, private = gradients(tf.constant(public), labels), gradients(x, y)
        sums = []
        for group, k in zip(space.groups, space.num_bases, strict=True):
            anchor, own = (tf.concat([v[i] for i in group], 1) for v in (anchors, private))
            basis = tf.random.normal((k, anchor.shape[1]))
            basis = tf.matmul(tf.matmul(basis, anchor, transpose_b=True), anchor)
            basis = tf.transpose(tf.linalg.qr(tf.transpose(basis))[0])
            embedding = tf.matmul(own, basis, transpose_b=True)
            residual = own - tf.matmul(embedding, basis)
            clips = [1.0 / tf.norm(v, axis=1, keepdims=True) for v in (embedding, residual)]
            sums.append(tf.reduce_sum(embedding * clips[0], 0))
            sums.append(tf.reduce_sum(residual * clips[1], 0))
        return sums

    return graph(step)


def peak(case: Case, materialise: bool) -> float:
    """MiB by which a step raises the memory of this process, which must be a fresh one."""
    step_of(Case("mlp", 2))()  # starts the runtime
    reset_peak()
    before = peak_mib()
    step = (materialising_step if materialise else step_of)(case)
    for _ in range(3):
        step()
    return peak_mib() - before


def median_peak(case: Case, materialise: bool) -> float:
    """Median of three fresh processes: allocators differ by a tenth from one to the next."""
    return statistics.median(run_isolated(peak, case, materialise) for _ in range(3))


def table_4(case: Case) -> dict[str, Any]:
    """The formulas of Table 4 for the groups of a case: operations and numbers stored."""
    from tf_lowrank_dp.release.anchor_groups import size_of

    _, space = space_of(case)
    m, n = case.anchors, case.batch
    sizes = [size_of(space.parameters, group) for group in space.groups]
    pairs = list(zip(space.num_bases, sizes, strict=True))
    return {
        "parameters": sum(sizes),
        "operations": sum(2 * m * k * p + p * k * k for k, p in pairs),
        "numbers": max(0, sum((m - n + k) * p + m * k for k, p in pairs)),
    }


def curves(repeat: int) -> list[dict[str, Any]]:
    """Time and memory over `num_bases`, anchors and parameters, beside Table 4."""
    cases = [Case(anchors=1000, num_bases=k) for k in (125, 250, 500, 1000)]
    cases += [Case(anchors=m) for m in (250, 500, 2000)]
    cases += [Case(model, 250, 500) for model in ("mnist_cnn", "mlp", "cnn")]
    records = []
    for case in cases:
        baseline = step_of(Case(case.model, case.batch))
        found = timed({"dpsgd": baseline, "gep": step_of(case)}, repeat)
        memory = median_peak(case, False)
        records.append({"case": asdict(case), **found, "mib": memory, "table_4": table_4(case)})
        print(row(records[-1]), flush=True)
    return records


def row(record: dict[str, Any]) -> str:
    """Formats one point of a curve."""
    case, formulas = record["case"], record["table_4"]
    ratio = record["gep"][1] / record["dpsgd"][1]
    return (
        f"| {case['model']} | {case['batch']} | {case['anchors']} | {case['num_bases']} "
        f"| {formulas['parameters']:,} | {record['gep'][1]:.0f} | {ratio:.2f} "
        f"| {formulas['operations'] / 1e9:.1f} | {record['mib']:.0f} "
        f"| {4 * formulas['numbers'] / 2**20:.0f} |"
    )


def verdict(name: str, value: float, target: float) -> str:
    """One line of the report."""
    return f"{name}: {value:.2f}, target {target} {'PASS' if value <= target else 'FAIL'}"


def main(argv: list[str] | None = None) -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeat", type=int, default=9)
    parser.add_argument("--jit", action="store_true", help="compile the steps with XLA")
    parser.add_argument("--curves", action="store_true", help="the curves, not the targets")
    parser.add_argument("--json", type=Path, help="write the records to this file")
    args = parser.parse_args(argv)
    record: dict[str, Any] = {**ORIGIN}
    if args.curves:
        record["curves"] = curves(args.repeat)
    else:
        record["ratios"] = run_isolated(ratios, args.repeat, args.jit)
        for found in record["ratios"]:
            name = f"{found['case']['anchors']} public examples, wall-clock / processor time"
            for value in found["ratio"]:
                print(verdict(name, value, found["target"]))
        for name, value in record["ratios"][0]["parts_ms"].items():
            print(f"  {name}: {value[0]:.0f} / {value[1]:.0f} ms")
        for value in record["ratios"][0]["over_parts"]:
            print(verdict("step over the sum of its parts", value, SUM_OF_PARTS))
        case = Case(anchors=2000, jit=args.jit)
        own, reference = (median_peak(case, choice) for choice in (False, True))
        record["mib"] = {"gep": own, "materialising": reference}
        print(f"peak memory {own:.0f} MiB, of the materialising reference {reference:.0f} MiB")
        print(verdict("memory", own / reference if reference else math.inf, MEMORY))
    if args.json:
        args.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""Writes training steps as StableHLO, with all that it takes to run them without TensorFlow."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import gzip
import json
import pathlib
import re
import shutil
from collections.abc import Iterator, Sequence
from typing import Any
from unittest import mock

import keras
import tensorflow as tf

from benchmarks.results.report import origin
from benchmarks.speed.gpu.inputs import described, made
from benchmarks.speed.steps import Spec, build_step, build_workload

HERE = pathlib.Path(__file__).resolve().parent
ORIGIN = origin(HERE)

TINY = {"layers": 1, "width": 64, "tokens": 8, "vocab": 50, "heads": 2}
MODELS: dict[str, tuple[str, dict[str, int]]] = {
    "bert_base": ("bert_base", {}),
    "gpt2_small": ("gpt2_small", {}),
    "wrn28_10": ("wrn28_10", {}),
    "resnet50": ("resnet50", {}),
    "tiny": ("transformer", TINY),
}
"""Names of `benchmarks.models.MODELS`, and arguments of the builders."""

PRECISIONS = {"float32": "float32", "tf32": "float32", "bfloat16": "mixed_bfloat16"}
"""Dtype policies.  JAX multiplies float32 in TF32 on a GPU unless a program asks for more."""


@dataclasses.dataclass(frozen=True)
class Program:
    """One step to be written out.

    Attributes:
        model: a key of `MODELS`.
        optimizer: a key of `benchmarks.optimizers.OPTIMIZERS`.
        precision: a key of `PRECISIONS`.
        batch: number of examples.
    """

    model: str
    optimizer: str
    precision: str
    batch: int

    @property
    def name(self) -> str:
        """Of its files."""
        return f"{self.model}-{self.optimizer}-{self.precision}-{self.batch}"


def export(programs: Sequence[Program], folder: pathlib.Path, checked: bool) -> None:
    """Writes the programs, their descriptions and what runs them to a folder.

    Args:
        programs: to be written.
        folder: made if missing.
        checked: whether TensorFlow computes each step here, for a comparison.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("run.py", "inputs.py"):
        shutil.copy(HERE / name, folder / name)
    for program in programs:
        text, facts = written(program, checked)
        (folder / f"{program.name}.mlir.gz").write_bytes(gzip.compress(text.encode()))
        facts = {**dataclasses.asdict(program), **facts, **ORIGIN}
        (folder / f"{program.name}.json").write_text(json.dumps(facts))
        print(program.name, f"{len(text) / 2**20:.1f} MiB of text", flush=True)
        keras.backend.clear_session()
        gc.collect()


def written(program: Program, checked: bool) -> tuple[str, dict[str, Any]]:
    """The text of a step, and the description of its inputs and outputs.

    The step takes the batch and all variables, and gives the loss, the norms of the moving averages
    of the gradients, and the variables that it changed.

    Args:
        program: to be written.
        checked: whether what TensorFlow computes is among the facts.
    """
    model_name, arguments = MODELS[program.model]
    spec = Spec(model_name, program.batch, program.optimizer, model_args=arguments)
    keras.config.set_dtype_policy(PRECISIONS[program.precision])
    try:
        with as_with_a_gpu():
            workload = build_workload(spec)
            step = build_step(workload, spec)
            optimizer = workload.model.optimizer
            adam = getattr(optimizer, "inner_optimizer", optimizer)
            averages = [v for v in adam.variables if "momentum" in v.path]

            def outputs(batch: Any) -> list[tf.Tensor]:
                loss = step.function(batch)["loss"]
                return [loss, *[tf.norm(tf.cast(v.value, tf.float32)) for v in averages]]

            function = tf.function(outputs, jit_compile=True, autograph=False)
            text, captured = stablehlo(function, [step.batch], program.precision)
    finally:
        keras.config.set_dtype_policy("float32")
    values = [*tf.nest.flatten(step.batch), *captured]
    descriptions = [described(tf.convert_to_tensor(value).numpy()) for value in values]
    facts: dict[str, Any] = {"inputs": descriptions, "outputs": 1 + len(averages)}
    if checked:
        numbers = [made(description, seed) for seed, description in enumerate(descriptions)]
        flat = tf.nest.flatten(step.batch)
        batch = tf.nest.pack_sequence_as(step.batch, [tf.constant(n) for n in numbers[: len(flat)]])
        for variable, value in zip(captured, numbers[len(flat) :], strict=True):
            if isinstance(variable, tf.Variable):
                variable.assign(value)
        facts["expected"] = [float(output) for output in function(batch)]
    return text, facts


def stablehlo(
    function: tf.types.experimental.PolymorphicFunction, arguments: Sequence[Any], precision: str
) -> tuple[str, list[tf.Variable | tf.Tensor]]:
    """The text of a function that XLA compiles, and what it takes after its arguments.

    Args:
        function: of tensors.
        arguments: as it is called.
        precision: a key of `PRECISIONS`, of its float32 products.
    """
    concrete = function.get_concrete_function(*arguments)
    text = function.experimental_get_compiler_ir(*arguments)(stage="stablehlo")
    return _portable(_at_precision(text, precision)), _variables_of(concrete.captured_inputs)


@contextlib.contextmanager
def as_with_a_gpu() -> Iterator[None]:
    """Context in which steps are traced as they are where there is a GPU."""
    listed = tf.config.list_physical_devices

    def devices(kind: str | None = None) -> list[tf.config.PhysicalDevice]:
        if kind != "GPU":
            return listed(kind)
        return [tf.config.PhysicalDevice("/physical_device:GPU:0", "GPU")]

    with mock.patch.object(tf.config, "list_physical_devices", devices):
        yield


def _variables_of(captured: Sequence[tf.Tensor]) -> list[tf.Variable | tf.Tensor]:
    """The variables of handles; other tensors are constants of the step."""
    handles = {id(tensor) for tensor in captured}
    variables = [o for o in gc.get_objects() if isinstance(o, tf.Variable)]
    by_handle = {id(v.handle): v for v in variables if id(v.handle) in handles}
    return [by_handle[id(t)] if t.dtype == tf.resource else t for t in captured]


def _at_precision(text: str, precision: str) -> str:
    return re.sub(r"\bDEFAULT\b", "HIGHEST", text) if precision == "float32" else text


def _portable(text: str) -> str:
    """StableHLO alone, without names of operations, which are most of it, and donated buffers."""
    lines = [line for line in text.splitlines() if not line.startswith("#loc")]
    lines[0] = re.sub(r" attributes \{.*\} \{$", " {", lines[0])
    text = re.sub(_LOCATION, "", "\n".join(lines))
    text = re.sub(r" \{mhlo\.frontend_attributes = \{[^{}]*\}\}", "", text)
    return text.replace("mhlo.copy", "stablehlo.optimization_barrier")


_LOCATION = r" loc\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)"

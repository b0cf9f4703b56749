"""Writes training steps and evaluations, with all that `train.py` needs beside JAX."""

from __future__ import annotations

import gc
import gzip
import json
import math
import pathlib
import shutil
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from benchmarks.models import Workload, wide_resnet_groupnorm
from benchmarks.optimizers import OPTIMIZERS, PLAIN
from benchmarks.reproductions.accuracy import DELTA, HELD_OUT
from benchmarks.reproductions.wide_resnet import images
from benchmarks.results.report import origin
from benchmarks.speed.gpu import inputs
from benchmarks.speed.gpu.export import PRECISIONS, as_with_a_gpu, stablehlo
from benchmarks.speed.steps import step_of_run

HERE = pathlib.Path(__file__).resolve().parent
ORIGIN = origin(HERE)

NETWORKS = {
    "wrn16_4": {"depth": 16, "use_bias": True},
    "wrn28_4": {"depth": 28, "use_bias": True},
    "tiny": {"depth": 4, "widen": 1, "use_bias": True},
}
"""Arguments of `benchmarks.models.wide_resnet_groupnorm`; biases, for centring to take from."""

L2_NORM_CLIP = 1.0
MOMENTUM = 0.9
EVALUATED = 1000  # images at once


class Training(NamedTuple):
    """What the methods have in common.

    Attributes:
        network: a key of `NETWORKS`.
        epsilon: at `DELTA`, of all steps of one run.
        steps: of one run.
        batch_size: expected number of rows of a Poisson sample.
        examples: number of training images, without those held out.
        precision: a key of `benchmarks.speed.gpu.export.PRECISIONS`.
    """

    network: str
    epsilon: float
    steps: int
    batch_size: int
    examples: int
    precision: str


def write_programs(training: Training, methods: Sequence[str], folder: pathlib.Path) -> None:
    """Writes the step of each method, and what tells the classes of images by its weights.

    Args:
        training: of them all.
        methods: keys of `benchmarks.optimizers.OPTIMIZERS`.
        folder: made if missing.
    """
    import tf_lowrank_dp as tfdp

    folder.mkdir(parents=True, exist_ok=True)
    for file in (HERE / "train.py", images.__file__, inputs.__file__):
        shutil.copy(file, folder)
    noise_multiplier = tfdp.accounting.calibrate_noise_multiplier(
        training.epsilon, DELTA, training.batch_size, training.examples, steps=training.steps
    )
    common = {**training._asdict(), "delta": DELTA, "held_out": HELD_OUT, **ORIGIN}
    for method in methods:
        keras.config.set_dtype_policy(PRECISIONS[training.precision])
        try:
            with as_with_a_gpu():
                step, evaluation, facts = _written(training, method, noise_multiplier)
        finally:
            keras.config.set_dtype_policy("float32")
        facts |= {**common, "method": method, "l2_norm_clip": L2_NORM_CLIP}
        facts["noise_multiplier"] = None if method == PLAIN else noise_multiplier
        stem = f"{training.network}-{method}"
        for kind, text in (("step", step), ("evaluation", evaluation)):
            (folder / f"{stem}.{kind}.gz").write_bytes(gzip.compress(text.encode()))
        (folder / f"{stem}.json").write_text(json.dumps(facts))
        print(stem, f"{len(step) / 2**20:.1f} MiB of text", flush=True)
        keras.backend.clear_session()
        gc.collect()


def _written(
    training: Training, method: str, noise_multiplier: float
) -> tuple[str, str, dict[str, Any]]:
    """The texts of a step and of the evaluation, and what they take."""
    rows = training.batch_size
    if method != PLAIN:  # five deviations more: one Poisson sample of millions has more rows
        rows = 16 * math.ceil((rows + 5 * math.sqrt(rows)) / 16)
    workload = wide_resnet_groupnorm(num_examples=rows, **NETWORKS[training.network])
    model, optimizer = workload.model, keras.optimizers.SGD(1.0, momentum=MOMENTUM)
    rate = optimizer.learning_rate.value
    if method == PLAIN:
        model.compile(optimizer, loss=workload.loss)
        optimizer.build(model.trainable_variables)
        batch, train = {"x": workload.x, "y": workload.y}, model.train_step
    else:
        privacy = {"l2_norm_clip": L2_NORM_CLIP, "noise_multiplier": noise_multiplier}
        optimizer = OPTIMIZERS[method](optimizer, **privacy)
        batch, train = _private_step(workload, optimizer, training.batch_size)
    batch = tf.nest.map_structure(tf.constant, batch)

    def loss_of(batch: Any) -> tf.Tensor:
        return train((batch["x"], batch["y"]) if method == PLAIN else batch)["loss"]

    # Traced twice: the first time tells which variables there are.
    function = tf.function(loss_of, jit_compile=True, autograph=False)
    _, captured = stablehlo(function, [batch], training.precision)
    state = [value for value in captured if isinstance(value, tf.Variable)]

    def step(batch: Any) -> list[tf.Tensor]:
        with tf.control_dependencies([loss := loss_of(batch)]):
            return [loss, *[variable.read_value() for variable in state]]

    function = tf.function(step, jit_compile=True, autograph=False)
    text, captured = stablehlo(function, [batch], training.precision)
    evaluate = tf.function(lambda x: model(x, training=False), jit_compile=True, autograph=False)
    zeros = tf.zeros((EVALUATED, *workload.x.shape[1:]))
    evaluation, read = stablehlo(evaluate, [zeros], training.precision)
    facts = {
        "rows": rows,
        "parameters": model.count_params(),
        "batch": sorted(batch),
        "state": described(state),
        "takes": [_place(value, state) for value in captured],
        "evaluation_takes": [_place(value, state) for value in read],
        "rate": _place(rate, state),
    }
    return text, evaluation, facts


def _private_step(
    workload: Workload, optimizer: keras.optimizers.Optimizer, batch_size: int
) -> tuple[dict[str, np.ndarray], Callable[[Any], dict[str, tf.Tensor]]]:
    """A full batch, and the step of `fit` on it."""
    import tf_lowrank_dp as tfdp
    from tf_lowrank_dp.training.compiled_loss import CompiledLoss
    from tf_lowrank_dp.training.start_run import start_run

    model = tfdp.make_private(workload.model)
    model.compile(optimizer, loss=workload.loss)
    sampling = tfdp.PoissonSampler(workload.x, workload.y, batch_size=batch_size, steps=1).sampling
    run = start_run(model, sampling, steps=1, loss=CompiledLoss(model, float(batch_size)))
    batch = {"x": workload.x, "y": workload.y, "presence": np.ones(len(workload.y), np.float32)}
    return batch, step_of_run(model, run, batch)


def _place(value: Any, state: Sequence[tf.Variable]) -> int | dict[str, Any]:
    """The place of a variable in the state, or the description of a constant."""
    for place, variable in enumerate(state):
        if variable is value:
            return place
    return inputs.described(tf.convert_to_tensor(value).numpy())


def described(state: Sequence[tf.Variable]) -> list[dict[str, Any]]:
    """How to make the variables; those that begin equal, such as a copy of weights, stay so."""
    from tf_lowrank_dp.tracing.secret_stream import SecretStream

    keys = [stream._key for stream in gc.get_objects() if isinstance(stream, SecretStream)]
    found: list[dict[str, Any]] = []
    values: list[np.ndarray] = []
    for variable in state:
        value = variable.numpy()
        description = inputs.described(value)
        if any(variable is key for key in keys):
            description = {"kind": "secret"}
        elif description["kind"] == "normal":
            equal = [n for n, other in enumerate(values) if np.array_equal(other, value)]
            description |= {"like": equal[0]} if equal else {}
        values.append(value)
        found.append(description)
    return found

"""One training step, plain or private, as a function without arguments to call and time."""

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import keras
import tensorflow as tf

from benchmarks.models import MODELS, Workload
from benchmarks.optimizers import OPTIMIZERS, PLAIN


@dataclass(frozen=True)
class Spec:
    """What to measure.

    Attributes:
        model: Name of the model in `MODELS`.
        batch: Number of examples of a step.
        optimizer: Name of the optimizer in `OPTIMIZERS`.
        jit: Whether the step is compiled with XLA.
        repeat: Number of timed pairs of samples.
        gradient_method: How the private optimizer computes per-example gradients.
        model_args: Arguments of the model's builder.
        microbatch_size: Examples that the private step handles at a time; None for all.
        against: Name of the optimizer that it is compared with.
    """

    model: str
    batch: int
    optimizer: str
    jit: bool = False
    repeat: int = 15
    gradient_method: str = "auto"
    model_args: dict[str, int] = field(default_factory=dict)
    microbatch_size: int | None = None
    against: str = PLAIN


@dataclass
class Step:
    """A compiled training step on one fixed batch.

    Attributes:
        function: The `tf.function` of `model.train_step`.
        batch: What the function is called with.
        prepare_s: Seconds spent on making the model ready before the first call.
    """

    function: Callable[[Any], dict[str, tf.Tensor]]
    batch: Any
    prepare_s: float

    def __call__(self) -> float:
        """Runs the step, waits for it and returns the seconds it took."""
        start = time.perf_counter()
        logs = self.function(self.batch)
        float(logs["loss"])
        return time.perf_counter() - start


def build_workload(spec: Spec) -> Workload:
    """Builds the model and four batches of data, so that a batch is a sample of the data."""
    keras.utils.set_random_seed(0)
    return MODELS[spec.model](num_examples=4 * spec.batch, **spec.model_args)


def build_step(workload: Workload, spec: Spec) -> Step:
    """Compiles the workload's model and returns its training step.

    Args:
        workload: The model, which is changed in place, and its data.
        spec: What to measure.

    Returns:
        The step, built but not traced yet.
    """
    start = time.perf_counter()
    model = workload.model
    x, y = tf.nest.map_structure(lambda a: tf.constant(a[: spec.batch]), workload[1:3])
    if spec.optimizer == PLAIN:
        _compile(workload, spec)
        model.optimizer.build(model.trainable_variables)
        train_step = model.train_step
        batch = (x, y)
    else:
        batch = {"x": x, "y": y, "presence": tf.ones(len(y))}
        train_step = _private_train_step(workload, spec, batch)
    # As in Keras' own train function; a private step compiles its parts itself.
    jit_compile = spec.jit and spec.optimizer == PLAIN
    function = tf.function(train_step, jit_compile=jit_compile, autograph=False)
    return Step(function, batch, time.perf_counter() - start)


def _compile(workload: Workload, spec: Spec) -> None:
    optimizer = OPTIMIZERS[spec.optimizer](
        keras.optimizers.Adam(1e-3),
        l2_norm_clip=1.0,
        noise_multiplier=1.1,
        gradient_method=spec.gradient_method,
    )
    workload.model.compile(optimizer=optimizer, loss=workload.loss, jit_compile=spec.jit)


def _private_train_step(
    workload: Workload, spec: Spec, batch: dict
) -> Callable[[Any], dict[str, tf.Tensor]]:
    """Makes the model private and returns its step, ready without `fit`.

    The only place that uses more of the library than its optimizers.
    """
    import tf_lowrank_dp as tfdp
    from tf_lowrank_dp.training.compiled_loss import CompiledLoss
    from tf_lowrank_dp.training.start_run import start_run

    tfdp.make_private(workload.model, microbatch_size=spec.microbatch_size)
    _compile(workload, spec)
    sampler = tfdp.PoissonSampler(workload.x, workload.y, batch_size=spec.batch, steps=1)
    loss = CompiledLoss(workload.model, float(spec.batch))
    run = start_run(workload.model, sampler.sampling, steps=1, loss=loss)
    return step_of_run(workload.model, run, batch)


def step_of_run(model: keras.Model, run, batch: dict) -> Callable[[Any], dict[str, tf.Tensor]]:
    """Returns the private step of a run that was started without `fit`.

    Args:
        model: Private, compiled.
        run: Its run, with a loss.
        batch: A logical batch of the form that it will train on, with which it is probed.
    """
    from tf_lowrank_dp.training.judged_graphs import JudgedGraphs
    from tf_lowrank_dp.training.running_fit import executing

    parts = {key: value for key, value in batch.items() if key != "presence"}
    method, rows = run.optimizer.gradient_method, len(batch["presence"])
    run.judged = JudgedGraphs(model, run.loss, method, rows)
    run.judged.judge(tf.nest.map_structure(lambda a: tf.TensorSpec(a.shape, a.dtype), parts))
    run.engine = dataclasses.replace(run.engine, part_rows=run.judged.units)

    def train_step(batch):
        with executing(run):
            return model.train_step(batch)

    return train_step

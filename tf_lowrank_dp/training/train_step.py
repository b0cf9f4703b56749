"""The private `train_step` of a model that was made private."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import keras
import tensorflow as tf

from tf_lowrank_dp._types import Nested
from tf_lowrank_dp.errors import NotPrivateError
from tf_lowrank_dp.optimizers.base import DPOptimizer
from tf_lowrank_dp.per_example.units import Units
from tf_lowrank_dp.release.space import ReleaseSpace
from tf_lowrank_dp.sampling.batch import PRESENCE, ROW_WEIGHT, unpack_batch
from tf_lowrank_dp.tracing.traced_part import traced_part
from tf_lowrank_dp.training.added_losses import regularization_gradients
from tf_lowrank_dp.training.distribution import refuse_distribution
from tf_lowrank_dp.training.judged_graphs import JudgedGraphs
from tf_lowrank_dp.training.known_code import is_library_class, is_library_object
from tf_lowrank_dp.training.metrics import seeds_put_back, update_metrics
from tf_lowrank_dp.training.running_fit import bound_to_run, executed_run
from tf_lowrank_dp.training.state import refuse_other_variables, state_of
from tf_lowrank_dp.training.written_beside import tell_what_is_written_beside


def train_step(model: keras.Model, batch: dict) -> dict:
    """One private step on a logical batch; what `fit` runs.

    Args:
        model: private, compiled with a private optimizer, while its `fit` executes a step.
        batch: a logical batch, see `tf_lowrank_dp.sampling.batch`.

    Returns:
        The metrics' results.
    """
    refuse_distribution()
    optimizer = private_optimizer(model)
    run = executed_run(model)
    refuse_other_variables(model, run)
    rest = dict(batch)
    weights = rest.pop(ROW_WEIGHT, None)
    presence = unpack_batch(rest)[-1]
    del rest[PRESENCE]
    jit_compile = bool(model.jit_compile) and not model.run_eagerly
    assert run.loss is not None and run.judged is not None
    judged = run.judged

    def on_outputs(*part: Nested) -> None:
        with judged.watched_metrics(), seeds_put_back(model):
            update_metrics(model, *part)

    def results() -> dict:
        with judged.watched_metrics(), seeds_put_back(model):
            return model.get_metrics_result()

    gradients = run.engine.private_gradients(
        run.loss,
        rest if weights is None else Units(rest, weights),
        presence,
        on_outputs=on_outputs,
        watched=judged.watched,
        jit_compile=jit_compile,
    )
    compiled = tf.function(apply_gradients, jit_compile=True, autograph=False)
    apply = compiled if jit_compile else apply_gradients
    apply(model, optimizer, run.engine.space, gradients, judged, run.loss.with_penalties)
    return tf.function(results, autograph=False)()  # what is written is seen in graphs only


def make_train_function(model: keras.Model, force: bool = False) -> None:
    """Keras' train function around `train_step`, for the present run; see `running_fit`.

    The step compiles its parts itself: XLA would draw the noise four times slower on a CPU, so it
    stays outside of what is compiled.
    """
    present = getattr(model.train_function, "steps_per_execution", None)
    if present == model.steps_per_execution and not force:
        return
    model.train_function = None
    jit_compile, model.jit_compile = model.jit_compile, False
    try:
        type(model).make_train_function(model, force)
    finally:
        model.jit_compile = jit_compile
    model.train_function = bound_to_run(model, model.train_function)


def apply_gradients(
    model: keras.Model,
    optimizer: DPOptimizer,
    space: ReleaseSpace,
    gradients: Sequence[tf.Tensor],
    judged: JudgedGraphs | None,
    with_penalties: bool = True,
) -> list[tf.Tensor]:
    """Adds the gradients of weight regularisers and hands the sum to the inner optimizer.

    Guarantee: what was spent on other models' variables that regularisers, constraints or the inner
    optimizer read counts, as it does for what the forward pass reads.  In eager mode, where code
    that is not Keras' or ours takes part, each update is a graph that is looked at before it runs.

    Args:
        model: whose trainable variables are updated.
        optimizer: private, of the model.
        space: whose lift the gradients are.
        gradients: of the trainable variables.
        judged: counts what is read; None before the first release of a custom loop.
        with_penalties: whether weight regularisers count.

    Returns:
        Tensors, and handles of variables, that the update is computed from, if this is a graph.
    """
    variables = model.trainable_variables
    given: list[tf.Tensor] = []

    def update(*gradients: tf.Tensor) -> None:
        with contextlib.ExitStack() as around:
            around.enter_context(space.updating())
            if not tf.executing_eagerly():
                around.enter_context(_watched(judged, given))
            penalties = regularization_gradients(model) if with_penalties else []
            if penalties:
                pairs = zip(gradients, penalties, strict=True)
                gradients = tuple(g if p is None else g + tf.cast(p, g.dtype) for g, p in pairs)
            cast = [keras.ops.cast(g, v.dtype) for g, v in zip(gradients, variables, strict=True)]
            optimizer.apply_private(cast, variables)

    read_before = 0 if judged is None else judged.number_read
    if tf.executing_eagerly() and not _is_updated_by_libraries(model, optimizer):
        # What is read is seen in graphs only, and Python may read something else at each update.
        tf.function(update, autograph=False)(*gradients)
    else:
        update(*gradients)
    if judged is not None and judged.number_read > read_before:
        tell_what_is_written_beside(model)  # others may write what it reads from now on
    return given


@contextlib.contextmanager
def _watched(judged: JudgedGraphs | None, given: list[tf.Tensor]) -> Iterator[None]:
    """Context in which an update is traced; what it is computed from is counted, and added."""
    graph = tf.compat.v1.get_default_graph()
    before = len(graph.get_operations())
    yield
    part = traced_part(graph, before)
    given += [*part.given, *part.reads]
    if judged is not None:
        judged.count(part)


def _is_updated_by_libraries(model: keras.Model, optimizer: DPOptimizer) -> bool:
    """Whether no code but Keras' and ours makes an update, which reads nothing of other models."""
    listed = [*model.trainable_variables, *optimizer.variables]
    run = state_of(model).run
    assert run is not None
    # Others are given to the optimizer once the run has begun: Keras lists them with its own.
    others = {*map(id, run.record.reading.of_others([each.value.handle for each in listed]))}
    own = {id(each) for each in listed if id(each.value.handle) not in others}
    used = [(v.regularizer, v.constraint) for v in model.trainable_variables]
    return is_library_class(type(optimizer)) and is_library_object(
        [optimizer.inner_optimizer, used], own
    )


def private_optimizer(model: keras.Model) -> DPOptimizer:
    """The private optimizer that the model was compiled with.

    Raises:
        NotPrivateError: there is none.
    """
    optimizer = getattr(model, "optimizer", None)
    inner = getattr(optimizer, "inner_optimizer", None)
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer) and isinstance(
        inner, DPOptimizer
    ):
        raise NotPrivateError(
            "Expected the private optimizer itself. Received: a LossScaleOptimizer around it, "
            "which Keras adds under mixed_float16. Pass auto_scale_loss=False to "
            "model.compile: clipping and noise act in float32 and need no loss scaling."
        )
    if not isinstance(optimizer, DPOptimizer):
        raise NotPrivateError(
            "Expected a private model to be compiled with a private optimizer, such as "
            f"tfdp.DPSGDOptimizer. Received: {type(optimizer).__name__}, which would train "
            "without privacy. Compile with a private optimizer, or call "
            "tfdp.make_standard(model) for ordinary training."
        )
    return optimizer

"""Looks at the traced forward and backward pass: does an operation join the rows of a batch?

Unlike the probe, which compares numbers, this does not depend on them: what hides behind a gate of
zero, in a branch for large batches or behind values that random data do not have is found as well.
"""

from __future__ import annotations

from collections.abc import Callable

import keras
import tensorflow as tf

from tf_lowrank_dp._types import Nested
from tf_lowrank_dp.errors import UnsupportedModelError
from tf_lowrank_dp.layers.recorder import Recorder
from tf_lowrank_dp.layers.registry import capturing
from tf_lowrank_dp.tracing.axis_walk import Walk
from tf_lowrank_dp.tracing.example_axis import Joined, Rows
from tf_lowrank_dp.tracing.random_ops import FixedSource, random_numbers_from, seeds_kept

_SIZES = (1009, 1013, 1019, 1021, 1031, 1033, 1039)


def check_rows(model: keras.Model, forward: Callable, element_spec: Nested, recorded: bool) -> bool:
    """Refuses a forward or backward pass that joins the examples of a batch.

    Args:
        model: a built model.
        forward: takes a batch and returns losses `(b,)` and more.
        element_spec: nested `tf.TensorSpec` of such a batch.
        recorded: whether layers will be recorded; then the gradients of their outputs are followed
            as well.

    Returns:
        Whether it is proven that each loss, and each gradient, depends on one example alone.  If
        not, some operation is not known here, and only the probe tells.

    Raises:
        UnsupportedModelError: an operation joins examples, or a recorded layer has none in the
            first axis of its output.
    """
    size = _size_unlike(model, element_spec)
    batch = tf.nest.map_structure(
        lambda spec: tf.TensorSpec([size, *spec.shape[1:]], spec.dtype), element_spec
    )

    def losses(batch: Nested) -> tf.Tensor:
        with random_numbers_from(FixedSource()), seeds_kept():
            return forward(batch)[0]

    def gradients(batch: Nested) -> list[tf.Tensor]:
        tape = tf.GradientTape(watch_accessed_variables=False)
        with random_numbers_from(FixedSource()), seeds_kept():
            recorder = Recorder(model.trainable_variables, tape, size)
            with tape, capturing(model), recorder:
                found, _ = forward(batch)
            watched = [output for site in recorder.sites for output in site.outputs]
            return [gradient for gradient in tape.gradient(found, watched) if gradient is not None]

    try:
        graph = _traced(losses, batch)
    except UnsupportedModelError:
        raise
    except (ValueError, TypeError, tf.errors.OpError):
        return False  # It cannot be traced with this number of examples.
    # Where examples are differentiated one at a time, none can be joined with others.
    proven = _follow(model, graph, batch, size, "its losses" if recorded else None)
    if not recorded:
        return proven
    try:
        graph = _traced(gradients, batch)
    except UnsupportedModelError:
        raise
    except ValueError as error:
        raise UnsupportedModelError(
            "Expected layers whose outputs have the examples in their first axis. Received: "
            f"'{model.name}', which cannot be traced with them recorded ({error}). If the model "
            "joins examples with another axis, use gradient_method='vectorized', or register the "
            "class of the surrounding layer with tf_lowrank_dp.layers.register_fallback."
        ) from error
    return _follow(model, graph, batch, size, "the gradients of its losses") and proven


def _traced(function: Callable, batch: Nested) -> tf.Graph:
    return tf.function(function, autograph=False).get_concrete_function(batch).graph


def _follow(
    model: keras.Model, graph: tf.Graph, batch: Nested, size: int, what: str | None
) -> bool:
    """Whether the results of a graph are of one example each; refuses `what` joins several."""
    labels = Walk(size).outputs(graph, [Rows(0)] * len(tf.nest.flatten(batch)))
    for label in labels:
        if isinstance(label, Joined) and what is not None:
            raise _joins(model, label, what)
    return all(label == Rows(0) for label in labels)


def _size_unlike(model: keras.Model, element_spec: Nested) -> int:
    """A number of examples that no other axis could be mistaken for."""
    specs = tf.nest.flatten(element_spec)
    lengths = {n for spec in specs if spec.shape.rank for n in spec.shape[1:] if n}
    lengths |= {n for variable in model.variables for n in variable.shape}
    return next((n for n in _SIZES if all(length % n for length in lengths)), _SIZES[0])


def _joins(model: keras.Model, label: Joined, what: str) -> UnsupportedModelError:
    return UnsupportedModelError(
        "Expected layers and losses that treat each example by itself. Received: "
        f"'{model.name}', where {label.by} joins the examples of a batch on the way to {what}, "
        "whatever its weights are now. Replace the layer or loss that mixes examples (batch "
        "statistics, contrastive or ranking losses, means over the batch): no clipping could "
        "bound one example's influence. If it gives each example what it would get alone, as "
        "rows do that are put in order and back, use gradient_method='vectorized', which takes "
        "one example at a time."
    )

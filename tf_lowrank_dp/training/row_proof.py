"""Looks at the traced forward and backward pass: does an operation join the rows of a batch?

Unlike the probe, which compares numbers, this does not depend on them: what hides behind a gate of
zero, in a branch for large batches or behind values that random data do not have is found as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import keras
import tensorflow as tf

from tf_lowrank_dp._types import Nested
from tf_lowrank_dp.errors import UnsupportedModelError
from tf_lowrank_dp.gradient_methods.recorded import record
from tf_lowrank_dp.tracing.axis_walk import Walk
from tf_lowrank_dp.tracing.example_axis import Joined, Rows, size_unlike
from tf_lowrank_dp.tracing.random_ops import FixedSource, random_numbers_from, seeds_kept


class RowProof(NamedTuple):
    """What is known of the rows of a forward and backward pass.

    Attributes:
        proven: whether each loss, and each gradient, depends on one example alone.  If not, some
            operation is not known here, and only the probe tells.
        shared_draw: an operation whose random numbers several rows share; None if there is none.
    """

    proven: bool
    shared_draw: str | None


def check_rows(
    model: keras.Model, forward: Callable, element_spec: Nested, recorded: bool
) -> RowProof:
    """Refuses a forward or backward pass that joins the examples of a batch.

    Args:
        model: a built model.
        forward: takes a batch and returns losses `(b,)` and more.
        element_spec: nested `tf.TensorSpec` of such a batch.
        recorded: whether layers will be recorded; then the gradients of their outputs are followed
            as well.

    Returns:
        What was found.  Where examples are differentiated one at a time, none share a draw.

    Raises:
        UnsupportedModelError: an operation joins examples, or a recorded layer has none in the
            first axis of its output.
    """
    size = size_unlike(model, element_spec)
    batch = tf.nest.map_structure(
        lambda spec: tf.TensorSpec([size, *spec.shape[1:]], spec.dtype), element_spec
    )

    places, source = [Rows(0)], FixedSource()

    def losses(batch: Nested) -> list[tf.Tensor]:
        with random_numbers_from(source), seeds_kept():
            return [forward(batch)[0]]

    def gradients(batch: Nested) -> list[tf.Tensor]:
        tape = tf.GradientTape(watch_accessed_variables=False)
        with random_numbers_from(source):
            with tape:
                sites, found, _ = record(model, forward, batch, tape)
            watched = [(output, site.rows) for site in sites for output in site.outputs]
            results = tape.gradient(found, [output for output, _ in watched])
            pairs = zip(results, watched, strict=True)
            kept = [(gradient, rows) for gradient, (_, rows) in pairs if gradient is not None]
            places[1:] = [rows for _, rows in kept]
            return [found, *(gradient for gradient, _ in kept)]

    error = None
    if recorded:
        try:
            return _follow(model, _traced(gradients, batch), batch, places)
        except UnsupportedModelError:
            raise
        except (ValueError, TypeError, tf.errors.OpError) as raised:
            error, places[1:] = raised, []
    try:
        graph = _traced(losses, batch)
    except UnsupportedModelError:
        raise
    except (ValueError, TypeError, tf.errors.OpError):
        # It cannot be traced with this number of examples.
        unknown = "a random operation" if recorded and source.was_used else None
        return RowProof(False, unknown)
    # Where examples are differentiated one at a time, none can be joined with others.
    found = _follow(model, graph, batch, places, refuse=recorded)
    if error is not None:
        raise UnsupportedModelError(
            "Expected layers whose outputs have the examples in their first axis. Received: "
            f"'{model.name}', which cannot be traced with them recorded ({error}). If the model "
            "joins examples with another axis, use gradient_method='vectorized', or register the "
            "class of the surrounding layer with tf_lowrank_dp.layers.register_fallback."
        ) from error
    return RowProof(found.proven, found.shared_draw if recorded else None)


def _traced(function: Callable, batch: Nested) -> tf.Graph:
    return tf.function(function, autograph=False).get_concrete_function(batch).graph


def _follow(
    model: keras.Model, graph: tf.Graph, batch: Nested, places: Sequence[Rows], refuse: bool = True
) -> RowProof:
    """Whether the results of a graph, the losses first, are of one example each, and its draws.

    Args:
        model: the model.
        graph: of its losses, and of gradients of them.
        batch: nested `tf.TensorSpec` that it was traced with.
        places: where the examples have to be in each result.
        refuse: whether a result that joins several is refused.
    """
    leaves = tf.nest.flatten(batch)
    walk = Walk(leaves[0].shape[0])
    labels = walk.outputs(graph, [Rows(0)] * len(leaves))
    whats = ["its losses"] + ["the gradients of its losses"] * (len(labels) - 1)
    for label, what in zip(labels, whats, strict=True):
        if isinstance(label, Joined) and refuse:
            raise _joins(model, label, what)
    return RowProof(list(labels) == list(places), walk.shared_draw)


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

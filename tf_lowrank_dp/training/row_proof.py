"""Looks at a traced forward and backward pass: does an operation join the rows of a batch?

Unlike the probe, which compares numbers, this does not depend on them: what hides behind a gate of
zero, in a branch that is rarely taken or behind values that random data do not have is found as
well.  Only what is proven is differentiated with all examples of a batch at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import keras
import tensorflow as tf

from tf_lowrank_dp.errors import UnsupportedModelError
from tf_lowrank_dp.tracing.axis_walk import Walk
from tf_lowrank_dp.tracing.example_axis import Joined, Label, Public, Rows, Unknown


class RowProof(NamedTuple):
    """What is known of the rows of a forward and backward pass.

    Attributes:
        proven: whether each loss, and each gradient, depends on one example alone, its own random
            numbers included.
        by: if not, the operation that is not known to keep examples apart, or that draws random
            numbers which several share.
    """

    proven: bool
    by: str = ""


def prove_rows(
    model: keras.Model,
    graph: tf.Graph,
    leaves: int,
    results: Sequence[tuple[tf.Tensor, Label]],
    size: int,
) -> RowProof:
    """Follows the examples through a graph, as it will be trained.

    Args:
        model: the model.
        graph: of its losses and of gradients of them.
        leaves: number of tensors of a batch, the first inputs of the graph.
        results: losses first, and what each has to hold of the examples.
        size: number of examples, of which no other length is a multiple.

    Raises:
        UnsupportedModelError: an operation joins examples.
    """
    walk = Walk(size)
    labels = walk.labels(graph, [Rows(0)] * leaves)
    found = [labels.get(id(tensor), Public()) for tensor, _ in results]  # from outside: public
    for label, what in zip(found, _WHATS[:1] + _WHATS[1:] * len(found), strict=False):
        if isinstance(label, Joined):
            raise _joins(model, label, what)
    if walk.shared_draw:
        return RowProof(False, walk.shared_draw)
    wrong = [
        label
        for label, (_, wanted) in zip(found, results, strict=True)
        if label != wanted and not (isinstance(label, Public) and isinstance(wanted, Public))
    ]
    return RowProof(not wrong, _name(wrong[0]) if wrong else "")


_WHATS = ["its losses", "the gradients of its losses"]


def _name(label: Label) -> str:
    return label.by if isinstance(label, Unknown) else "an operation that moves the examples"


def _joins(model: keras.Model, label: Joined, what: str) -> UnsupportedModelError:
    return UnsupportedModelError(
        "Expected layers and losses that treat each example by itself. Received: "
        f"'{model.name}', where {label.by} joins the examples of a batch on the way to {what}, "
        "whatever its weights are now. Replace the layer or loss that mixes examples (batch "
        "statistics, contrastive or ranking losses, means over the batch): no clipping could "
        "bound one example's influence. If it gives each example what it would get alone, as "
        "rows do that are put in order and back, use gradient_method='vectorized', which takes "
        "one example at a time, or 'loop' where TensorFlow cannot vectorise that."
    )

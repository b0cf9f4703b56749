"""Per-example gradients of public examples, at the present weights of a model."""

from __future__ import annotations

from collections.abc import Callable

import keras
import tensorflow as tf

from tf_lowrank_dp._types import Nested
from tf_lowrank_dp.errors import UnsupportedModelError
from tf_lowrank_dp.gradient_methods.one_by_one import loop
from tf_lowrank_dp.gradient_methods.recorded import bookkeeping
from tf_lowrank_dp.tracing.random_ops import random_numbers_from
from tf_lowrank_dp.tracing.secret_stream import SecretStream
from tf_lowrank_dp.tracing.traced_part import traced_part
from tf_lowrank_dp.training.compiled_loss import CompiledLoss

_AT_ONCE = 512


def public_gradients(
    model: keras.Model,
    microbatch_size: int | None = None,
    target_spec: Nested = None,
    masks: SecretStream | None = None,
    reads: dict[int, tf.Tensor] | None = None,
) -> Callable[..., list[tuple[tf.Tensor, ...]]]:
    """A function that differentiates the compiled loss of each public example.

    It knows the model and what it is called with: no private example.

    Args:
        model: private and compiled with a loss.
        microbatch_size: largest number of examples differentiated at once; None for 512, which
            bounds what is held beside the gradients.
        target_spec: `tf.TensorSpec` of the private targets, whose form random classes take; None
            for integers `(m,)`.
        masks: gives random layers their numbers; None for a stream of its own.
        reads: gets the handles of the variables that it is found to read, by their `id`: a loss may
            ask another model, such as a private teacher, of public examples as well.

    Returns:
        `(features, labels, num_classes=None)` to, for each trainable variable, its gradients
        `(m, *shape)`, or their factors `(m, i)` and `(m, o)` (`PerExampleGradient.factors`).
        With `num_classes` the labels are classes `(m,)`, otherwise what the loss takes.

    Raises:
        UnsupportedModelError: when called, if the model has no loss.
    """

    masks = masks or SecretStream(purpose="public masks")
    losses: dict[int, CompiledLoss] = {}  # they make trackers of each output once

    def gradients(
        features: Nested, labels: Nested, num_classes: int | None = None
    ) -> list[tuple[tf.Tensor, ...]]:
        if num_classes is not None:
            labels = as_targets(labels, num_classes, target_spec)
        size = int(tf.nest.flatten(features)[0].shape[0])
        loss = losses.setdefault(size, CompiledLoss(model, float(size)))

        def part(batch: Nested) -> list[tuple[tf.Tensor, ...]]:
            rows = tf.nest.flatten(batch)[0].shape[0]
            graph = tf.compat.v1.get_default_graph()
            before = len(graph.get_operations())
            with random_numbers_from(masks):
                try:
                    found = bookkeeping(model, loss, batch).gradients
                except UnsupportedModelError:  # which private ones are not taken with, either
                    found = loop(model, loss, batch).gradients
                anchors = [gradient.factors() or (gradient.materialize(),) for gradient in found]
            if reads is not None:
                reads.update({id(handle): handle for handle in traced_part(graph, before).reads})
            return tf.nest.map_structure(
                lambda t: tf.ensure_shape(t, [rows, *t.shape[1:]]), anchors
            )

        if tf.executing_eagerly():
            part = tf.function(part, autograph=False)
        batch = {"x": features, "y": labels}
        count, rows = equal_parts(size, microbatch_size or _AT_ONCE)
        return part(batch) if count == 1 else _in_parts(part, batch, size, rows)

    return gradients


def as_targets(
    classes: tf.Tensor, num_classes: int, spec: tf.TensorSpec | None = None
) -> tf.Tensor:
    """Integer classes `(m,)` in the form of the private targets.

    Args:
        classes: int32 `(m,)`.
        num_classes: number of classes.
        spec: `tf.TensorSpec` of a batch of targets: `(None,)`, `(None, 1)`, or one-hot
            `(None, num_classes)`; None for `(None,)`.

    Raises:
        ValueError: the targets have another form.
    """
    if spec is None:
        return classes
    shape = tuple(spec.shape[1:]) if isinstance(spec, tf.TensorSpec) else None
    if shape == ():
        return tf.cast(classes, spec.dtype)
    if shape == (1,):
        return tf.cast(classes[:, None], spec.dtype)
    if shape == (num_classes,):
        return tf.one_hot(classes, num_classes, dtype=spec.dtype)
    raise ValueError(
        f"Expected targets of shape (batch,), (batch, 1) or (batch, {num_classes}) for random "
        f"labels of {num_classes} classes. Received: {spec}. Pass public_labels as arrays."
    )


def _in_parts(
    part: Callable, batch: Nested, size: int, microbatch_size: int
) -> list[tuple[tf.Tensor, ...]]:
    whole = size // microbatch_size * microbatch_size
    heads = tf.nest.map_structure(
        lambda t: tf.reshape(t[:whole], [-1, microbatch_size, *t.shape[1:]]), batch
    )
    one = tf.nest.map_structure(lambda t: tf.TensorSpec(t.shape[1:], t.dtype), heads)
    trace = tf.function(part, autograph=False).get_concrete_function(one)
    signature = tf.nest.map_structure(
        lambda t: tf.TensorSpec(t.shape, t.dtype), trace.structured_outputs
    )
    stacked = tf.map_fn(part, heads, parallel_iterations=1, fn_output_signature=signature)
    found = tf.nest.map_structure(lambda t: tf.reshape(t, [whole, *t.shape[2:]]), stacked)
    if whole == size:
        return found
    rest = part(tf.nest.map_structure(lambda t: t[whole:], batch))
    return tf.nest.map_structure(lambda *pair: tf.concat(pair, axis=0), found, rest)


def equal_parts(rows: int, most: int) -> tuple[int, int]:
    """Number and size of the parts of a batch: as few as can be, and no larger than needed.

    Args:
        rows: number of rows of the batch, at least 1.
        most: largest number of rows of a part.

    Example:

    >>> equal_parts(513, 500)
    (2, 257)
    """
    count = -(-rows // most)
    return count, -(-rows // count)

"""Losses that layers add, and those of a model's own `compute_loss`, example by example."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import keras
import tensorflow as tf

from tf_lowrank_dp._keras.compiled import loss_of_step
from tf_lowrank_dp._keras.layers import layers_of, own_losses
from tf_lowrank_dp._types import Nested
from tf_lowrank_dp.errors import UnsupportedModelError
from tf_lowrank_dp.layers.recorder import current_graph
from tf_lowrank_dp.per_example.separated_losses import is_switched_off, separated
from tf_lowrank_dp.per_example.vectorized_map import vectorized_map
from tf_lowrank_dp.training.penalties import is_made_of, stand_ins_of_penalties

_SEPARABLE = (keras.regularizers.L1, keras.regularizers.L2, keras.regularizers.L1L2)


class ActivityLosses(NamedTuple):
    """What activity regularisers gave in a forward pass.

    Attributes:
        values: float32 `(b,)` each, terms of the examples' losses.
        zeros: what Keras got in their place.
    """

    values: list[tf.Tensor]
    zeros: list[tf.Tensor]


@contextlib.contextmanager
def separated_activity_regularizers(model: keras.Model) -> Iterator[ActivityLosses]:
    """Context in which activity regularisers give one value per example.

    Keras adds their sum over the batch, divided by its size, as one scalar.  L1 and L2 are sums
    over examples and can be taken apart; others are refused.

    Yields:
        Lists that the forward pass fills.

    Raises:
        UnsupportedModelError: names the layer.
    """
    layers = [
        layer
        for layer in layers_of(model)
        if getattr(layer, "activity_regularizer", None) is not None
    ]
    originals = [layer.activity_regularizer for layer in layers]
    found = ActivityLosses([], [])
    try:
        for layer, regularizer in zip(layers, originals, strict=True):
            if type(regularizer) not in _SEPARABLE:
                raise UnsupportedModelError(
                    f"Expected the activity regulariser of layer '{layer.name}' to be L1, L2 or "
                    f"L1L2, which are sums over examples. Received: {regularizer!r}. Remove it, "
                    "or add the mean of one value per example with add_loss in the layer's call."
                )
            layer.activity_regularizer = _collecting(regularizer, layer.name, found)
        yield found
    finally:
        for layer, regularizer in zip(layers, originals, strict=True):
            layer.activity_regularizer = regularizer


def added_losses(
    model: keras.Model, batch: dict, batch_size: float, zeros: Sequence[tf.Tensor] = ()
) -> list[tf.Tensor]:
    """What the layers added in the latest forward pass, each float32 `(b,)`.

    A mean over the batch counts as the loss does.  Keras adds up the values of a vector, and adds
    the sum to a loss that is a mean over the batch, so here they count `batch_size` times: with
    batches of the expected size training minimises the same objective.

    Args:
        model: just called on a batch.
        batch: this batch.
        batch_size: the expected batch size.
        zeros: see `ActivityLosses`; they are left out.

    Raises:
        UnsupportedModelError: a layer added a scalar that is no mean or sum over the batch.
    """
    found = []
    for layer in layers_of(model):
        for value in own_losses(layer):
            if any(_undivided(value) is zero for zero in zeros) or is_switched_off(value):
                continue
            if value.shape.rank != 0:
                value = tf.cast(value, tf.float32)
                values = batch_size * tf.reduce_sum(value, list(range(1, value.shape.rank)))
            else:
                values = _separated(value, batch, batch_size, f"layer '{layer.name}' to add a loss")
            found.append(values)
    return found


class OwnLoss(NamedTuple):
    """What a `compute_loss` gives.

    Attributes:
        values: float32 `(b,)`, without what is asked for below.
        with_penalties: whether it asks for those of weight regularisers.
        with_activities: whether it asks for those of activity regularisers.
    """

    values: tf.Tensor
    with_penalties: bool
    with_activities: bool


def own_compute_loss(
    model: keras.Model, batch: dict, y_pred: Nested, batch_size: float, zeros: Sequence[tf.Tensor]
) -> OwnLoss:
    """What the model's own `compute_loss` gives each example, and which penalties it asks for.

    As in Keras, regularisers count where it adds `self.losses`, or calls that of `keras.Model`.

    Args:
        model: whose class overrides `compute_loss`.
        batch: `{"x", "y", "sample_weight"}`, the last two optional.
        y_pred: the model's outputs.
        batch_size: the expected batch size.
        zeros: see `ActivityLosses`.

    Raises:
        UnsupportedModelError: it gives a scalar that is no mean or sum over the batch.
    """
    with stand_ins_of_penalties(model) as penalties:
        loss = loss_of_step(model, batch["x"], batch.get("y"), y_pred, batch.get("sample_weight"))
    what = f"a compute_loss of '{model.name}'"
    added = [value for layer in layers_of(model) for value in own_losses(layer)]
    activities = [value for value in added if any(_undivided(value) is zero for zero in zeros)]
    asked = [is_made_of(loss, each, what) for each in (penalties, [[a] for a in activities])]
    if loss.shape.rank != 0:
        values = tf.reduce_sum(tf.cast(loss, tf.float32), list(range(1, loss.shape.rank)))
    else:
        what = f"compute_loss of '{model.name}' to give a loss"
        values = _separated(loss, batch, batch_size, what)
    return OwnLoss(values, *asked)


def _undivided(value: tf.Tensor) -> tf.Tensor:
    """What Keras has divided by the size of the batch."""
    return value.op.inputs[0] if value.op.type in ("DivNoNan", "RealDiv") else value


def _separated(value: tf.Tensor, batch: dict, batch_size: float, what: str) -> tf.Tensor:
    rows = tf.nest.flatten(batch)[0].shape[0]
    values = separated(value, rows, batch_size)
    if values is None:
        raise UnsupportedModelError(
            f"Expected {what} that is a mean or sum over the batch, or several of them, each "
            f"times a constant. Received: a scalar that ends in {value.op.type}, which mixes "
            "examples or holds a term of the weights alone. Compute one value for each example, of "
            "shape (batch,), and take keras.ops.mean(values) last (a term of the weights alone is "
            "a kernel_regularizer, or a part of each value), or switch it off with a coefficient "
            "of 0: the losses of routers in KerasHub's mixtures of experts as docs/layers.md says."
        )
    return tf.cast(values, tf.float32)


def regularization_gradients(model: keras.Model) -> list[tf.Tensor | None]:
    """Gradients of the weight regularisers: functions of public weights, added after the noise."""
    variables = model.trainable_variables
    with tf.GradientTape() as tape:
        penalties = [v.regularizer(v) for v in variables if v.regularizer is not None]
    return tape.gradient(penalties, [v.value for v in variables]) if penalties else []


def _collecting(
    regularizer: Callable[[tf.Tensor], tf.Tensor], name: str, found: ActivityLosses
) -> Callable[[tf.Tensor], tf.Tensor]:
    """Stands in for `regularizer`: collects its value for each example and gives Keras a zero."""
    graph = current_graph()

    def collect(outputs: tf.Tensor) -> tf.Tensor:
        if current_graph() is not graph:
            raise UnsupportedModelError(
                f"Expected layer '{name}' to run directly in the model's forward pass. Received: "
                "an activity regulariser inside a loop or branch of the layer around it. Put "
                "the regulariser on the surrounding layer, or remove it."
            )
        found.values.append(tf.cast(vectorized_map(regularizer, outputs), tf.float32))
        found.zeros.append(tf.identity(tf.zeros((), tf.float32)))
        return found.zeros[-1]

    return collect

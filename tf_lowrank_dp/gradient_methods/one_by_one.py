"""Gradient methods that differentiate one example at a time, whatever the layers are."""

from __future__ import annotations

from collections.abc import Callable

import keras
import tensorflow as tf

from tf_lowrank_dp._tensorflow import pointwise_filters_without_strides
from tf_lowrank_dp._types import Nested
from tf_lowrank_dp.gradient_methods.backward import Backward, Forward
from tf_lowrank_dp.per_example.materialized import Materialized
from tf_lowrank_dp.per_example.vectorized_map import compiled_vectorized_map


def vectorized(model: keras.Model, forward: Forward, batch: Nested) -> Backward:
    """`tf.vectorized_map` of a batch-of-one gradient over the examples."""
    return _one_by_one(model, forward, batch, compiled_vectorized_map)


def loop(model: keras.Model, forward: Forward, batch: Nested) -> Backward:
    """A batch-of-one gradient for each example in turn: the slow reference."""

    def map_in_turn(function: Callable, elements: Nested) -> Nested:
        first = tf.nest.map_structure(tf.zeros_like, tf.nest.map_structure(_first, elements))
        trace = tf.function(function, autograph=False).get_concrete_function(first)
        signature = tf.nest.map_structure(
            lambda t: tf.TensorSpec(t.shape, t.dtype), trace.structured_outputs
        )
        return tf.map_fn(function, elements, fn_output_signature=signature)

    return _one_by_one(model, forward, batch, map_in_turn)


def _one_by_one(
    model: keras.Model,
    forward: Forward,
    batch: Nested,
    mapper: Callable[[Callable, Nested], Nested],
) -> Backward:
    """Per-example gradients from batches of one."""
    variables = model.trainable_variables
    values = [tf.convert_to_tensor(v) for v in variables]

    def one_example(example: Nested) -> tuple[tf.Tensor, Nested, list[tf.Tensor]]:
        example = tf.nest.map_structure(lambda leaf: leaf[None], example)
        mapping = list(zip(variables, values, strict=True))
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(values)
            with keras.StatelessScope(state_mapping=mapping, collect_losses=True):
                losses, outputs = forward(example)
            loss = tf.cast(losses, tf.float32)[0]
        with pointwise_filters_without_strides():
            gradients = tape.gradient(loss, values, unconnected_gradients="zero")
        gradients = [tf.cast(tf.convert_to_tensor(g), tf.float32) for g in gradients]
        outputs = tf.nest.map_structure(lambda leaf: leaf[0], outputs)
        return loss, outputs, gradients

    losses, outputs, gradients = mapper(one_example, batch)
    pairs = zip(gradients, variables, strict=True)
    known = [tf.ensure_shape(gradient, [None, *v.shape]) for gradient, v in pairs]
    return Backward(losses, outputs, [Materialized(gradient) for gradient in known])


def _first(leaf: tf.Tensor) -> tf.Tensor:
    return tf.zeros(leaf.shape[1:], leaf.dtype) if leaf.shape[1:].is_fully_defined() else leaf[0]

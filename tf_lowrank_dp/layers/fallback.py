"""The fallback: any other layer with weights, differentiated one example at a time.

From the layer's captured inputs and output gradient, a vectorised map takes the vector-Jacobian
product of a batch of one for each example.  It is exact for every layer that treats
examples independently, costs a second forward pass of this layer and holds its per-example
gradients.  Layers that loop by themselves (`whole_layers`) are mapped one example after the other.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from tf_lowrank_dp._keras.layers import layers_of, own_losses, seeds_in_reach
from tf_lowrank_dp._keras.scopes import (
    autocast,
    autocast_dtype,
    call_context,
    in_call_context,
    values_in_scope,
)
from tf_lowrank_dp._tensorflow import pointwise_filters_without_strides
from tf_lowrank_dp._types import Nested
from tf_lowrank_dp.errors import UnsupportedModelError
from tf_lowrank_dp.layers.recorder import current_graph, current_recorder, paused
from tf_lowrank_dp.layers.whole_layers import is_whole
from tf_lowrank_dp.per_example.materialized import Materialized
from tf_lowrank_dp.per_example.vectorized_map import compiled_vectorized_map
from tf_lowrank_dp.tracing.example_axis import Label, Public, Rows
from tf_lowrank_dp.tracing.random_ops import draws_noted, draws_repeated, draws_so_far


@functools.cache
def fallback_class(layer_class: type) -> type:
    """A subclass of `layer_class` that records its calls as a whole.

    It exists only while a step is traced (see `registry.capturing`) and is never saved.
    """

    class Fallback(layer_class):
        captured_class = layer_class

        def call(self, *args: Any, **kwargs: Any) -> Nested:
            return _recorded(self, super().call, args, kwargs)

        def quantized_call(self, *args: Any, **kwargs: Any) -> Nested:
            return _recorded(self, super().quantized_call, args, kwargs)

        @classmethod
        def added_biases(cls, layer: keras.layers.Layer) -> list:
            return []  # no inputs are recorded

    Fallback.__name__ = Fallback.__qualname__ = layer_class.__name__
    return Fallback


def _recorded(layer: keras.layers.Layer, call: Callable, args: tuple, kwargs: dict) -> Nested:
    """The outputs of `call`, recorded for the sake of the layer's own variables."""
    recorder = current_recorder()
    if recorder is None:
        return call(*args, **kwargs)
    if not is_whole(layer) and recorder.finds_operations(layer):
        with autocast(None):  # gradients are those of the float32 weights
            pairs = [(v, recorder.root(layer, v, v)) for v in own_variables(layer)]
        with values_in_scope(pairs):
            return call(*args, **kwargs)
    drawn = draws_so_far()
    with paused() if is_whole(layer) else contextlib.nullcontext(), draws_noted() as numbers:
        outputs = call(*args, **kwargs)
    if len(numbers) != draws_so_far() - drawn or any(
        n.graph is not current_graph() for n in numbers
    ):
        raise _draws_or_keeps(layer.name)
    _refuse_added_losses(layer)
    flat = keras.tree.flatten(outputs)
    tensors = [n for n, leaf in enumerate(flat) if _is_floating(leaf)]
    _refuse_without_floats(layer, tensors, (args, kwargs))
    vjp = _VectorJacobian(layer, call, args, kwargs, tensors, numbers)
    builders = [
        (variable, functools.partial(vjp, index))
        for index, variable in enumerate(own_variables(layer))
    ]
    # The outputs wait for the values that the second pass uses, as no gradient of a layer inside
    # needs those: TensorFlow could read them after that layer's update (Grappler drops the order
    # of a read and a write once it sees another path between them, and cuts that path later).
    with tf.control_dependencies(vjp.values_read):
        watched = recorder.watch(layer.name, [flat[n] for n in tensors], builders, vjp.read)
    for n, tensor in zip(tensors, watched, strict=True):
        flat[n] = tensor
    return keras.tree.pack_sequence_as(outputs, flat)


def _refuse_added_losses(layer: keras.layers.Layer) -> None:
    layers = layers_of(layer) if is_whole(layer) else [layer]
    if any(own_losses(part) for part in layers):
        raise UnsupportedModelError(
            f"Expected layer '{layer.name}' to act on the loss through its output alone. Received: "
            "a layer without a capture of its own that also adds a loss, whose gradient for "
            "this layer's weights would be lost. Add the loss in a layer without weights behind "
            "it, or give the optimizer gradient_method='vectorized', or 'loop'."
        )


def _refuse_without_floats(
    layer: keras.layers.Layer, tensors: list[int], arguments: Nested
) -> None:
    if not tensors:
        raise UnsupportedModelError(
            f"Expected a float output of layer '{layer.name}', which has weights to train. "
            "Received: none, so that no gradient can reach them. Freeze the layer "
            "(layer.trainable = False)."
        )
    if any(tf.is_tensor(a) and a.dtype == tf.string for a in keras.tree.flatten(arguments)):
        raise UnsupportedModelError(
            f"Expected numbers as input of layer '{layer.name}'. Received: strings, in a layer "
            "with weights and without a capture of its own. Turn them into numbers in a layer "
            "without weights before it, such as keras.layers.StringLookup."
        )


def own_variables(layer: keras.layers.Layer) -> list:
    """Trainable variables that belong to `layer` and to none of its captured children."""
    if is_whole(layer):
        return list(layer.trainable_variables)
    children = layers_of(layer, include_self=False)
    nested = {id(v) for child in children for v in child.trainable_variables}
    return [v for v in layer.trainable_variables if id(v) not in nested]


class _VectorJacobian:
    """Per-example products of output gradients with a layer's Jacobian, computed once for each."""

    def __init__(
        self,
        layer: keras.layers.Layer,
        call: Callable,
        args: tuple,
        kwargs: dict,
        tensors: list[int],
        numbers: list[tf.Tensor],
    ):
        recorder = current_recorder()
        assert recorder is not None
        self._given = [*keras.tree.flatten((args, kwargs)), *numbers]
        self._drawn = len(numbers)
        self._batched = [n for n, has in enumerate(recorder.with_examples(self._given)) if has]
        self._name, self._variables = layer.name, own_variables(layer)
        own = {id(v) for v in self._variables}
        others = [v for v in layer.variables if id(v) not in own]
        with autocast(None):  # gradients are those of the float32 weights
            self._values = [tf.convert_to_tensor(v) for v in self._variables]
            self._others = [(v, tf.convert_to_tensor(v)) for v in others]
        self._seeds = {id(state) for state in seeds_in_reach(layer)}
        self._autocast, self._context = autocast_dtype(), call_context()
        self.values_read = [*self._values, *(value for _, value in self._others)]
        self._in_turn = is_whole(layer)
        self._call, self._arguments, self._tensors = call, (args, kwargs), tensors
        self._products: dict[tuple, list[tf.Tensor]] = {}
        self.read: list[tuple[tf.Tensor, Label]] = []

    def __call__(self, index: int, *output_gradients: tf.Tensor) -> Materialized:
        key = tuple(d.ref() for d in output_gradients)
        if key not in self._products:
            self._products[key] = self._compute(output_gradients)
        return Materialized(self._products[key][index])

    def _compute(self, output_gradients: tuple[tf.Tensor, ...]) -> list[tf.Tensor]:
        flat, batched, values = self._given, self._batched, self._values

        def one_example(slices: Nested) -> list[tf.Tensor]:
            leaves = list(flat)
            for n, leaf in zip(batched, slices[0], strict=True):
                leaves[n] = leaf[None]
            numbers = leaves[len(leaves) - self._drawn :]
            arguments = leaves[: len(leaves) - self._drawn]
            args, kwargs = keras.tree.pack_sequence_as(self._arguments, arguments)
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(values)
                mapping = [*zip(self._variables, values, strict=True), *self._others]
                drawn = draws_so_far()
                scope = keras.StatelessScope(state_mapping=mapping)
                with paused(), draws_repeated(numbers) as left, scope:
                    before = dict(scope.state_mapping)
                    with autocast(self._autocast), in_call_context(self._context):
                        outputs = self._call(*args, **kwargs)
                changed = any(
                    value is not before.get(v) and not (numbers and v in self._seeds)
                    for v, value in scope.state_mapping.items()
                )
                if changed or left or draws_so_far() > drawn:
                    raise _draws_or_keeps(self._name)
                outputs = keras.tree.flatten(outputs)
                outputs = [outputs[n] for n in self._tensors]
            upstream = [d[None] for d in slices[1]]
            with pointwise_filters_without_strides():
                return tape.gradient(
                    outputs, values, output_gradients=upstream, unconnected_gradients="zero"
                )

        slices = ([flat[n] for n in batched], list(output_gradients))
        whole: list[tf.Tensor] = []  # what the second pass reads of no example, or of all
        if self._in_turn:
            found = _mapped_in_turn(one_example, slices, whole)
        else:
            found = compiled_vectorized_map(one_example, slices, whole)
        size = output_gradients[0].shape[0]
        self.read += [(leaf, Rows(0, leaf.shape[0] // size)) for leaf in slices[0] if size]
        self.read += [(tensor, Public()) for tensor in whole]
        return found


def _mapped_in_turn(function: Callable, elements: Nested, read: list[tf.Tensor]) -> list[tf.Tensor]:
    """`tf.map_fn`, and what the function reads besides its element."""
    traced = tf.function(function, autograph=False)
    element = tf.nest.map_structure(lambda t: tf.TensorSpec(t.shape[1:], t.dtype), elements)
    trace = traced.get_concrete_function(element)
    read += [outside for outside, _ in trace.graph.captures]
    signature = [tf.TensorSpec(v.shape, v.dtype) for v in trace.structured_outputs]
    return tf.map_fn(traced, elements, fn_output_signature=signature)


def _is_floating(leaf: Any) -> bool:
    return tf.is_tensor(leaf) and leaf.dtype.is_floating


def _draws_or_keeps(name: str) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"Expected layer '{name}' to compute its output from its inputs, its weights and random "
        "numbers with an axis of examples. Received: a layer without a capture of its own that "
        "changes state, or draws random numbers in a loop, or in a way that depends on data, or "
        "outside of a private step, so that its per-example gradients cannot be recomputed. Move "
        "the random part or state into a layer of its own, or set the rate to 0."
    )

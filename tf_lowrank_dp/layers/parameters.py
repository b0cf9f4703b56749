"""The trainable variables of a model with their roles: kernels, embeddings, output layers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import keras

from tf_lowrank_dp._keras.layers import is_functional, layers_of, made_by, symbolic_calls
from tf_lowrank_dp.layers.fallback import own_variables
from tf_lowrank_dp.layers.registry import captured_layers
from tf_lowrank_dp.layers.whole_layers import is_whole
from tf_lowrank_dp.per_example.parameter import AddedBias, MatrixView, Parameter


def describe_parameters(model: keras.Model) -> list[Parameter]:
    """One `Parameter` for each trainable variable, in the model's order.

    A capture class says how its kernels are matrices in `matrix_views(layer)`.  For other layers
    the last axis is the output and variables named "kernel" are kernels.
    """
    found: dict[int, tuple[str, MatrixView | None]] = {}
    captured = captured_layers(model)
    for layer, capture in captured:
        views = dict(_views(layer, capture))
        for variable in own_variables(layer):
            view = views.get(id(variable))
            found.setdefault(id(variable), (_role(layer, variable, view), view))
    outputs = {id(v) for layer in output_layers(model) for v in layer.trainable_variables}
    biases = _biases(model, captured)
    return [
        Parameter(v, *found[id(v)], id(v) in outputs, biases.get(id(v)))
        for v in model.trainable_variables
    ]


def output_layers(model: keras.Model) -> list[keras.layers.Layer]:
    """For each output of the model, the last layer with trainable variables before it.

    In a functional model the layers are followed back from the outputs; in another model, or a
    layer made of layers, it is the last one that was created.
    """
    found: list[keras.layers.Layer] = []
    for layer in _last_layers(model):
        if is_whole(layer):
            inside = layers_of(layer, include_self=False)
            found.append([layer, *(part for part in inside if part.trainable_variables)][-1])
        elif isinstance(layer, keras.Model):
            found += output_layers(layer)
        else:
            nested = [inner for inner, _ in captured_layers(layer)]
            found.append(nested[-1] if nested else layer)
    return found


def _last_layers(model: keras.Model) -> list[keras.layers.Layer]:
    if isinstance(model, keras.Sequential):
        layers = [layer for layer in model.layers if layer.trainable_variables]
        return layers[-1:]
    if not is_functional(model):
        captured = [layer for layer, _ in captured_layers(model)]
        return captured[-1:]
    last: list[keras.layers.Layer] = []
    visited: set[tuple[int, int]] = set()
    waiting = list(keras.tree.flatten(model.outputs))
    while waiting:
        operation, call = made_by(waiting.pop())
        if (id(operation), call) in visited:
            continue
        visited.add((id(operation), call))
        if getattr(operation, "trainable_variables", None):
            if not any(operation is layer for layer in last):
                last.append(operation)
        else:
            waiting += symbolic_calls(operation)[call]
    return last


def _views(layer: keras.layers.Layer, capture: type) -> list[tuple[int, MatrixView]]:
    if hasattr(capture, "matrix_views"):
        return [(id(variable), view) for variable, view in capture.matrix_views(layer)]
    matrices = [v for v in own_variables(layer) if len(v.shape) >= 2]
    return [(id(v), MatrixView.of(tuple(v.shape))) for v in matrices]


def _biases(
    model: keras.Model, captured: Sequence[tuple[keras.layers.Layer, type]]
) -> dict[int, AddedBias]:
    """By kernel, biases that are trained with it, without a constraint, in one layer alone.

    Where another layer holds one of the two, the gradient of the bias is not the kernel's sum.
    """
    trained = {id(v) for v in model.trainable_variables}
    holders = Counter(id(v) for layer, _ in captured for v in own_variables(layer))

    def alone(variable: keras.Variable | None) -> bool:
        return id(variable) in trained and holders[id(variable)] == 1

    return {
        id(kernel): bias
        for layer, capture in captured
        if hasattr(capture, "added_biases")
        for kernel, bias in capture.added_biases(layer)
        if alone(kernel) and alone(bias.variable) and bias.variable.constraint is None
    }


def _role(layer: keras.layers.Layer, variable: keras.Variable, view: MatrixView | None) -> str:
    if view is None:
        return "other"
    if variable.name.startswith("lora_"):
        return "lora"
    if isinstance(layer, keras.layers.Embedding):
        return "embedding"
    return "kernel" if "kernel" in variable.name else "other"

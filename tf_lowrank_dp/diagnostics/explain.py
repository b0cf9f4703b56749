"""How each variable's per-example gradient is obtained."""

from __future__ import annotations

from collections.abc import Iterable

import keras
import tensorflow as tf

from tf_lowrank_dp._keras.layers import is_functional
from tf_lowrank_dp._types import Nested
from tf_lowrank_dp.diagnostics.table import Table
from tf_lowrank_dp.gradient_methods.trial import known_plan, plan_for
from tf_lowrank_dp.layers.fallback import own_variables
from tf_lowrank_dp.layers.recorder import Plan
from tf_lowrank_dp.layers.registry import captured_layers
from tf_lowrank_dp.layers.whole_layers import is_whole

_HEADER = ("layer", "variable", "shape", "parameters", "how", "time", "held per example")
_MOST_FROZEN = 6


def explain(model: keras.Model) -> Table:
    """A table of what is trained, how its per-example gradients are computed, and at what cost.

    Time is relative to ordinary training, which computes the kernel gradient.  Memory is what is
    held of each example until the sum is formed: the layer's activations, which ordinary training
    holds as well, or as many numbers as the variable has.  Of layers that no capture knows a
    functional model tells by itself, another one after its first step.

    Args:
        model: a built Keras model.

    Returns:
        Text, which notebooks show as a table: one line for each trainable variable (more where
        layers that share it take different ways), then what is frozen.

    Example:

    >>> import keras, tf_lowrank_dp as tfdp
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, name="d")])
    >>> tfdp.explain(model)
    layer  variable  shape   parameters  how               time                    held per example
    d      kernel    (4, 2)  8           outer product     as the kernel gradient  activations
    d      bias      (2,)    2           sum of positions  as the bias gradient    its size
    10 parameters are trained, 0 are frozen.
    """
    plan = _plan_of(model)
    layers: dict[int, list] = {}
    for layer, capture in captured_layers(model):
        for variable in own_variables(layer):
            layers.setdefault(id(variable), []).append((layer, capture))
    rows = [_HEADER]
    for variable in model.trainable_variables:
        path, _, name = variable.path.removeprefix(f"{model.name}/").rpartition("/")
        shape, size = str(tuple(variable.shape)), f"{_size([variable]):,}"
        using = layers.get(id(variable), [])
        methods = [_method(layer, capture, name, plan) for layer, capture in using]
        for method in dict.fromkeys(methods):
            rows.append((path or using[0][0].name, name, shape, size, *method))
    return Table(rows, [_frozen_layers(model)])


def _frozen_layers(model: keras.Model) -> str:
    trained, frozen = _size(model.trainable_weights), _size(model.non_trainable_weights)
    counts = f"{trained:,} parameters are trained, {frozen:,} are frozen"
    sizes = [(layer.name, _size(layer.non_trainable_weights)) for layer in model.layers]
    names = [f"{name} ({size:,})" for name, size in sizes if size]
    if not names:
        return f"{counts}."
    more = len(names) - _MOST_FROZEN
    listed = ", ".join(names[:_MOST_FROZEN]) + (f" and {more} more layers" if more > 0 else "")
    return f"{counts}: {listed}."


def _size(variables: Iterable[keras.Variable]) -> int:
    return sum(int(keras.ops.size(variable)) for variable in variables)


def _plan_of(model: keras.Model) -> Plan | None:
    """How a model's own layers are recorded; None if that cannot be known yet."""
    plan = known_plan(model)
    own = any(_is_fallback(capture) for _, capture in captured_layers(model))
    if plan is not None or not own or not getattr(model, "inputs", None):
        return plan

    def outputs(batch: Nested) -> tuple[tf.Tensor, Nested]:
        found = tf.nest.flatten(model(batch, training=True))
        flat = [tf.reshape(tensor, [tf.shape(tensor)[0], -1]) for tensor in found]
        return tf.add_n([tf.reduce_sum(tf.cast(t, tf.float32), -1) for t in flat]), ()

    symbolic = model.input if is_functional(model) else model.inputs[0]  # of a Sequential
    inputs = tf.nest.map_structure(lambda t: tf.TensorSpec(t.shape, t.dtype), symbolic)
    return plan_for(model, outputs, inputs)


def _is_fallback(capture: type) -> bool:
    return capture.__module__.endswith("layers.fallback")


def _method(
    layer: keras.layers.Layer, capture: type, name: str, plan: Plan | None
) -> tuple[str, str, str]:
    """How, time and memory."""
    if is_whole(layer) and not getattr(capture, "captures_children", False):
        how = f"fallback of the whole of {layer.name}"
        return how, "the layer once more, one example at a time", "its size"
    if _is_fallback(capture) and plan is None:
        return "operations that use it, or fallback", "known when it trains", "known when it trains"
    if _is_fallback(capture) and plan is not None and id(layer) in (plan.by_operations or ()):
        return "operations that use it", "as their gradients", "activations or its size"
    if _is_fallback(capture):
        return "fallback", "the layer once more, one example at a time", "its size"
    if isinstance(layer, keras.layers.Embedding) and name in ("embeddings", "lora_embeddings_a"):
        tied = getattr(layer, "tie_weights", False)
        how = "rows looked up, outer product where reversed" if tied else "rows looked up"
        return how, "positions squared times width", "activations"
    if name.startswith("lora_"):
        return "outer product", "rank times width, no kernel gradient", "activations"
    if "kernel" in name and capture.__module__.endswith("convolution"):
        return "product at each kernel offset", "as the kernel gradient", "its size or patches"
    if "kernel" in name or name == "reverse_embeddings":
        return "outer product", "as the kernel gradient", "activations"
    return "sum of positions", "as the bias gradient", "its size"

"""A trial of the forward pass, in which weights are looked for that no capture knows."""

from __future__ import annotations

import weakref
from collections.abc import Callable

import keras
import tensorflow as tf

from tf_lowrank_dp._keras.layers import layers_of
from tf_lowrank_dp._keras.scopes import trial_scope
from tf_lowrank_dp._types import Nested
from tf_lowrank_dp.layers.operations import plan_of
from tf_lowrank_dp.layers.recorder import Plan, Recorder, has_rows
from tf_lowrank_dp.layers.registry import capturing
from tf_lowrank_dp.layers.whole_layers import differentiate_as_whole, is_whole
from tf_lowrank_dp.tracing.axis_walk import Walk
from tf_lowrank_dp.tracing.example_axis import Label, Public, Rows, size_unlike
from tf_lowrank_dp.tracing.random_ops import source_spared

_PLANS: weakref.WeakKeyDictionary[keras.Model, tuple[tuple, Plan]] = weakref.WeakKeyDictionary()


def plan_for(model: keras.Model, forward: Callable, batch: Nested) -> Plan:
    """How the weights are found that no capture knows; tried once for each form of batch.

    Args:
        model: a built model.
        forward: takes `batch` and returns losses `(b,)` and more.
        batch: nested tensors whose first axis is the example.

    Returns:
        The plan.  A layer is noted as one that is differentiated as a whole if its parts cannot be
        separated, such as a position table that another layer transforms, or if it calls one in a
        loop, or with rows that are not those of the examples.
    """
    spec = tf.nest.map_structure(lambda t: tf.TensorSpec([None, *t.shape[1:]], t.dtype), batch)
    key = (*tf.nest.flatten(spec), *(id(v) for v in model.trainable_variables))
    if model not in _PLANS or _PLANS[model][0] != key:
        _PLANS[model] = (key, _settled(model, forward, spec))
    return _PLANS[model][1]


def forget_plan(model: keras.Model) -> None:
    """Has the model tried anew: another forward pass, or changed Python code, may use it anew."""
    _PLANS.pop(model, None)


def known_plan(model: keras.Model) -> Plan | None:
    """The plan by which the model was last recorded; None if it was not."""
    return _PLANS[model][1] if model in _PLANS else None


def _settled(model: keras.Model, forward: Callable, spec: Nested) -> Plan:
    """Tries until no layer needs the fallback that was not given it."""
    fallback: frozenset[int] = frozenset()
    while True:
        plan, lost, misplaced = _tried(model, forward, spec, fallback)
        if not lost and not misplaced:
            return plan
        fallback |= {id(layer) for layer in lost}
        for variable in misplaced:
            layer = _around(model, variable)
            if layer is None:
                return Plan()  # The recorder refuses it.
            differentiate_as_whole(layer)


def _tried(
    model: keras.Model, forward: Callable, spec: Nested, fallback: frozenset[int]
) -> tuple[Plan, list[keras.layers.Layer], list[keras.Variable]]:
    """A plan, and for what it does not do.

    Returns:
        The plan; layers whose own weights it loses, which need the fallback; variables of layers
        that are called where they cannot be recorded.
    """
    size = size_unlike(model, spec)
    held: list[Recorder] = []

    def losses(batch: Nested) -> tf.Tensor:
        tape = tf.GradientTape(watch_accessed_variables=False)
        recorder = Recorder(
            model.trainable_variables, tape, size, Plan(by_operations=None, fallback=fallback)
        )
        held[:] = [recorder]  # TensorFlow may trace twice
        with source_spared(), trial_scope(), tape, capturing(model), recorder:
            return forward(batch)[0]

    batch = tf.nest.map_structure(lambda s: tf.TensorSpec([size, *s.shape[1:]], s.dtype), spec)
    try:
        graph = tf.function(losses, autograph=False).get_concrete_function(batch).graph
    except (ValueError, TypeError, tf.errors.OpError):
        inside = held[0].inside_of_a_loop if held else None
        return Plan(), [], [] if inside is None else [inside]
    [recorder] = held
    labels = Walk(size).labels(graph, [Rows(0)] * len(tf.nest.flatten(batch)))
    inside = [root for root in recorder.roots if id(root.tensor) not in labels]
    if inside:  # read in the graph of a loop, such as by a cell in a scan
        return Plan(), [], [root.builders[0][0] for root in inside]
    roots = [r for r in recorder.roots if isinstance(labels[id(r.tensor)], Public)]
    with graph.as_default():
        steps, failed = plan_of(graph, roots, labels, size)
    owners = frozenset(id(root.owner) for root in roots if root.owner is not None)
    shared = frozenset(root.call for root in roots if root.owner is None)
    of_examples = tuple(
        tuple(has_rows(t) and _holds_examples(t, labels, size) for t in tensors)
        for tensors in recorder.fallback_tensors
    )
    outputs = [root for root in recorder.roots if root.owner is None]
    rows_each = tuple(
        (root.call, root.tensor.shape[0] // size)
        for root in outputs
        if labels[id(root.tensor)] == Rows(0, (root.tensor.shape[0] or 0) // size)
    )
    known = shared | {call for call, _ in rows_each}
    failed += [r for r in outputs if r.call not in known and r.tensor.shape[0] is not None]
    plan = Plan(owners, fallback, shared, tuple(steps), of_examples, rows_each)
    lost = [root.owner for root in failed if root.owner is not None]
    return plan, lost, [root.builders[0][0] for root in failed if root.owner is None]


def _holds_examples(tensor: tf.Tensor, labels: dict[int, Label], size: int) -> bool:
    """Whether the first axis is that of the examples, or of several rows of each."""
    label, length = labels.get(id(tensor)), tensor.shape[0]
    if isinstance(label, Rows) and label.axis == 0 and length == size * label.inner:
        return True
    return not isinstance(label, Public) and length == size  # of no other is the length


def _around(model: keras.Model, variable: keras.Variable) -> keras.layers.Layer | None:
    """The smallest layer around the one whose variable this is; not the model itself."""
    holding = [
        layer
        for layer in layers_of(model, include_self=False)
        if any(v is variable for v in layer.trainable_variables)
    ]
    holding.sort(key=lambda layer: len(layers_of(layer)))
    return next((layer for layer in holding[1:] if not is_whole(layer)), None)

"""Weights that no capture knows, found by the operations that use them.

The forward pass is traced once, as a trial, with a number of examples that no other axis could be
mistaken for.  There a walk tells where each shared tensor, a weight or what is computed from
weights alone, meets the examples: these operations are recorded like layers, by the rules of
`operation_rules`.  In a private step the same operations must be found in the same order.  A layer
with an operation that has no rule uses the fallback, and so does one in a loop or branch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TypeAlias

import keras
import tensorflow as tf

from tf_lowrank_dp.errors import UnsupportedModelError
from tf_lowrank_dp.layers.operation_rules import NoRule, Use
from tf_lowrank_dp.per_example.gradient import PerExampleGradient
from tf_lowrank_dp.per_example.materialized import Materialized
from tf_lowrank_dp.per_example.vectorized_map import compiled_vectorized_map
from tf_lowrank_dp.tracing.example_axis import Label, Public, Rows

RootBuilder: TypeAlias = tuple[keras.Variable, Callable[[PerExampleGradient], PerExampleGradient]]
"""A variable and the function from the gradients of a root to its own."""

# These say something of a tensor that does not depend on its values, or stop its gradient.
_NO_GRADIENT = {"Shape", "ShapeN", "Size", "Rank", "ZerosLike", "OnesLike", "StopGradient"}
_SAME_ORDER = {"Identity", "Cast", "Reshape", "ExpandDims", "Squeeze"}


@dataclasses.dataclass(frozen=True, eq=False)
class Root:
    """A tensor that all examples share and whose per-example gradients are wanted.

    Attributes:
        layer: name of the layer that it belongs to.
        tensor: a weight as one call of the layer reads it, or an output without examples.
        builders: for each variable the function from the gradients of `tensor` to its own.
        owner: the layer whose weight it is; None for an output.
        call: the number of the call of `Recorder.watch` that got an output; 0 for a weight.
    """

    layer: str
    tensor: tf.Tensor
    builders: tuple[RootBuilder, ...]
    owner: keras.layers.Layer | None = None
    call: int = 0


@dataclasses.dataclass(frozen=True)
class Step:
    """An operation that takes shared tensors.

    Attributes:
        type: of the operation.
        slots: which inputs are shared.
        labels: where the examples are in its inputs.
        rows: where they are in its output; None if that is shared as well.
        shape: of its output in the trial.
    """

    type: str
    slots: tuple[int, ...]
    labels: tuple[Label, ...]
    rows: Rows | None
    shape: tf.TensorShape

    def is_like(self, op: tf.Operation, slots: Sequence[int]) -> bool:
        """Whether another operation does the same, with any number of examples."""
        if (op.type, slots) != (self.type, self.slots):
            return False
        shape = op.outputs[0].shape
        if self.rows is None or self.shape.rank is None:
            return self.shape.is_compatible_with(shape)
        lengths = self.shape.as_list()
        lengths[self.rows.axis] = None
        return tf.TensorShape(lengths).is_compatible_with(shape)


@dataclasses.dataclass(frozen=True)
class Meeting:
    """Where shared tensors meet the examples.

    Attributes:
        layer: name of the layer that they are of.
        output: of the operation, `rows` says where its examples are.
        rows: see above.
        builders: pairs of a variable and a function from the gradient of `output` to its own.
    """

    layer: str
    output: tf.Tensor
    rows: Rows
    builders: tuple[tuple[keras.Variable, Callable[[tf.Tensor], PerExampleGradient]], ...]


@dataclasses.dataclass
class Shared:
    """The tensors of a graph that are computed from roots alone.

    Attributes:
        roots: the roots.
        origins: for each tensor, by its `id`, the indices of its roots.
        ordered: pairs of a tensor, by its `id`, and a root whose elements it holds in their order.
    """

    roots: Sequence[Root]
    origins: dict[int, frozenset[int]] = dataclasses.field(default_factory=dict)
    ordered: set[tuple[int, int]] = dataclasses.field(default_factory=set)

    def __post_init__(self) -> None:
        for index, root in enumerate(self.roots):
            self.origins[id(root.tensor)] = frozenset([index])
            self.ordered.add((id(root.tensor), index))

    def slots(self, op: tf.Operation) -> tuple[int, ...]:
        """The inputs of an operation that are shared and through which a gradient can flow."""
        if op.type in _NO_GRADIENT or not any(o.dtype.is_floating for o in op.outputs):
            return ()
        return tuple(n for n, tensor in enumerate(op.inputs) if id(tensor) in self.origins)

    def roots_of(self, op: tf.Operation, slots: Sequence[int]) -> frozenset[int]:
        """The roots of some inputs."""
        return frozenset().union(*(self.origins[id(op.inputs[slot])] for slot in slots))

    def pass_on(self, op: tf.Operation, slots: Sequence[int]) -> None:
        """Notes that the outputs of an operation are shared as its inputs are."""
        found = self.roots_of(op, slots)
        for tensor in op.outputs:  # a root may be computed from another one
            self.origins[id(tensor)] = self.origins.get(id(tensor), frozenset()) | found
            if op.type in _SAME_ORDER:
                kept = {root for root in found if (id(op.inputs[0]), root) in self.ordered}
                self.ordered |= {(id(tensor), root) for root in kept}

    def meeting(self, op: tf.Operation, step: Step) -> Meeting:
        """The site of an operation in which shared tensors meet the examples."""
        assert step.rows is not None
        builders, layer = [], ""
        for slot in step.slots:
            use = Use(op, slot, step.labels, step.rows)
            indices = sorted(self.origins[id(use.shared)])
            ordered = {n for n in indices if (id(use.shared), n) in self.ordered}
            others = {n: self.roots[n].tensor for n in indices if n not in ordered}
            behind = _Behind(use, others)
            for index in indices:
                layer = self.roots[index].layer
                for variable, build in self.roots[index].builders:
                    if index in ordered:
                        builder = _in_order(use, self.roots[index].tensor, build)
                    else:
                        builder = behind.builder(index, build)
                    builders.append((variable, builder))
        return Meeting(layer, op.outputs[0], step.rows, tuple(builders))


def _in_order(use: Use, root: tf.Tensor, build: Callable) -> Callable:
    """The builder for a root whose elements meet the examples in their order."""

    def gradient(d: tf.Tensor) -> PerExampleGradient:
        found = use.gradient(d)
        if use.shared.shape != root.shape:
            found = Materialized(tf.reshape(found.materialize(), [-1, *root.shape]))
        return build(found)

    return gradient


class _Behind:
    """The gradients of roots from those of a tensor that is computed from them, all at once.

    Args:
        use: of the tensor.
        roots: by their indices.
    """

    def __init__(self, use: Use, roots: dict[int, tf.Tensor]):
        self._use, self._roots = use, roots
        self._of: tf.Tensor | None = None
        self._found: dict[int, tf.Tensor] = {}

    def builder(self, index: int, build: Callable) -> Callable:
        """The builder for one of the roots."""

        def gradient(d: tf.Tensor) -> PerExampleGradient:
            if self._of is not d:
                self._of, self._found = d, self._all(d)
            return build(Materialized(self._found[index]))

        return gradient

    def _all(self, d: tf.Tensor) -> dict[int, tf.Tensor]:
        shared, roots = self._use.shared, list(self._roots.values())

        def of_roots(g: tf.Tensor) -> list[tf.Tensor]:
            g = tf.cast(g, shared.dtype)
            return tf.gradients(shared, roots, [g], unconnected_gradients="zero")

        found = compiled_vectorized_map(of_roots, self._use.gradient(d).materialize())
        return dict(zip(self._roots, found, strict=True))


def plan_of(
    graph: tf.Graph, roots: Sequence[Root], labels: dict[int, Label], size: int
) -> tuple[list[Step], list[Root]]:
    """What the operations of a trial do with the roots, and the roots that need the fallback.

    Args:
        graph: of the trial.
        roots: what to look for.
        labels: where the examples are in the tensors of `graph`, by `id`.
        size: number of examples of the trial.
    """
    shared = Shared(roots)
    steps: list[Step] = []
    failed: frozenset[int] = frozenset()
    for op in graph.get_operations():
        slots = shared.slots(op)
        if not slots:
            continue
        inputs = tuple(labels.get(id(tensor), Public()) for tensor in op.inputs)
        outputs = [labels.get(id(tensor), Public()) for tensor in op.outputs]
        if all(isinstance(label, Public) for label in outputs):
            steps.append(Step(op.type, slots, inputs, None, op.outputs[0].shape))
            shared.pass_on(op, slots)
            continue
        rows = outputs[0] if isinstance(outputs[0], Rows) else Rows(0)
        whole = rows == outputs[0] and op.outputs[0].shape[rows.axis] == size * rows.inner
        step = Step(op.type, slots, inputs, rows, op.outputs[0].shape)
        try:
            if not whole or len(outputs) > 1:
                raise NoRule
            zeros = tf.zeros_like(op.outputs[0])
            for _, build in shared.meeting(op, step).builders:
                build(zeros)
        except (NoRule, ValueError, LookupError):
            failed |= shared.roots_of(op, slots)
        steps.append(step)
    returned = {id(tensor) for tensor in graph.outputs} & set(shared.origins)
    failed = failed.union(*(shared.origins[key] for key in returned))
    return steps, [roots[index] for index in sorted(failed)]


def meetings(graph: tf.Graph, roots: Sequence[Root], steps: Sequence[Step]) -> list[Meeting]:
    """Where shared tensors meet the examples in a graph that was traced like the trial.

    Raises:
        UnsupportedModelError: its operations are others.
    """
    shared, waiting, found = Shared(roots), list(steps)[::-1], []
    for op in graph.get_operations():
        slots = shared.slots(op)
        if not slots:
            continue
        step = waiting.pop() if waiting else None
        if step is None or not step.is_like(op, slots):
            raise _differs(roots)
        if step.rows is None:
            shared.pass_on(op, slots)
        else:
            found.append(shared.meeting(op, step))
    if waiting:
        raise _differs(roots)
    return found


def _differs(roots: Sequence[Root]) -> UnsupportedModelError:
    names = sorted({root.layer for root in roots})
    return UnsupportedModelError(
        "Expected layers that compute the same whatever the number of examples. Received: one of "
        f"{names}, whose operations differ from those on random data. Register its class with "
        "tf_lowrank_dp.layers.register_fallback."
    )

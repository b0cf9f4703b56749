"""The walk through a traced graph: from the inputs' axis of examples to the outputs'."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tf_lowrank_dp._tensorflow import functions_of, graph_of_function, traced_bodies
from tf_lowrank_dp.tracing.axis_rules import ELEMENTWISE, REDUCTIONS, RULES, SEGMENTS, apply
from tf_lowrank_dp.tracing.example_axis import (
    Joined,
    Label,
    Operation,
    Public,
    Rows,
    Unknown,
    likely_rows,
    shape_of,
    worst,
)
from tf_lowrank_dp.tracing.random_draws import DRAWS, OF_DATA

_CALLS = ("PartitionedCall", "StatefulPartitionedCall")
_LOOPS = ("While", "StatelessWhile")
_BRANCHES = ("If", "StatelessIf", "Case", "StatelessCase")
# Equal along every axis where their inputs are, and whatever their inputs are.
_EVEN = {*ELEMENTWISE, *REDUCTIONS, "BroadcastTo", "Tile", "Reshape"}
_EVEN |= {"ExpandDims", "Squeeze", "Transpose"}
_EVEN_ALWAYS = {"Fill", "ZerosLike", "OnesLike", "TensorListReserve", "EmptyTensorList"}
_EVEN_ALWAYS |= set(DRAWS) - OF_DATA.keys()
_COPIES = ("Tile", "BroadcastTo")
# May bring back to its place what an unknown operation put elsewhere; derivatives of such.
_FETCHES = ("GatherV2", "GatherNd", *SEGMENTS)
_FIRST_ONLY = ("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3")


@dataclasses.dataclass
class Walk:
    """One walk.

    Attributes:
        size: number of examples that the graph was traced with.
        shared_draw: name and type of an operation that draws random numbers which are not those of
            single rows, such as one mask for all; None while none was met.
    """

    size: int
    shared_draw: str | None = None
    _library: dict = dataclasses.field(default_factory=dict, repr=False)

    def outputs(self, graph: tf.Graph, inputs: Sequence[Label]) -> list[Label]:
        """The labels of a function graph's outputs.

        Args:
            graph: a traced function; what it captures is public unless `inputs` says otherwise.
            inputs: labels of its inputs, in their order; those left out are public.
        """
        labels = self.labels(graph, inputs)
        return [labels.get(id(tensor), Public()) for tensor in graph.outputs]

    def labels(self, graph: tf.Graph, inputs: Sequence[Label]) -> dict[int, Label]:
        """The labels of all tensors of a function graph, by their `id`; arguments as above."""
        labels: dict[int, Label] = {}
        for index, tensor in enumerate(graph.inputs):
            labels[id(tensor)] = inputs[index] if index < len(inputs) else Public()
        for op in graph.get_operations():
            if not op.outputs or id(op.outputs[0]) in labels:
                continue
            found = [labels.get(id(tensor), Public()) for tensor in op.inputs]
            results = self._results(op, found)
            for tensor, label in zip(op.outputs, results, strict=True):
                labels[id(tensor)] = label
        return labels

    def _results(self, op: tf.Operation, found: list[Label]) -> list[Label]:
        count = len(op.outputs)
        if op.type in _CALLS:
            return self._called(op, "f", found)
        if op.type in _LOOPS:
            return self._looped(op, found)
        if op.type in _BRANCHES:
            return self._branched(op, found)
        if op.type == "IdentityN":
            return found
        if all(isinstance(label, Public) for label in found):
            return [self._public(op, found)] * count
        operation = Operation(op, tuple(found), self.size)
        if op.type.startswith("TensorList"):
            label = _list_label(operation)
        else:
            label = apply(RULES.get(op.type, _not_known), operation)
        if op.type in _FIRST_ONLY and isinstance(label, Rows):
            # Of channels; but TensorFlow computes relu of any output of the first, on a processor.
            return [label] + [operation.unknown] * (count - 1)
        if isinstance(label, Unknown):
            return self._unknown(operation, label)
        return [label] * count

    def _unknown(self, operation: Operation, label: Unknown) -> list[Label]:
        """Labels of outputs that are not known: what follows if examples were kept apart so far."""
        op = operation.op
        assumed = tuple(
            known.likely if isinstance(known, Unknown) and known.likely else known
            for known in operation.labels
        )
        after = None
        if assumed != operation.labels and op.type in RULES:
            after = apply(RULES[op.type], Operation(op, assumed, self.size))
        at_random = any(isinstance(known, Public) and known.random for known in assumed)
        if isinstance(after, Joined) and (at_random or op.type not in _FETCHES):
            return [after] * len(op.outputs)
        return [
            Unknown(label.by, after if isinstance(after, Rows) else likely_rows(tensor, self.size))
            for tensor in op.outputs
        ]

    def _public(self, op: tf.Operation, found: list[Label]) -> Label:
        """The label of what is computed without examples.

        Zeros for each row, copies of one tensor, and each row's own random numbers, are of one
        example like its data.
        """
        is_random = any(isinstance(label, Public) and label.random for label in found)
        if op.type in _COPIES and not is_random:
            copies = _copied_rows(op, self.size)
            if copies is not None:
                return copies
        even, rows = _is_even(op, found), likely_rows(op.outputs[0], self.size)
        if even and rows is not None:
            return rows
        if op.type in DRAWS:
            self.shared_draw = f"{op.type} '{op.name}'"
        return Public(even, op.type in DRAWS or is_random)

    def _called(self, op: tf.Operation, attribute: str, found: list[Label]) -> list[Label]:
        return self.outputs(self._body(op, op.get_attr(attribute).name, op.inputs), found)

    def _body(self, op: tf.Operation, name: str, inputs: Sequence[tf.Tensor]) -> tf.Graph:
        """The graph of a function that an operation calls, with the shapes of its inputs."""
        for traced in traced_bodies(op):
            if traced.name == name and len(traced.inputs) == len(inputs):
                return traced
        if name not in self._library:
            self._library |= functions_of(op.graph)
        with op.graph.as_default():
            return graph_of_function(self._library[name], [tensor.shape for tensor in inputs])

    def _looped(self, op: tf.Operation, found: list[Label]) -> list[Label]:
        body = self._body(op, op.get_attr("body").name, op.inputs)
        condition = self._body(op, op.get_attr("cond").name, op.inputs)
        labels = list(found)
        for _ in range(2 * len(labels) + 2):
            results = self.outputs(body, labels)
            merged = [_either(a, b, op) for a, b in zip(labels, results, strict=True)]
            if merged == labels:
                break
            labels = merged
        decided = self.outputs(condition, labels)
        return [_under(decided[0], label, op) for label in labels]

    def _branched(self, op: tf.Operation, found: list[Label]) -> list[Label]:
        names = [
            op.get_attr(name) for name in ("then_branch", "else_branch") if "If" in op.type
        ] or op.get_attr("branches")
        inputs = list(op.inputs)[1:]
        results = [self.outputs(self._body(op, name.name, inputs), found[1:]) for name in names]
        merged = results[0]
        for result in results[1:]:
            merged = [_either(a, b, op) for a, b in zip(merged, result, strict=True)]
        return [_under(found[0], label, op) for label in merged]


def _not_known(o: Operation) -> Label:
    return o.unknown


def _either(a: Label, b: Label, op: tf.Operation) -> Label:
    """One of two labels, as in a branch or after one more iteration."""
    if a == b:
        return a
    bad = worst([a, b])
    if bad is not None:
        return bad
    kinds = {type(a), type(b)}
    if kinds == {Public}:
        return Public()
    held = a if isinstance(a, Rows) else b
    other = b if held is a else a
    # Zeros, or numbers of one law, that a loop begins with.
    if isinstance(other, Public) and other.even:
        return held
    return Unknown(f"{op.type} '{op.name}'")


def _under(decision: Label, label: Label, op: tf.Operation) -> Label:
    """A result on which a loop or branch decided by a value of this label."""
    if isinstance(decision, Public):
        return label
    if isinstance(decision, Joined):
        return decision
    return worst([label]) or Unknown(f"{op.type} '{op.name}'")


def _is_even(op: tf.Operation, found: list[Label]) -> bool:
    if op.type == "Const":
        value = tf.get_static_value(op.outputs[0])
        return bool(np.size(value)) and bool(np.all(value == np.ravel(value)[0]))
    if op.type in _EVEN_ALWAYS:
        return True
    if op.type in OF_DATA:  # numbers that are exchanged are not independent
        return "Shuffle" not in op.type and all(
            isinstance(label, Public) and (label.even or tensor.shape.rank == 0)
            for label, tensor in zip(found, op.inputs, strict=True)
            if tensor.dtype.is_floating
        )
    if op.type not in _EVEN:
        return False
    if op.type in (*_COPIES, *REDUCTIONS) and isinstance(found[0], Public) and found[0].random:
        return False  # equal numbers, or sums that share some, in several places
    count = len(found) if op.type in ELEMENTWISE else 1  # axes and shapes stand behind
    return all(
        isinstance(label, Public) and (label.even or tensor.shape.rank == 0)
        for label, tensor in zip(found[:count], op.inputs[:count], strict=True)
    )


def _copied_rows(op: tf.Operation, size: int) -> Rows | None:
    """The axis along which a tensor is repeated once for each example, if there is one."""
    before, after = shape_of(op.inputs[0]), shape_of(op.outputs[0])
    if before is None or after is None:
        return None
    aligned = (1,) * (len(after) - len(before)) + before
    found = [
        Rows(axis, length)
        for axis, (length, total) in enumerate(zip(aligned, after, strict=True))
        if length and total == length * size
    ]
    return found[0] if len(found) == 1 else None


_IN_LISTS = {"TensorListSetItem": (0, 2), "TensorListPushBack": (0, 1)}  # others: places, lengths


def _list_label(o: Operation) -> Label:
    """Lists of tensors hold what their elements hold: a list over an axis that is no example's."""
    bad = worst(o.labels)
    if bad is not None:
        return bad
    if o.op.type == "TensorListElementShape":
        return Public()
    held = {label for label in o.labels if isinstance(label, Rows)}
    # What is beside them, or in the list already, must not tell the examples apart.
    beside = [o.labels[index] for index in _IN_LISTS.get(o.op.type, (0,))]
    if len(held) != 1 or any(isinstance(label, Public) and not label.even for label in beside):
        return o.unknown
    [label] = held
    if o.op.type == "TensorListFromTensor":
        return o.unknown if label.axis == 0 else Rows(label.axis - 1, label.inner)
    if o.op.type == "TensorListStack":
        return Rows(label.axis + 1, label.inner)
    if o.op.type in ("TensorListSetItem", "TensorListGetItem", "TensorListPushBack"):
        return label
    return o.unknown

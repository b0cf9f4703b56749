"""What a piece of a traced graph computes, as a digest, and what it writes.

Two traces of a forward and backward pass have one digest if they consist of the same operations,
connected alike, with the same attributes and constants, in loops, branches and functions as well,
and read the same parts of a batch, the same constants from elsewhere, and as many variables in the
same places.  Names, which TensorFlow numbers, do not count.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from tf_lowrank_dp._tensorflow import functions_of
from tf_lowrank_dp.tracing.writes import may_keep

# Inputs, which a graph gets where something outside of it is first used.
_INPUTS = ("Placeholder",)
# What the probe, whose graphs are not optimised, sets otherwise than a step.
_HOW_IT_IS_RUN = ("config_proto",)


@dataclasses.dataclass(frozen=True)
class TracedPart:
    """A piece of a graph.

    Attributes:
        digest: of what it computes.
        writes: operations that change state or leave TensorFlow, by type and name.
        reads: handles of the variables that it reads.
        given: tensors of graphs that it reads, from outside of it.
    """

    digest: bytes
    writes: tuple[str, ...]
    reads: tuple[tf.Tensor, ...]
    given: tuple[tf.Tensor, ...]


def traced_part(graph: tf.Graph, before: int, batch: Sequence[tf.Tensor] = ()) -> TracedPart:
    """The piece of a graph that was traced after its first `before` operations.

    Args:
        graph: that holds the piece, and what it reads.
        before: number of operations.
        batch: the tensors of a batch, in their order.
    """
    definition = graph.as_graph_def()
    names = {op.name for op in graph.get_operations()[before:] if op.type not in _INPUTS}
    library = _Library(functions_of(definition))
    leaves = {tensor.name: index for index, tensor in enumerate(batch)}
    reads: dict[int, tf.Tensor] = {}
    given: dict[int, tf.Tensor] = {}

    def outside(name: str) -> tuple:
        """What tells a tensor from outside of the piece from others that it could be."""
        if name in leaves:
            return "batch", leaves[name]
        tensor = captured(graph.get_tensor_by_name(name))
        if tensor.dtype == tf.resource:
            reads[id(tensor)] = tensor
        elif tf.is_symbolic_tensor(tensor):
            given[id(tensor)] = tensor
        return "outside", *_origin(tensor)

    nodes = [node for node in definition.node if node.name in names]
    digest = library.digest_of(nodes, (), outside=outside)
    return TracedPart(digest, (*library.writes,), (*reads.values(),), (*given.values(),))


def captured(tensor: tf.Tensor) -> tf.Tensor:
    """What a tensor of a graph stands for outside of all graphs that capture it."""
    while tf.is_symbolic_tensor(tensor):
        outer = [o for o, inner in getattr(tensor.graph, "captures", ()) if inner is tensor]
        if not outer:
            break
        tensor = outer[0]
    return tensor


def _origin(tensor: tf.Tensor) -> tuple:
    """Kind and type of a tensor from outside, and the value of a constant."""
    form = tensor.dtype.name, str(tensor.shape)
    if tensor.dtype in (tf.resource, tf.variant):
        return ("variable", form[0])
    if tf.is_symbolic_tensor(tensor):
        return ("tensor", *form)
    return ("constant", *form, hashlib.sha256(tensor.numpy().tobytes()).digest())


class _Library:
    """The functions that a graph calls, each looked at once."""

    def __init__(self, functions: dict[str, Any]):
        self._functions = functions
        self._digests: dict[str, bytes] = {}
        self.writes: list[str] = []

    def digest_of(
        self,
        nodes: Sequence,
        arguments: Sequence[str],
        results: Sequence = (),
        outside: Callable[[str], tuple] = lambda name: (),
    ) -> bytes:
        """Of nodes that read each other, named arguments, and what `outside` tells apart."""
        numbers: dict[str, int] = {name: number for number, name in enumerate(arguments)}
        for node in nodes:
            numbers.setdefault(node.name, len(numbers))
        known = dict(numbers)
        found = hashlib.sha256()

        def add(*parts: object) -> None:
            found.update(repr(parts).encode())

        def source(name: str) -> tuple:
            holder, _, output = name.partition(":")
            if holder in known:
                return known[holder], output
            whence = outside(f"{holder}:{output or 0}")
            return numbers.setdefault(f"{holder}:{output}", len(numbers)), whence

        for node in nodes:
            if node.op not in self._functions and may_keep(node.op):
                self.writes.append(f"{node.op} '{node.name}'")
            operation = self._function(node.op) if node.op in self._functions else node.op
            add(operation, [source(name) for name in node.input if not name.startswith("^")])
            for name in sorted(node.attr):
                if name not in _HOW_IT_IS_RUN and not name.startswith("_"):
                    add(name, *self._attribute(node.attr[name]))
        add([source(name) for name in results])
        return found.digest()

    def _attribute(self, value: Any) -> Iterator[bytes]:
        functions = [value.func] if value.HasField("func") else list(value.list.func)
        if not functions:
            yield value.SerializeToString(deterministic=True)
        for function in functions:
            yield self._function(function.name)

    def _function(self, name: str) -> bytes:
        if name not in self._functions:
            return b""  # An unused derivative.
        if name not in self._digests:
            function = self._functions[name]
            arguments = [argument.name for argument in function.signature.input_arg]
            results = [function.ret[result.name] for result in function.signature.output_arg]
            self._digests[name] = self.digest_of(function.node_def, arguments, results)
        return self._digests[name]

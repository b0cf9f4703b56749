"""What a piece of a traced graph computes, as a digest, and what it writes.

Two traces of a forward and backward pass have one digest if they consist of the same operations,
connected alike, with the same attributes and constants, in loops, branches and functions as well.
Names, which TensorFlow numbers, and where the inputs come from do not count.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

_WRITES: tuple[str, ...] = ("Assign", "ResourceScatter", "ResourceApply", "LookupTableInsert")
_WRITES += ("LookupTableImport", "LookupTableRemove", "QueueEnqueue", "StackPush", "PyFunc")
_WRITES += ("EagerPyFunc", "WriteFile", "IteratorGetNext", "QueueDequeue")
# Inputs, which a graph gets where something outside of it is first used.
_INPUTS = ("Placeholder",)


@dataclasses.dataclass(frozen=True)
class TracedPart:
    """A piece of a graph.

    Attributes:
        digest: of what it computes.
        writes: operations that change state or leave TensorFlow, by type and name.
    """

    digest: bytes
    writes: tuple[str, ...]


def traced_part(graph: tf.Graph, before: int) -> TracedPart:
    """The piece of a graph that was traced after its first `before` operations."""
    definition = graph.as_graph_def()
    names = {op.name for op in graph.get_operations()[before:] if op.type not in _INPUTS}
    library = _Library({f.signature.name: f for f in definition.library.function})
    digest = library.digest_of([node for node in definition.node if node.name in names], ())
    return TracedPart(digest, tuple(library.writes))


class _Library:
    """The functions that a graph calls, each looked at once."""

    def __init__(self, functions: dict[str, Any]):
        self._functions = functions
        self._digests: dict[str, bytes] = {}
        self.writes: list[str] = []

    def digest_of(self, nodes: Sequence, arguments: Sequence[str], results: Sequence = ()) -> bytes:
        """Of nodes that read each other, named arguments, and whatever else."""
        numbers: dict[str, int] = {name: number for number, name in enumerate(arguments)}
        for node in nodes:
            numbers.setdefault(node.name, len(numbers))
        found = hashlib.sha256()

        def add(*parts: object) -> None:
            found.update(repr(parts).encode())

        def source(name: str) -> tuple[int, str]:
            holder, _, output = name.partition(":")
            return numbers.setdefault(holder, len(numbers)), output

        for node in nodes:
            if node.op.startswith(_WRITES):
                self.writes.append(f"{node.op} '{node.name}'")
            add(node.op, [source(name) for name in node.input if not name.startswith("^")])
            for name in sorted(node.attr):
                if not name.startswith("_"):
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

"""Which variables a piece of a traced graph writes to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from tf_lowrank_dp._tensorflow import functions_of
from tf_lowrank_dp.tracing.traced_part import captured
from tf_lowrank_dp.tracing.writes import may_keep

# Their last inputs are the arguments of their functions.
_CALLS = {
    *("If", "StatelessIf", "While", "StatelessWhile", "Case", "StatelessCase"),
    *("PartitionedCall", "StatefulPartitionedCall"),
}


def written_variables(graph: tf.Graph, before: int) -> list[tf.Tensor]:
    """Handles of the variables that may be written to by what was traced after `before` operations.

    Guarantee: those of all operations that may keep something (see `may_keep`), in loops, branches
    and functions as well; of an operation that calls functions in a way unknown here, all that it
    is given.

    Args:
        graph: that holds the piece.
        before: number of operations.

    Example:

    >>> import tensorflow as tf
    >>> one, two = tf.Variable(1.0), tf.Variable(2.0)
    >>> graph = tf.function(lambda: one.assign(two)).get_concrete_function().graph
    >>> [handle is one.handle for handle in written_variables(graph, 0)]
    [True]
    """
    definition = graph.as_graph_def()
    names = {op.name for op in graph.get_operations()[before:]}
    nodes = [node for node in definition.node if node.name in names]
    found: dict[int, tf.Tensor] = {}
    for name in _Functions(functions_of(definition)).written(nodes):
        tensor = graph.get_tensor_by_name(name if ":" in name else f"{name}:0")
        if tensor.dtype in (tf.resource, tf.variant):
            handle = captured(tensor)
            found[id(handle)] = handle
    return list(found.values())


class _Functions:
    """The functions that a graph calls, each looked at once."""

    def __init__(self, functions: dict[str, Any]):
        self._functions = functions
        self._arguments: dict[str, set[int]] = {}

    def written(self, nodes: Iterable) -> set[str]:
        """Names of the tensors that hold what the nodes write to, their aliases included."""
        sources: dict[str, str] = {}
        found: set[str] = set()
        for node in nodes:
            inputs = [name for name in node.input if not name.startswith("^")]
            if node.op == "Identity":  # of a handle
                sources[node.name] = inputs[0]
            called = self._called_by(node)
            if not called:
                found.update(inputs if may_keep(node.op) else ())
            elif node.op in _CALLS:
                for name in called:
                    found.update(self._written_of(name, inputs))
            else:
                found.update(inputs)
        for name in list(found):
            while name.partition(":")[0] in sources:
                name = sources[name.partition(":")[0]]
                found.add(name)
        return found

    def _called_by(self, node: Any) -> list[str]:
        attributes = [value for value in node.attr.values() if value.HasField("func")]
        lists = [function for value in node.attr.values() for function in value.list.func]
        names = [node.op, *(value.func.name for value in attributes), *(f.name for f in lists)]
        return [name for name in names if name in self._functions]

    def _written_of(self, name: str, inputs: Sequence[str]) -> set[str]:
        """The last inputs of a call, of those arguments that the function writes to."""
        if name not in self._arguments:
            function = self._functions[name]
            arguments = [argument.name for argument in function.signature.input_arg]
            self._arguments[name] = set()  # a function that calls itself
            within = {each.partition(":")[0] for each in self.written(function.node_def)}
            self._arguments[name] = {
                index - len(arguments) for index, each in enumerate(arguments) if each in within
            }
        return {inputs[index] for index in self._arguments[name]}

"""Which variables tensors of a graph were computed from, in it and in the graphs around it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import tensorflow as tf


def handles_behind(
    tensors: Iterable[tf.Tensor], known: Callable[[tf.Tensor], bool] = lambda tensor: False
) -> list[tf.Tensor]:
    """Handles of the variables that tensors were computed from.

    Where an argument of a function is met, nobody can tell what it will be: it counts as computed
    from all that the functions around it, if such are being traced, have read so far.  What these
    read later, and what others give to the function when it is not traced again, is not seen.

    Args:
        tensors: of any graphs; eager ones were computed from nothing that is known.
        known: whether what a tensor was computed from does not matter.

    Example:

    >>> import tensorflow as tf
    >>> one, two, found = tf.Variable(1.0), tf.Variable(2.0), []
    >>> @tf.function
    ... def traced(x):
    ...     found.extend(handles_behind([one * x]))
    ...     return two * x
    >>> _ = traced(tf.constant(1.0))
    >>> [handle is one.handle for handle in found]
    [True]
    """
    found: dict[int, tf.Tensor] = {}
    seen: set[int] = set()
    graphs: dict[int, _Around] = {}
    left = list(tensors)
    while left:
        tensor = left.pop()
        if id(tensor) in seen or known(tensor):
            continue
        seen.add(id(tensor))
        if tf.is_symbolic_tensor(tensor):
            graph = tensor.graph
            if id(graph) not in graphs:
                graphs[id(graph)] = _Around(graph)
            left += graphs[id(graph)].sources(tensor)
        elif tensor.dtype == tf.resource:
            found[id(tensor)] = tensor
    return list(found.values())


class _Around:
    """How a graph is connected with what is around it."""

    def __init__(self, graph: tf.Graph):
        self._captured = {id(inner): outer for outer, inner in _captures(graph)}
        self._arguments = {id(tensor) for tensor in getattr(graph, "inputs", ())}
        self._read_around = []
        around = getattr(graph, "outer_graph", None)
        while around is not None:
            self._read_around += [outer for outer, _ in _captures(around)]
            around = getattr(around, "outer_graph", None)

    def sources(self, tensor: tf.Tensor) -> list[tf.Tensor]:
        """What a tensor of the graph is computed from, or stands for."""
        if id(tensor) in self._captured:
            return [self._captured[id(tensor)]]
        if id(tensor) in self._arguments:
            return self._read_around
        return list(tensor.op.inputs)


def _captures(graph: tf.Graph | None) -> list[tuple[tf.Tensor, tf.Tensor]]:
    return list(getattr(graph, "captures", ()))

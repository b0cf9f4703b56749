"""What TensorFlow's kernel registry says of the operations of a traced step, without a GPU.

The wheel for Linux is built with CUDA, so its registry names the GPU's kernels on any machine.
"""

import dataclasses

import tensorflow as tf
from tensorflow.core.framework import types_pb2
from tensorflow.python.framework import kernels

from tf_lowrank_dp._tensorflow import functions_of

ON_A_GPU = ("GPU", "DEFAULT")
"""Devices of kernels that a GPU can run; a default kernel belongs to every device."""

HANDLED_BY_THE_RUNTIME = ("Placeholder",)
"""Arguments of functions, which are never executed."""


@dataclasses.dataclass(frozen=True)
class Missing:
    """An operation that only the host can run.

    Attributes:
        type: of the operation.
        types: its attributes that name types.
        name: in its graph.
    """

    type: str
    types: tuple
    name: str


def without_gpu_kernel(graph: tf.Graph) -> list[Missing]:
    """The operations of a graph, and of all functions that it calls, without a GPU's kernel."""
    whole = graph.as_graph_def()
    nodes, called = list(whole.node), functions_of(whole)
    for function in called.values():
        nodes += function.node_def
    return [
        Missing(node.op, _types(node), node.name)
        for node in nodes
        if node.op not in called
        and node.op not in HANDLED_BY_THE_RUNTIME
        and not any(_fits(kernel, node) for kernel in _kernels(node.op))
    ]


_FOUND: dict[str, list] = {}


def _kernels(operation: str) -> list:
    if operation not in _FOUND:
        _FOUND[operation] = [
            kernel
            for kernel in kernels.get_registered_kernels_for_op(operation).kernel
            if kernel.device_type in ON_A_GPU
        ]
    return _FOUND[operation]


def _fits(kernel, node) -> bool:
    """Whether a kernel is for the types of a node."""
    return all(
        _types_of(node.attr[constraint.name]) <= set(constraint.allowed_values.list.type)
        for constraint in kernel.constraint
    )


def _types_of(value) -> set[int]:
    return set(value.list.type) if value.WhichOneof("value") == "list" else {value.type}


def _types(node) -> tuple:
    return tuple(
        (name, *(types_pb2.DataType.Name(number) for number in sorted(_types_of(value))))
        for name, value in sorted(node.attr.items())
        if value.WhichOneof("value") == "type"
    )

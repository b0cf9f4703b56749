"""What TensorFlow's kernel registry says of the operations of a traced step, without a GPU.

The wheel for Linux is built with CUDA, so its registry names the GPU's kernels on any machine, and
which of their arguments lie in the host's memory.
"""

import dataclasses
from collections.abc import Iterator

import tensorflow as tf
from tensorflow.core.framework import node_def_pb2, op_def_pb2, types_pb2
from tensorflow.python.framework import kernels, op_def_registry

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


@dataclasses.dataclass(frozen=True)
class Transfer:
    """A tensor that lies in one memory and is needed in the other.

    Attributes:
        to_host: whether the host waits for the device; else the device is given a tensor.
        producer: type of the operation that makes it; "argument" of a function.
        consumer: type of the operation that needs it.
        dtype: its name.
        name: the consumer's, in its graph.
    """

    to_host: bool
    producer: str
    consumer: str
    dtype: str
    name: str


def transfers(graph: tf.Graph) -> Iterator[Transfer]:
    """What travels between host and device in a step whose operations all run on a GPU.

    Functions take and return int32 and resources in the host's memory, as TensorFlow's runtime
    does; constants are put where they are needed.  Functions that XLA compiles are left out: their
    operations are not run one by one.  Operations without a kernel for GPUs are the other list's
    matter.
    """
    whole = graph.as_graph_def()
    called = functions_of(whole)
    for body in [None, *called.values()]:
        if body is not None and body.attr["_XlaMustCompile"].b:
            continue
        nodes = _used(whole.node if body is None else body.node_def, body)
        made: dict[str, tuple[str, bool, int]] = {}
        for argument in () if body is None else body.signature.input_arg:
            made[argument.name] = "argument", argument.type in _ON_HOST, argument.type
        for node in nodes:
            for port, (name, index, on_host, dtype) in enumerate(_ports(node, called, True)):
                key = f"{node.name}:{port}" if body is None else f"{node.name}:{name}:{index}"
                made[key] = node.op, on_host, dtype
        for node in nodes:
            given = [_tensor(name, body) for name in node.input if not name.startswith("^")]
            for name, (_, _, to_host, _) in zip(given, _ports(node, called, False), strict=False):
                producer, on_host, dtype = made.get(name, ("", to_host, 0))
                if on_host != to_host and producer != "Const":
                    kind = types_pb2.DataType.Name(dtype)
                    yield Transfer(to_host, producer, node.op, kind, node.name)


def _tensor(name: str, body) -> str:
    return f"{name}:0" if body is None and ":" not in name else name


def _used(nodes, body) -> list[node_def_pb2.NodeDef]:
    """Nodes that the outputs, or what changes a state, depend on; draws change none."""
    by_name = {node.name: node for node in nodes}
    if body is None:
        wanted = [node.name for node in nodes if _changes_state(node)]
    else:
        wanted = [*body.ret.values(), *body.control_ret.values()]
    used: dict[str, node_def_pb2.NodeDef] = {}
    while wanted:
        name = wanted.pop().lstrip("^").partition(":")[0]
        if name in by_name and name not in used:
            used[name] = by_name[name]
            wanted += by_name[name].input
    return list(used.values())


def _changes_state(node: node_def_pb2.NodeDef) -> bool:
    return node.op.startswith(("Assign", "Resource")) or node.op == "StatefulPartitionedCall"


_ON_HOST = {types_pb2.DT_INT32, types_pb2.DT_RESOURCE, types_pb2.DT_STRING}
"""Types that arguments of functions have in the host's memory."""

_CALLS = {
    *("PartitionedCall", "StatefulPartitionedCall", "While", "StatelessWhile", "If", "StatelessIf"),
    *("Placeholder", "XlaMustCompile"),
}


def _ports(
    node: node_def_pb2.NodeDef, called: dict, outputs: bool
) -> Iterator[tuple[str, int, bool, int]]:
    """Name of an argument, index in it, whether it lies on the host, and type, for each port."""
    definition = called[node.op].signature if node.op in called else op_def_registry.get(node.op)
    fitting = [kernel for kernel in _kernels(node.op) if _fits(kernel, node)]
    by_type = node.op in called or node.op in _CALLS
    if not fitting and not by_type:
        return
    for argument in definition.output_arg if outputs else definition.input_arg:
        for index, dtype in enumerate(_dtypes(argument, node)):
            if by_type:
                on_host = dtype in _ON_HOST
            else:
                on_host = argument.name in fitting[0].host_memory_arg
            yield argument.name, index, on_host, dtype


def _dtypes(argument: op_def_pb2.OpDef.ArgDef, node: node_def_pb2.NodeDef) -> list[int]:
    if argument.type_list_attr:
        return list(node.attr[argument.type_list_attr].list.type)
    dtype = argument.type or node.attr[argument.type_attr].type
    count = node.attr[argument.number_attr].i if argument.number_attr else 1
    return [dtype] * count


def _types(node) -> tuple:
    return tuple(
        (name, *(types_pb2.DataType.Name(number) for number in sorted(_types_of(value))))
        for name, value in sorted(node.attr.items())
        if value.WhichOneof("value") == "type"
    )

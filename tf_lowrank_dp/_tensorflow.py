"""The port to TensorFlow: every private name of TensorFlow that this package uses.

As `_keras/`: nothing private is looked up before a function is called, and `tests/port/` says of
each function what it must do.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

_KEEPS = threading.local()


@contextlib.contextmanager
def operations_seen_by(callback: Callable) -> Iterator[None]:
    """Context in which a callback sees, and may replace, the outputs of each operation traced.

    Args:
        callback: takes `op_type, inputs, attributes, outputs, op_name, graph` and returns the
            outputs to go on with.
    """
    from tensorflow.python.framework import op_callbacks

    def listed(*args: Any, **kwargs: Any) -> Any:
        outputs = callback(*args, **kwargs)
        # As TensorFlow has them: some operations of other libraries add lists to them.
        return None if outputs is None else list(outputs)

    op_callbacks.add_op_callback(listed)
    try:
        yield
    finally:
        op_callbacks.remove_op_callback(listed)


def has_branches(graph: tf.Graph) -> bool:
    """Whether a graph, or a function that it calls, has conditions (of assertions too) or loops."""
    return any(node.op in _BRANCHES for node in nodes_of(graph))


_BRANCHES = {"If", "StatelessIf", "While", "StatelessWhile", "Case", "StatelessCase", "Switch"}


@functools.cache
def elements_stay_apart() -> None:
    """Makes `tf.vectorized_map` keep elements apart, whatever they hold.

    Segments of all elements are put one behind the other, so a number that is too large (an id
    beyond its table, in the gradient of a gather) falls into a segment of another element: it is
    dropped, as negative ones are.  Depthwise convolutions would take all elements as channels of
    one image, which XLA mixes by zeros (infinity times zero is no number): they take a loop.  A
    roll along a negative axis would be one along that of the elements: it gets its positive number.
    """
    from tensorflow.python.ops.parallel_for import pfor

    converters = pfor._pfor_converter_registry
    for name in ("Sum", "Max", "Min", "Prod"):
        convert = converters[f"UnsortedSegment{name}"]
        converters[f"UnsortedSegment{name}"] = functools.partial(_with_known_segments, convert)
    for name in ("", "BackpropInput", "BackpropFilter"):
        converters.pop(f"DepthwiseConv2dNative{name}", None)
    converters["Roll"] = functools.partial(_with_positive_axes, converters["Roll"])


def _with_known_segments(convert: Callable, pfor_input: Any) -> Any:
    from tensorflow.python.ops.parallel_for import pfor

    pfor_input.stack_inputs([0, 1])
    numbers, count = pfor_input.stacked_input(1), pfor_input.unstacked_input(2)
    known = numbers < tf.cast(count, numbers.dtype)
    pfor_input._inputs[1] = pfor.wrap(tf.where(known, numbers, -tf.ones_like(numbers)), True)
    return convert(pfor_input)


def _with_positive_axes(convert: Callable, pfor_input: Any) -> Any:
    from tensorflow.python.ops.parallel_for import pfor

    pfor_input.stack_inputs([0])
    axes = pfor_input.unstacked_input(2)
    rank = tf.cast(tf.rank(pfor_input.stacked_input(0)) - 1, axes.dtype)
    pfor_input._inputs[2] = pfor.wrap(tf.where(axes < 0, axes + rank, axes), False)
    return convert(pfor_input)


@contextlib.contextmanager
def pointwise_filters_without_strides() -> Iterator[None]:
    """Context in which gradients of strided 1x1 kernels are traced as those of the pixels they see.

    TensorFlow's oneDNN kernel (2.21) writes out of bounds for an odd number of examples: plain
    training with batches of 32 never meets it, the gradient of a single example always does.
    """

    def replace(
        op_type: str,
        inputs: Sequence[tf.Tensor],
        attributes: tuple,
        outputs: Sequence[tf.Tensor],
        op_name: str | None = None,
        graph: tf.Graph | None = None,
    ) -> Sequence[tf.Tensor]:
        if op_type != "Conv2DBackpropFilter" or graph is None:
            return outputs
        op, shape = outputs[0].op, outputs[0].shape
        strides, last = op.get_attr("strides"), op.get_attr("data_format") == b"NHWC"
        plain = op.get_attr("padding") != b"EXPLICIT" and inputs[0].shape[-1] == shape[2:3][0]
        if not plain or shape[:2] != (1, 1) or max(strides) == 1 or not last:
            return outputs
        seen = inputs[0][:, :: strides[1], :: strides[2]]
        rows, gradients = (tf.reshape(t, [-1, t.shape[-1]]) for t in (seen, inputs[2]))
        run_without(op, 2)  # else it is joined with the gradient of the bias, and runs
        return [tf.reshape(tf.matmul(rows, gradients, transpose_a=True), shape)]

    with operations_seen_by(replace):
        yield


def run_without(operation: tf.Operation, position: int) -> None:
    """Gives zeros to an operation that was replaced, for an input that it must not meet.

    A function runs its stateful operations whether their outputs are used or not.
    """
    with operation.graph.as_default(), tf.control_dependencies(None):
        zeros = tf.zeros_like(operation.inputs[position])
    operation._update_input(position, zeros)


def kernels_repeat() -> bool:
    """Whether an operation on the same numbers gives the same bits each time, on a GPU too."""
    from tensorflow.python.framework import config

    return not tf.config.list_physical_devices("GPU") or config.is_op_determinism_enabled()


@contextlib.contextmanager
def nothing_recomputed() -> Iterator[None]:
    """Context in which functions of `tf.recompute_grad` keep what they compute, in this thread.

    `keras.remat` and `keras.RematScope` are such functions.  Traced in this context they are called
    as what they wrap: once, with their variables and random numbers.
    """
    _call_what_is_wrapped()
    before = getattr(_KEEPS, "results", False)
    _KEEPS.results = True
    try:
        yield
    finally:
        _KEEPS.results = before


@functools.cache
def _call_what_is_wrapped() -> None:
    from tensorflow.python.ops import custom_gradient

    original = custom_gradient._graph_mode_decorator

    def decorator(function: Callable, args: tuple, kwargs: dict) -> Any:
        if getattr(_KEEPS, "results", False):
            wrapped = inspect.unwrap(function)
            if wrapped.__qualname__ == "recompute_grad.<locals>.inner":
                return inspect.getclosurevars(wrapped).nonlocals["f"](*args, **kwargs)
        return original(function, args, kwargs)

    custom_gradient._graph_mode_decorator = decorator


def next_name_number() -> int:
    """A number above those in the names of all functions that were traced before."""
    from tensorflow.python.framework import ops

    return ops.uid()


def value_behind(handle: tf.Tensor) -> tf.Tensor | None:
    """What the variable of a handle holds now; None for the handle of anything else."""
    data = getattr(handle, "_handle_data", None)
    if data is None or not data.is_set or len(data.shape_and_type) != 1:
        return None
    with tf.init_scope():
        return tf.raw_ops.ReadVariableOp(resource=handle, dtype=data.shape_and_type[0].dtype)


def functions_of(graph: tf.Graph | tf.compat.v1.GraphDef) -> dict[str, Any]:
    """The `FunctionDef` of each function that a graph's operations may call, by name."""
    definition = graph.as_graph_def() if isinstance(graph, tf.Graph) else graph
    return {function.signature.name: function for function in definition.library.function}


def nodes_of(graph: tf.Graph | tf.compat.v1.GraphDef) -> list[Any]:
    """The `NodeDef` of each operation of a graph and of the functions that it may call."""
    definition = graph.as_graph_def() if isinstance(graph, tf.Graph) else graph
    bodies = [definition.node, *(f.node_def for f in functions_of(definition).values())]
    return [node for body in bodies for node in body]


def is_stateful(op_type: str) -> bool:
    """Whether an operation is stateful by its definition, or changes a variable by reference.

    True for operations that are not registered.
    """
    from tensorflow.python.framework import op_def_registry

    definition = op_def_registry.get(op_type)
    if definition is None:
        return True
    return definition.is_stateful or any(argument.is_ref for argument in definition.input_arg)


def graph_of_function(definition: Any, input_shapes: Sequence[tf.TensorShape]) -> tf.Graph:
    """The graph of a function in a graph's library.

    Args:
        definition: a `FunctionDef`.
        input_shapes: of its inputs, as where it is called.
    """
    from tensorflow.python.framework.function_def_to_graph import function_def_to_graph

    return function_def_to_graph(definition, input_shapes=list(input_shapes))


def traced_bodies(operation: tf.Operation) -> list[tf.Graph]:
    """The graphs of a loop's or branch's functions as they were traced, with all static shapes.

    Empty for what was not traced in this process, such as operations inside of a function.
    """
    names = ("_body_graph", "_cond_graph", "_true_graph", "_false_graph")
    found = [getattr(operation, name, None) for name in names]
    return [graph for graph in found if graph is not None]


def strategies_of(part: object) -> list[tf.distribute.Strategy]:
    """The strategies in whose scope a model, an optimizer or a variable's value was made.

    None or TensorFlow's default strategy for what was made in no scope.
    """
    names = ("_distribute_strategy", "_distribution_strategy")
    found = [getattr(part, name, None) for name in names]
    return [strategy for strategy in found if strategy is not None]


def abort_collectives(message: str) -> None:
    """Ends all collective operations of this process, and those of others that wait for it."""
    from tensorflow.python.eager import context

    context.context().abort_collective_ops(tf.errors.ABORTED, message)

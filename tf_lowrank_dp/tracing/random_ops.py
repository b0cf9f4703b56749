"""The random numbers of a model's forward pass, from one stream whatever the model asks.

A model may draw with `keras.random` and a seed generator, with a number as seed, with `tf.random`
and a global seed, or with stateless operations and keys of its own.  All of them end in a few
operations of TensorFlow.  While a private step is traced each of these gets its key and counter
from the stream instead, and every execution of it, in loops as well, another counter.

So the numbers of a draw are independent and equally distributed, whatever their number: the
masks of the rows of a batch are the same in law under any numbering of the rows.  The proof that
needs this is in docs/randomness.md.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tf_lowrank_dp._keras.layers import is_seed_state
from tf_lowrank_dp._keras.scopes import in_stateless_scope
from tf_lowrank_dp._tensorflow import (
    functions_of,
    next_name_number,
    nothing_recomputed,
    operations_seen_by,
    run_without,
)
from tf_lowrank_dp.errors import UnsupportedModelError
from tf_lowrank_dp.tracing.random_draws import (
    DRAWS,
    NEVER_ENDING,
    OF_DATA,
    Source,
    is_random,
)

_ACTIVE = threading.local()


class FixedSource:
    """The same numbers in each forward pass that is traced with a new one: for the probe."""

    def __init__(self) -> None:
        self._next = 0

    def key_and_counter(self) -> tuple[tf.Tensor, tf.Tensor]:
        self._next += 1
        counter = tf.constant(np.array([0, self._next], np.uint64))
        return tf.constant(np.array([0x7D0], np.uint64)), counter

    @property
    def was_used(self) -> bool:
        """Whether anything was drawn."""
        return self._next > 0

    def owns(self, resource: tf.Tensor) -> bool:
        return False


class ConstantSource(FixedSource):
    """As `FixedSource`, with one number for all elements of a draw.

    No row's number depends on where it stands, so that a model that draws can be compared on
    batches of different sizes.  Uniform ones are near 1, where dropout keeps what it gets.  Draws
    whose law depends on the data give its mean, or what is likeliest.
    """


class LowSource(FixedSource):
    """As `FixedSource`, with single uniform numbers near 0: conditions that seldom hold do."""


@contextlib.contextmanager
def random_numbers_from(source: Source) -> Iterator[None]:
    """Context in which all random operations that are traced draw from `source`.

    Only graphs are reached, so a forward pass in it must be traced.  A function that would be
    computed again in the backward pass (`tf.recompute_grad`), with other numbers, is kept.

    Raises:
        RuntimeError: in eager mode.
        UnsupportedModelError: when the model draws in a way that cannot be replaced.
    """
    if tf.executing_eagerly():
        raise RuntimeError(
            "Expected a forward pass that is traced. Received: eager mode, in which random numbers "
            "cannot be replaced. Call it in a tf.function. Undo "
            "tf.config.run_functions_eagerly(True), and debug with compile(run_eagerly=True)."
        )

    def replace(
        op_type: str,
        inputs: Sequence[tf.Tensor],
        attributes: tuple,
        outputs: Sequence[tf.Tensor],
        op_name: str | None = None,
        graph: tf.Graph | None = None,
    ) -> Sequence[tf.Tensor] | None:
        del attributes, op_name, graph
        repeated = getattr(_ACTIVE, "repeated", None)
        if repeated and op_type in DRAWS and op_type not in OF_DATA:
            return [repeated.pop(0)]
        now = getattr(_ACTIVE, "instead", None) or source
        found = _replacement(op_type, inputs, outputs, now)
        if found is None:
            return outputs
        _ACTIVE.draws = draws_so_far() + 1
        if op_type in NEVER_ENDING:
            run_without(outputs[0].op, NEVER_ENDING[op_type])
        found.set_shape(outputs[0].shape)
        if getattr(_ACTIVE, "noted", None) is not None and op_type not in OF_DATA:
            _ACTIVE.noted.append(found)
        return [found]

    graph = tf.compat.v1.get_default_graph()
    began, before = next_name_number(), len(graph.get_operations())
    with operations_seen_by(replace), nothing_recomputed():
        yield
    _refuse_kept_functions(graph, graph.get_operations()[before:], began)


def origin(tensor: tf.Tensor) -> tf.Tensor:
    """What a tensor is outside of the functions and loops that captured it."""
    while not hasattr(tensor, "numpy"):
        captures = getattr(tensor.graph, "captures", ())
        captured = {id(inside): outside for outside, inside in captures}
        if id(tensor) not in captured:
            break
        tensor = captured[id(tensor)]
    return tensor


def draws_so_far() -> int:
    """How many random operations this thread has traced in `random_numbers_from`."""
    return getattr(_ACTIVE, "draws", 0)


@contextlib.contextmanager
def source_spared() -> Iterator[None]:
    """Context whose draws are of no use: the source is left as it is."""
    _ACTIVE.instead = FixedSource()
    try:
        yield
    finally:
        _ACTIVE.instead = None


@contextlib.contextmanager
def draws_noted() -> Iterator[list[tf.Tensor]]:
    """Context that lists the random numbers drawn in it, so that they can be used once more."""
    before = getattr(_ACTIVE, "noted", None)
    noted: list[tf.Tensor] = []
    _ACTIVE.noted = noted
    try:
        yield noted
    finally:
        _ACTIVE.noted = before
        if before is not None:
            before.extend(noted)


@contextlib.contextmanager
def draws_repeated(numbers: Iterable[tf.Tensor]) -> Iterator[list[tf.Tensor]]:
    """Context in which draws give these numbers, one after the other; lists those not yet given."""
    before = getattr(_ACTIVE, "repeated", None)
    _ACTIVE.repeated = list(numbers)
    try:
        yield _ACTIVE.repeated
    finally:
        _ACTIVE.repeated = before


@contextlib.contextmanager
def seeds_kept() -> Iterator[None]:
    """Context in which the seed generators of Keras do not advance.

    Their counters would tell how often a private step drew, which depends on the number of rows.
    Other variables that a forward pass assigns are assigned when it ends.
    """
    if in_stateless_scope():  # which keeps them
        yield
        return
    with _SeedsKept(collect_losses=True) as scope:
        yield
    for variable, value in scope.updates.values():
        variable.assign(value)


class _SeedsKept(keras.StatelessScope):
    """Keeps assignments back, and those of seeds for good."""

    def __init__(self, **arguments: Any):
        super().__init__(**arguments)
        self.updates: dict[int, tuple[keras.Variable, tf.Tensor]] = {}

    def add_update(self, update: Any) -> None:
        super().add_update(update)
        if not is_seed_state(update[0]):
            self.updates[id(update[0])] = update


_ADVANCE = "RngReadAndSkip"  # vectorised maps repeat that of a stream
_CALLS = {
    *("PartitionedCall", "StatefulPartitionedCall", "While", "StatelessWhile"),
    *("If", "StatelessIf", "Case", "StatelessCase"),
}


def _replacement(
    op_type: str, inputs: Sequence[tf.Tensor], outputs: Sequence[tf.Tensor], source: Source
) -> tf.Tensor | None:
    """What an operation gives instead; None where it does not draw."""
    if op_type in OF_DATA and isinstance(source, ConstantSource):
        return OF_DATA[op_type](inputs, outputs)
    if op_type in DRAWS and isinstance(source, ConstantSource):
        number = DRAWS[op_type]([tf.zeros([0], tf.int32), *inputs[1:]], outputs, source)
        if "Uniform" in op_type and number.dtype.is_floating:
            number = 1.0 - number / 32.0
        return tf.broadcast_to(number, inputs[0])
    if op_type in DRAWS:
        number = DRAWS[op_type](inputs, outputs, source)
        if isinstance(source, LowSource) and "Uniform" in op_type and number.dtype.is_floating:
            number = number / 1024.0 if outputs[0].shape.num_elements() == 1 else number
        return number
    if is_random(op_type) and not (op_type == _ADVANCE and source.owns(origin(inputs[0]))):
        raise UnsupportedModelError(
            "Expected random numbers that a private step can draw from its own secret stream. "
            f"Received: TensorFlow's operation {op_type}, whose numbers follow a state of its "
            "own. Draw them with keras.random and a keras.random.SeedGenerator instead."
        )
    return None


def _refuse_kept_functions(graph: tf.Graph, operations: Sequence[tf.Operation], began: int) -> None:
    """Refuses functions that draw and were traced before: their numbers are out of reach.

    One that is traced just now draws from the source, is kept, and refused when it is met again:
    the probe traces each model several times.

    Args:
        graph: where the forward pass was traced.
        operations: those of it.
        began: TensorFlow's counter of names when that began.
    """
    if not any(op.type in _CALLS for op in operations):
        return
    library = functions_of(graph)
    known = set()

    def visit(nodes: Iterable, kept: str = "") -> None:
        """Looks at nodes; `kept` is the name of the function that holds them, if it is kept."""
        for node in nodes:
            if kept and is_random(node.op):
                raise UnsupportedModelError(
                    "Expected a forward pass whose random numbers a private step can draw from "
                    f"its own secret stream. Received: {node.op} in '{kept}', a tf.function "
                    "inside the model, which keeps what it was traced with. Remove the "
                    "@tf.function: fit compiles the whole step anyway."
                )
            for name in (value.func.name for value in node.attr.values() if value.HasField("func")):
                number = name.rpartition("_")[2]
                keeps = kept or (name if number.isdigit() and int(number) < began else "")
                if name in library and (name, keeps) not in known:
                    known.add((name, keeps))
                    visit(library[name].node_def, keeps)

    visit([op.node_def for op in operations])

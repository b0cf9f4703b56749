"""Whether the function of a `tf.data` stage, such as `.flat_map()`, gives a row more than once."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

import tensorflow as tf

from tf_lowrank_dp._tf_data import (
    captured_by,
    comes_in_several,
    functions_in,
    inputs_of,
    kind_of,
)

_STAGE = re.compile(r"(?:Experimental)?(?:Parallel)?(\w+?)Dataset(?:V\d)?")
_TAKEN_APART = ("FlatMap", "Interleave", "Unbatch")
_BATCHES = ("Batch", "BatchAndDrop", "PaddedBatch")
_WHOLE = ("ReduceDataset", "DatasetToSingleElement")
JOINS = ("Concatenate", "DirectedInterleave", "Zip")
_IN_ORDER = ("Shuffle", "Cache", "Prefetch", "Options", "AssertCardinality")
_READERS = ("TFRecord", "TextLine", "FixedLengthRecord", "CSV")
WINDOWS = "the rows of `.window()`s that overlap (shift= below size)"
_AGAIN = "one data set in a function, which gives it again for each element of another"
_BEHIND_ITSELF = "one data set several times behind each other or in pairs, in a function"


def operations_inside(dataset: tf.data.Dataset) -> Iterator[tf.Operation]:
    """The operations in a stage's functions."""
    return (op for graph in functions_in(dataset) for op in graph.get_operations())


def shares_inside(dataset: tf.data.Dataset) -> bool:
    """Whether the functions of a stage take a share of what they capture or read."""
    return any(kind == "Shard" for kind, _ in stages_inside(dataset))


def is_of_instructions(op: tf.Operation, dataset: tf.data.Dataset) -> bool:
    """Whether a `Take` or `Skip` inside is of a file's rows: its number comes with the name."""
    sources = [each for each in _made_of(op.inputs[0].op) if _is_source(each)]
    names = all(tensor.dtype == tf.string for each in sources for tensor in each.inputs)
    return bool(sources) and names and any(k in _READERS for k, _ in stages_inside(dataset))


def stages_inside(dataset: tf.data.Dataset) -> Iterator[tuple[str, tf.Operation]]:
    """The stages that the functions of a stage make, such as those of a `.flat_map()`."""
    for op in operations_inside(dataset):
        if kind := _kind(op):
            yield kind, op


def count_of(op: tf.Operation) -> int | None:
    """How many elements a `Repeat`, `Take` or `Skip` inside is about; None if data decide it."""
    count = tf.get_static_value(op.inputs[1])
    return None if count is None else int(count)


def counts_inside(op: tf.Operation) -> bool:
    """Whether a `Scan` inside is `tf.data.Dataset.counter()`: of one number, by numbers."""
    while _kind(op) in ("Scan", "Repeat"):
        op = op.inputs[0].op
    return _is_a_number(op)


def whole_inside(dataset: tf.data.Dataset) -> bool:
    """Whether the functions of a stage make single elements of data sets, such as windows."""
    return any(_kind(op) in _BATCHES or op.type in _WHOLE for op in operations_inside(dataset))


def rows_again(dataset: tf.data.Dataset) -> str:
    """By what the functions of a stage give a row several times; nothing where they do not tell."""
    graphs = functions_in(dataset)
    if not graphs:  # of `.unbatch()`
        return ""
    inside = [*stages_inside(dataset)]
    if any(kind == "Repeat" and _repeats(op) for kind, op in inside):
        return "`.repeat()`"
    windows = [op for kind, op in inside if kind == "Window" and comes_in_several(*op.inputs[1:4])]
    apart = any(kind in _TAKEN_APART for kind, _ in inside)
    if windows and (any(kind == "Unbatch" for kind, _ in inside) or not whole_inside(dataset)):
        return WINDOWS
    if any(_joins_itself(op) for kind, op in inside if kind in JOINS):
        return _BEHIND_ITSELF
    several = int(inputs_of(dataset)[0].cardinality()) != 1
    if (several or apart) and _comes_again(dataset, graphs[0]):
        return _AGAIN
    return ""


def _kind(op: tf.Operation) -> str:
    stage = _STAGE.fullmatch(op.type)
    return stage[1] if stage else ""


def _repeats(op: tf.Operation) -> bool:
    """Whether rows come again, and not a single number beside each row of others."""
    if count_of(op) in (None, 1):
        return False
    beside = all(_kind(each) == "Zip" for each in op.outputs[0].consumers())
    return not (beside and _is_one_element(op.inputs[0].op))


def _is_one_element(op: tf.Operation) -> bool:
    return _kind(op) == "Tensor"


def _is_a_number(op: tf.Operation) -> bool:
    return _is_one_element(op) and all(tensor.shape.rank == 0 for tensor in op.inputs)


def _joins_itself(op: tf.Operation) -> bool:
    """Whether what a stage joins has rows of one data set on several sides.

    Pairs of what is one element each, such as the halves of a window, are one example.
    """
    sides = [tensor.op for tensor in op.inputs if tensor.dtype == tf.variant]
    if _kind(op) == "Zip" and all(map(_is_batch, sides)):
        return False
    made_of = [_made_of(side) for side in sides]
    return any(one & other for one, other in itertools.combinations(made_of, 2))


def _is_batch(op: tf.Operation) -> bool:
    while _kind(op) == "Map":
        op = op.inputs[0].op
    return _kind(op) in _BATCHES


def _made_of(op: tf.Operation) -> set[tf.Operation]:
    """An operation and all before it that give data sets, but for numbers that are counted."""
    found: set[tf.Operation] = set()
    todo = [op]
    while todo:
        each = todo.pop()
        if each not in found and not _is_counted(each):
            found.add(each)
            todo += [tensor.op for tensor in each.inputs if tensor.dtype == tf.variant]
    return found


def _comes_again(dataset: tf.data.Dataset, graph: tf.Graph) -> bool:
    """Whether a data set that does not depend on the element reaches what a function gives.

    Not by `.shard(n, element)` of numbers that differ: a share for each.  Nor are numbers meant
    that are counted, or are the same, beside rows that depend on the element.
    """
    held = captured_by(dataset)
    given = graph.inputs[: len(graph.inputs) - len(held)]
    behind = {tensor.op for tensor in given}
    for op in graph.get_operations():  # in the order in which they were made
        if any(tensor.op in behind for tensor in op.inputs):
            behind.add(op)
    todo = [
        (tensor, _is_counted(op))
        for op in graph.get_operations()
        for tensor in op.outputs
        if tensor.dtype == tf.variant and op not in behind and _is_source(op)
    ]
    last = {id(tensor) for tensor in graph.outputs}
    seen: set[tuple[tf.Operation, bool]] = set()
    while todo:
        tensor, counted = todo.pop()
        if id(tensor) in last:
            return True
        for op in tensor.consumers():
            joins = _kind(op) in ("Zip", "FlatMap", "Interleave")  # with what they are given
            beside = op in behind and (joins or op.outputs[0].dtype != tf.variant)
            if (counted and beside) or _is_share(op, tensor, given, dataset):
                continue
            if (op, counted) not in seen:
                seen.add((op, counted))
                todo += [(output, counted) for output in op.outputs]
    return False


def _is_source(op: tf.Operation) -> bool:
    """Whether it is where rows come from: read, or captured."""
    joined = any(tensor.dtype == tf.variant for tensor in op.inputs)
    return not joined and (op.type == "Placeholder" or bool(_kind(op)))


def _is_counted(op: tf.Operation) -> bool:
    """Whether it counts or draws, or is one number, whatever the element."""
    constant = all(tf.get_static_value(tensor) is not None for tensor in op.inputs)
    return (_kind(op) == "Range" and constant) or _kind(op) == "Random" or _is_a_number(op)


def _is_share(
    op: tf.Operation, rows: tf.Tensor, given: list[tf.Tensor], dataset: tf.data.Dataset
) -> bool:
    """Whether it takes another share of the rows for each element."""
    if op.type == "DatasetCardinality":
        return True
    if _kind(op) != "Shard" or op.inputs[0] is not rows or count_of(op) is None:
        return False
    if any(_kind(each).startswith("Shuffle") for each in _made_of(op.inputs[0].op)):
        return False  # another order for each
    index = op.inputs[2]
    while index.op.type == "Identity" or (index.op.type == "Cast" and index.dtype.is_integer):
        index = index.op.inputs[0]
        if not index.dtype.is_integer:
            return False
    [outer] = inputs_of(dataset)
    while kind_of(outer) in _IN_ORDER:
        [outer] = inputs_of(outer)
    return kind_of(outer) == "Range" and any(index is tensor for tensor in given)

"""The port to `tf.data`: every private name of its data sets that this package uses.

As `_tensorflow.py`: one function each, which `tests/port/` calls.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import tensorflow as tf

from tf_lowrank_dp._tensorflow import functions_of, graph_of_function, nodes_of


def mapped_in_one_thread(dataset: tf.data.Dataset, function: Callable) -> tf.data.Dataset:
    """`dataset.map(function)` whose operations the reading thread runs one after the other.

    A record's few small operations cost less than waking other threads for them: on two busy cores
    a third of the time.  Its executor knows no branches and loops.
    """
    from tensorflow.python.data.ops import map_op

    return map_op._MapDataset(dataset, function, use_inter_op_parallelism=False)


def data_sets_of(dataset: tf.data.Dataset) -> list[tf.data.Dataset]:
    """A data set and all those that it is made of, or that its functions read."""
    dataset = _uncovered(dataset)
    return [dataset, *(each for source in read_by(dataset) for each in data_sets_of(source))]


def read_by(dataset: tf.data.Dataset) -> list[tf.data.Dataset]:
    """The data sets that a stage takes its elements from, or that its functions read."""
    return [*inputs_of(dataset), *filter(None, held_by(dataset))]


def inputs_of(dataset: tf.data.Dataset) -> list[tf.data.Dataset]:
    """The data sets that one takes its elements from, without the cover of `tf.compat.v1.data`.

    `.apply()` writes its own idea of them over that of `.concatenate()`.
    """
    behind = getattr(dataset, "_dataset_to_concatenate", None)
    sources = dataset._inputs() if behind is None else [dataset._input_dataset, behind]
    reader = getattr(dataset, "_impl", None)  # of files whose names are a data set
    return [_uncovered(source) for source in (sources if reader is None else [reader])]


def held_by(dataset: tf.data.Dataset) -> list[tf.data.Dataset | None]:
    """The data sets that a stage's functions capture; None for one that they do not name."""
    if dataset not in _HELD:
        _HELD[dataset] = [
            reference
            for own in _functions_of(dataset)
            for reference in _named(own._func, own.function.captured_inputs)
        ]
    return [None if reference is None else reference() for reference in _HELD[dataset]]


_HELD: weakref.WeakKeyDictionary[tf.data.Dataset, list] = weakref.WeakKeyDictionary()


def _functions_of(dataset: tf.data.Dataset) -> list[Any]:
    """A stage's functions; that of `.load()` is not among those that TensorFlow names."""
    reader = getattr(dataset, "_reader_func", None)
    return dataset._functions() or ([] if reader is None else [reader])


def _named(function: Callable, captured: list[tf.Tensor]) -> list[weakref.ref | None]:
    """The data sets among what is captured, by the names that the function has for them."""
    missing = {id(each): None for each in captured if each.dtype == tf.variant}
    found: dict[int, weakref.ref | None] = dict(missing)
    reached = _data_sets_reached_from(function) if missing else iter(())
    while missing and (dataset := next(reached, None)) is not None:
        variant = id(dataset._variant_tensor_attr)
        if variant in missing:
            del missing[variant]
            found[variant] = weakref.ref(dataset)
    return list(found.values())


def _data_sets_reached_from(function: Callable) -> Iterator[tf.data.Dataset]:
    """Those in a function's closure and module, and in what is held there, the nearest first."""
    seen, level = {id(function)}, [function]
    while level and len(seen) < _MOST_OBJECTS:
        level = [
            each for each in gc.get_referents(*level) if not isinstance(each, type | ModuleType)
        ]
        level = [each for each in level if id(each) not in seen]
        yield from (each for each in level if isinstance(each, tf.data.Dataset))
        seen.update(map(id, level))


_MOST_OBJECTS = 50_000


def made_of_numbers(dataset: tf.data.Dataset) -> bool:
    """Whether it only counts, such as what `.enumerate()` numbers rows by: as its graph tells.

    Such data sets lose the names of their stages where TensorFlow rewrites them.
    """
    numbers = {"Const", "RangeDataset", "RepeatDataset", "ShardDataset", "_Retval"}
    return {node.op for node in nodes_of(_graph_of(dataset))} <= numbers


def _graph_of(dataset: tf.data.Dataset) -> tf.compat.v1.GraphDef:
    policy = tf.data.experimental.ExternalStatePolicy.IGNORE
    text = dataset._as_serialized_graph(external_state_policy=policy).numpy()
    return tf.compat.v1.GraphDef.FromString(text)


def _uncovered(dataset: tf.data.Dataset) -> tf.data.Dataset:
    while type(dataset).__name__ == "DatasetV1Adapter":
        dataset = dataset._dataset
    return dataset


def kind_of(dataset: tf.data.Dataset) -> str:
    """The stage of a pipeline: "Batch" for what `.batch` returns."""
    dataset = _uncovered(dataset)
    return type(dataset).__name__.removeprefix("_").removesuffix("Dataset").removesuffix("V2")


_NUMBERS = ("_batch_size", "_batch_size_t", "_batch_sizes", "_count")


def number_of(dataset: tf.data.Dataset) -> int | None:
    """Rows of a batch, or how often is repeated, -1 for without end; None if it is not known."""
    dataset, names = _uncovered(dataset), _NUMBERS
    number = next((getattr(dataset, name) for name in names if hasattr(dataset, name)), None)
    value = None if number is None else tf.get_static_value(number)
    return None if value is None or value.size != 1 else int(value.squeeze())


def shard_of(dataset: tf.data.Dataset) -> tuple[int, int] | None:
    """Number of the shards that `.shard` divides rows into, and which it is; None if unknown."""
    dataset = _uncovered(dataset)
    numbers = [tf.get_static_value(number) for number in (dataset._num_shards, dataset._index)]
    return None if None in numbers else (int(numbers[0]), int(numbers[1]))


def windows_overlap(dataset: tf.data.Dataset) -> bool:
    """Whether an element comes in several windows of a `.window()`, or may."""
    dataset = _uncovered(dataset)
    return comes_in_several(dataset._size, dataset._shift, dataset._stride)


def comes_in_several(size: tf.Tensor, shift: tf.Tensor, stride: tf.Tensor) -> bool:
    """Whether windows of these numbers overlap, or may."""
    numbers = [tf.get_static_value(number) for number in (size, shift, stride)]
    if any(number is None for number in numbers):
        return True
    most, moved, apart = map(int, numbers)
    return any(distance * apart % moved == 0 for distance in range(1, most))


def functions_in(dataset: tf.data.Dataset) -> list[tf.Graph]:
    """The graphs of a stage's functions, such as that of a `.map()`, and of all that these call."""
    if dataset not in _FUNCTIONS:
        graphs = [own.function.graph for own in _functions_of(dataset)]
        called = [_graph(each) for graph in graphs for each in functions_of(graph).values()]
        _FUNCTIONS[dataset] = [*graphs, *called]
    return _FUNCTIONS[dataset]


# Of a tokenizer they are a hundred, and take a sixth of a second to read.
_FUNCTIONS: weakref.WeakKeyDictionary[tf.data.Dataset, list[tf.Graph]] = weakref.WeakKeyDictionary()


def _graph(definition: Any) -> tf.Graph:
    unknown = [tf.TensorShape(None)] * len(definition.signature.input_arg)
    return graph_of_function(definition, unknown)


def is_out_of_order(dataset: tf.data.Dataset) -> bool:
    """Whether a stage was told to give first what is ready first (`deterministic=False`).

    What `.interleave()` was told is in its graph alone, which is looked at with all before it.
    """
    dataset = _uncovered(dataset)
    if kind_of(dataset) != "ParallelInterleave" or hasattr(dataset, "_deterministic"):
        return getattr(dataset, "_deterministic", "") == "false"
    return any(node.attr["deterministic"].s == b"false" for node in nodes_of(_graph_of(dataset)))


def captured_by(dataset: tf.data.Dataset) -> list[tf.Tensor]:
    """What the functions of a data set alone capture, such as the handles of variables."""
    return [each for own in _functions_of(dataset) for each in own.function.captured_inputs]

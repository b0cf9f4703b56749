"""Batches from elsewhere: datasets, generators and `PyDataset`s as one kind of dataset."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from scipy import sparse

from tf_lowrank_dp.sampling import batch as batch_lib
from tf_lowrank_dp.sampling import rows
from tf_lowrank_dp.sampling.iterators import own_copy, position_of, started
from tf_lowrank_dp.sampling.one_shape import refuse_unknown_shapes
from tf_lowrank_dp.sampling.upstream import refuse_given, refuse_sampled, without_padding

_READ_AHEAD = 2  # batches that show which axes vary, as many as Keras looks at
_OTHER_ROWS = (
    "Expected batches: every array with the same number of rows along its first axis. Received: a "
    "batch whose arrays have other numbers of rows than each other, so that rows would be of other "
    "examples. Put several views of an example into one row."
)
_NOTHING = tf.type_spec_from_value(None)  # TensorFlow 2.18 has no name for it


def to_dataset(source: Any) -> tf.data.Dataset:
    """The source's batches as a `tf.data.Dataset` of tuples.

    Args:
        source: `tf.data.Dataset`, `keras.utils.PyDataset`, Python generator (or another iterator)
            or generator function, of batches `x`, `(x, y)` or `(x, y, sample_weight)`.

    Returns:
        A dataset of 1- to 3-tuples. Iterating it again starts a `tf.data.Dataset`, a `PyDataset`
        or a generator function from its beginning, and continues a generator where it stopped.

    Raises:
        ValueError: the source is of another kind, empty, not batched, or already holds logical
            batches.

    Example:

    >>> import numpy as np
    >>> dataset = to_dataset(lambda: iter([(np.zeros((2, 3)), np.zeros(2, "int32"))]))
    >>> dataset.element_spec[0].shape.as_list()
    [None, 3]
    """
    if isinstance(source, tf.data.Dataset):
        refuse_sampled(source)
        dataset = source
    elif isinstance(source, keras.utils.PyDataset):
        dataset = _from_py_dataset(source)
    elif isinstance(source, Iterator):
        position = position_of(source)
        ahead = position.read_ahead(source, _READ_AHEAD)
        dataset = _from_function(lambda: position.batches(source), ahead)
    elif callable(source):
        ahead, passes = started(source, _READ_AHEAD)
        dataset = _from_function(passes, ahead)
    else:
        raise ValueError(
            "Expected a tf.data.Dataset, a keras.utils.PyDataset, a generator or a generator "
            f"function. Received: {type(source).__name__}. Pass arrays to `PoissonSampler`."
        )
    dataset = _dense(_as_tuples(dataset))
    _check_batched(dataset.element_spec)
    return dataset


def static_batch_size(element_spec: tuple) -> int | None:
    """The number of rows that every batch has, or `None` if the element spec does not say.

    Example:

    >>> import tensorflow as tf
    >>> static_batch_size((tf.TensorSpec((8, 3)),)), static_batch_size((tf.TensorSpec((None, 3)),))
    (8, None)
    """
    sizes = {_rows_of_spec(spec) for spec in tf.nest.flatten(element_spec)} - {None}
    return sizes.pop() if sizes else None


def leading_dimension(element: tuple) -> int | tf.Tensor:
    """The number of rows of a batch, static if its spec says so of all arrays.

    Guarantee: what is computed with it ends with an error where arrays of a batch have other
    numbers of rows than each other, so that rows would be of other examples, or of none.

    Example:

    >>> import tensorflow as tf
    >>> leading_dimension((tf.zeros([4, 2]), None))
    4
    """
    leaves = [leaf for leaf in tf.nest.flatten(element) if leaf is not None]
    static = {_rows_of_spec(leaf) for leaf in leaves}
    if len(static) == 1 and static != {None}:
        return static.pop()
    first, *others = [tf.shape(leaf)[0] for leaf in leaves]
    same = [tf.debugging.assert_equal(rows, first, _OTHER_ROWS) for rows in others]
    with tf.control_dependencies(same):
        return tf.identity(first)


def _rows_of_spec(spec: Any) -> int | None:
    shape = getattr(spec, "shape", None)  # the spec of `None` has no shape
    return None if shape is None or shape.rank is None else shape[0]


def _as_tuples(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Wraps single elements, so that every element is a tuple of one to three structures."""
    spec = dataset.element_spec
    if batch_lib.is_batch(spec):
        raise ValueError(
            "Expected batches x, (x, y) or (x, y, sample_weight). Received: logical batches with "
            "presence, which a sampler made. Pass the `PoissonSampler` itself."
        )
    if not isinstance(spec, tuple):
        return dataset.map(lambda x: (x,))
    if type(spec) is not tuple:  # a named one, which is one argument of a map
        dataset = dataset.map(lambda parts: tuple(parts))
    if not 1 <= len(spec) <= 3:
        raise ValueError(
            "Expected batches x, (x, y) or (x, y, sample_weight). "
            f"Received: tuples of {len(spec)} entries. Put several inputs into a tuple or dict x."
        )
    return dataset


def _dense(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """With sparse tensors as dense ones, as those of `fit` on arrays are.

    Raises:
        ValueError: some are ragged, whose rows have shapes of their own, or sparse ones of a width
            that is not known, which would be that of the longest row of a batch.
    """
    specs = tf.nest.flatten(dataset.element_spec)
    sparse = [spec for spec in specs if isinstance(spec, tf.SparseTensorSpec)]
    if any(isinstance(spec, tf.RaggedTensorSpec) for spec in specs):
        raise ValueError(
            "Expected batches of tensors whose rows have one public shape. Received: ragged ones. "
            "Pad or crop them to one length: `dataset.map(...)` with `.to_tensor(shape=...)`."
        )
    if not sparse:
        return dataset
    refuse_unknown_shapes(sparse, "sparse batches")

    def dense(leaf: Any) -> Any:
        if not isinstance(leaf, tf.SparseTensor):
            return leaf
        return tf.sparse.to_dense(leaf, validate_indices=False)  # one record stops nobody else's

    return dataset.map(lambda *parts: tf.nest.map_structure(dense, parts))


def _check_batched(element_spec: tuple) -> None:
    leaves = [s for s in tf.nest.flatten(element_spec) if s != _NOTHING]
    if not tf.nest.flatten(element_spec[0]) or not leaves:
        raise ValueError("Expected batches with inputs x. Received: an empty structure.")
    sizes = {_rows_of_spec(spec) for spec in leaves if spec.shape.rank != 0} - {None}
    if any(spec.shape.rank == 0 for spec in leaves) or len(sizes) > 1:
        raise ValueError(
            "Expected batches: every array with the same number of rows along its first axis. "
            f"Received: {element_spec}. Batch single examples with `.batch(batch_size)`."
        )


_PASSES: weakref.WeakKeyDictionary[keras.utils.PyDataset, Iterator] = weakref.WeakKeyDictionary()


def _from_py_dataset(source: keras.utils.PyDataset) -> tf.data.Dataset:
    count = source.num_batches
    count = None if count is None or count == float("inf") else int(count)
    passes = _PASSES.setdefault(source, itertools.count())

    def begin() -> None:
        if next(passes) > 0:  # of an earlier fit as well: it may have to draw anew
            source.on_epoch_end()
        source.on_epoch_begin()

    begin()  # what is looked at is the beginning of the first pass
    looked_at = range(_READ_AHEAD if count is None else min(count, _READ_AHEAD))
    ahead = [own_copy(batch) for batch in without_padding(source[i] for i in looked_at)]
    unused = list(ahead)

    def batches() -> Iterator[Any]:
        first = list(unused)
        unused.clear()
        if not first:
            begin()
        yield from first
        places = itertools.count(len(first)) if count is None else range(len(first), count)
        yield from without_padding(source[i] for i in places)

    dataset = _from_function(batches, ahead)
    cardinality = tf.data.INFINITE_CARDINALITY if count is None else count
    return dataset.apply(tf.data.experimental.assert_cardinality(cardinality))


def _from_function(batches: Callable[[], Iterable], ahead: list) -> tf.data.Dataset:
    """A dataset of the batches of an iterable, with the spec of the first few of them."""
    if not ahead:
        raise ValueError("Expected a source with at least one batch. Received: an empty one.")

    first, *others = [_to_element(batch) for batch in ahead]
    spec = tf.nest.map_structure(_spec, first)
    for other in others:
        spec = tf.nest.map_structure(_widen, spec, other)

    def elements() -> Iterator[tuple]:
        for batch in batches():
            element = _to_element(batch)
            tf.nest.map_structure(_widen, spec, element)  # TensorFlow would convert other dtypes
            yield element

    return tf.data.Dataset.from_generator(elements, output_signature=spec)


def _to_element(batch: Any) -> tuple:
    """A batch as a tuple `(x,)`, `(x, y)` or `(x, y, sample_weight)` of arrays of its own.

    Guarantee: what a source does with its arrays afterwards, such as filling them with the next
    batch, changes nothing: TensorFlow takes some without copying them.
    """
    refuse_given(batch)
    parts = tuple(batch) if isinstance(batch, tuple | list) else (batch,)  # as Keras does
    if not 1 <= len(parts) <= 3:
        raise ValueError(
            "Expected batches x, (x, y) or (x, y, sample_weight). "
            f"Received: {len(parts)} entries. Put several inputs into a tuple or dict x."
        )
    names = (batch_lib.X, batch_lib.Y, batch_lib.SAMPLE_WEIGHT)
    arrays = {
        name: _to_leaves(part, name)
        for name, part in zip(names, parts, strict=False)
        if part is not None
    }
    rows.check_equal_rows(arrays)
    return tuple(arrays.get(name) for name in names[: len(parts)])


def _to_leaves(part: Any, name: str) -> Any:
    arrays = rows.to_rows(part, name)

    def own(array: Any) -> np.ndarray:
        dense = array.toarray() if sparse.issparse(array) else array
        return dense.astype(rows.batch_dtype(array.dtype), copy=True)

    return tf.nest.map_structure(own, arrays)


def _spec(array: np.ndarray | None) -> tf.TypeSpec:
    return _NOTHING if array is None else rows.row_spec(array)


def _widen(spec: tf.TypeSpec, array: np.ndarray | None) -> tf.TypeSpec:
    """A spec that also admits `array`: axes that differ become unknown."""
    wider = spec.most_specific_common_supertype([_spec(array)])
    if wider is None:
        raise ValueError(
            "Expected all batches of a source to have the same structure and dtypes. "
            f"Received: {spec}, and then {_spec(array)}."
        )
    return wider

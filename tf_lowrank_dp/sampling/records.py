"""Records with random access, and a map of each: what is sampled without being held in memory."""

from __future__ import annotations

import contextlib
import os
import threading
import warnings
from collections.abc import Callable, Mapping
from types import GeneratorType
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tf_lowrank_dp.sampling import rows
from tf_lowrank_dp.sampling.python_numbers import renew_python_numbers, same_python_numbers

_TRIED = 8
_REMEDY = (
    "Pass what gives one record for each index, once: arrays, `tfds.data_source`, a list of files, "
    "`range(n)`, or an object with `__len__` and `__getitem__`; batching, shuffling and repeating "
    "are done by the sampler."
)
_OTHER_NUMBERS = (
    "Expected records whose random numbers are drawn from random or numpy.random, which are made "
    "secret, or in Records(map=...). Received: {}, whose first record is another when it is read "
    "again with the same numbers. If it draws them from a generator with a seed, or keeps state, "
    "one record less changes what others become, and epsilon does not hold. Generators that the "
    "operating system seeds, such as numpy.random.default_rng(), are as good: ignore this then."
)


class Records:
    """Single records by index, and what is done with each of them after it was sampled.

    Given as `x` to `fit` or `PoissonSampler`.  Only records that are drawn are read, so the data
    may be on disk, and be augmented anew in each draw.  `evaluate`, `predict` and `validation_data`
    of a private model take them as well, each once, in their order.

    Formal guarantees, if `source[i]` is one record that depends on nothing else:
        * A row of a batch depends on one record, and each record is in at most one row: `map` gets
          one record, is traced once, and is refused if it keeps state or calls Python.
        * Random numbers in `map` come from a secret stream, whatever seeds it is given; those that
          `source[i]` draws from `random` or `numpy.random` as well, which are renewed for each
          record (not with a `seed` of the sampler).
        * Records are read one after the other, and copied: a source may fill one array anew for
          each, or keep one file open.  With `thread_safe`, several are read at once.
        * A record that cannot be read or mapped, or that has another form or shape than others, is
          absent from its draw, as if it had not been drawn.  Which form that is no record decides
          alone: those that are looked at, up to eight, have to be alike.

    Args:
        source: arrays (memory-mapped ones as well) whose first axis is the record, in tuples or
            dicts; a list of file names; a `range`; or an object with `__len__` and `__getitem__`,
            such as `tfds.data_source` or a Grain source, which is read by nobody else meanwhile.
        map: takes a record as `tf.data.Dataset.map` does (an argument for each part of a tuple)
            and returns `x`, `(x, y)` or `(x, y, sample_weight)`, written in TensorFlow or
            `keras.ops`.  The shapes must be the same for all records, and are public.  None for
            records that are so already.
        num_parallel_calls: how many draws are read and mapped at once, by default four or, if there
            are more, as many as CPUs.  With 1, and a `seed` of the sampler, `map` is reproducible.
        thread_safe: whether several threads may call `source[i]` at once, and each get arrays that
            no other call writes to: faster where decoding takes long, as that of images.

    Raises:
        ValueError: the source holds batches, repeats its records, or has no random access.

    Example:

    >>> import numpy as np
    >>> from tf_lowrank_dp.sampling import PoissonSampler
    >>> images, labels = np.zeros((9, 8, 8), "uint8"), np.zeros(9, "int32")
    >>> records = Records((images, labels), map=lambda x, y: (tf.cast(x, "float32") / 255.0, y))
    >>> sampler = PoissonSampler(records, batch_size=3, steps=1)
    >>> [batch["x"].dtype.name for batch in sampler]
    ['float32']
    """

    def __init__(
        self,
        source: Any,
        map: Callable | None = None,
        num_parallel_calls: int | None = None,
        thread_safe: bool = False,
    ):
        _refuse_batches(source)
        self.source = source
        self.map = map
        if num_parallel_calls in (None, tf.data.AUTOTUNE):
            num_parallel_calls = max(4, os.cpu_count() or 1)
        self.num_parallel_calls = num_parallel_calls
        self.thread_safe = thread_safe
        self._turns = _Turns()
        self.is_read = rows.has_random_access(source) and not isinstance(source, range)
        """Whether a record is read by `source[index]`, in Python."""
        if rows.has_random_access(source):
            self.rows = IndexRows(source if isinstance(source, range) else range(len(source)))
        else:
            self.rows = rows.to_rows(source, "source")
        self.num_records = rows.count_rows({"source": self.rows})

    def read(self, row: Any, secret: bool = True) -> Any:
        """The record, nested tensors, of a row, nested tensors, in a graph.

        Args:
            row: nested tensors.
            secret: whether the numbers that the source draws from `random` or `numpy.random` are
                new ones for each record, or go on from the seed that they were given.
        """
        if not self.is_read:
            return row
        first = self._readable()
        alone = contextlib.nullcontext() if self.thread_safe else self._turns.lock
        leaves = keras.tree.flatten(first)

        def fetch(index: np.int64) -> list[np.ndarray]:
            if secret:
                renew_python_numbers()
            with alone:
                record = _own(self.source[int(index)])
            keras.tree.assert_same_structure(first, record)
            found = zip(keras.tree.flatten(record), leaves, strict=True)
            return [_alike(leaf, other) for leaf, other in found]

        found = tf.numpy_function(fetch, [row], [rows.tensor_dtype(leaf.dtype) for leaf in leaves])
        for tensor, leaf in zip(found, leaves, strict=True):
            tensor.set_shape([None] * leaf.ndim)
        return keras.tree.pack_sequence_as(first, found)

    def warn_of_other_numbers(self) -> None:
        """Warns of a source that draws random numbers from elsewhere, which are not made secret."""
        read = []
        for _ in range(2 if self.is_read else 0):
            with same_python_numbers(), contextlib.suppress(Exception):  # `_readable` says so
                record = _own(self.source[self.tried[0]])
                read.append([_content(leaf) for leaf in keras.tree.flatten(record)])
        if len(read) == 2 and read[0] != read[1]:
            warnings.warn(_OTHER_NUMBERS.format(self), stacklevel=2)

    def row(self, index: int) -> Any:
        """The row of an index, nested arrays without the axis of the records."""
        at = np.array([index])
        return tf.nest.map_structure(lambda data: rows.take_rows(data, at)[0], self.rows)

    def _readable(self) -> Any:
        """A record that can be read, nested arrays: its form is that of all.

        Raises:
            ValueError: none can be read, or they differ: one record must not decide which of the
                others can be used.
        """
        read, failure = [], None
        for index in self.tried:
            try:
                with tf.init_scope():  # a source may compute with TensorFlow
                    read.append(_own(self.source[index]))
            except Exception as error:  # whatever a source raises
                failure = error
        if not read:
            raise ValueError(
                f"Expected records that can be read. Received: {self!r}, of which those that were "
                f"tried fail: {failure}. Correct the source."
            ) from failure
        form = _form(read[0])
        for record in read[1:]:
            if _form(record) != form:
                raise ValueError(
                    "Expected records of one form: the same keys, dtypes and numbers of axes. "
                    f"Received: {self!r}, with {form} and with {_form(record)}. Convert all in the "
                    "source's __getitem__, such as by np.float32(value) where numbers are read "
                    "from text: otherwise one record would decide which others are used."
                )
        return read[0]

    @property
    def tried(self) -> list[int]:
        """A few indices, whose records tell structure and shape."""
        return sorted(set(np.linspace(0, self.num_records - 1, _TRIED, dtype=int).tolist()))

    def __repr__(self) -> str:
        return f"Records({type(self.source).__name__}, num_records={self.num_records})"


class _Turns:
    """A lock; a copy, in another process too, has its own."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def __reduce__(self) -> tuple:
        return _Turns, ()


class IndexRows:
    """The numbers of a range as an array of rows that takes no memory."""

    dtype = np.dtype(np.int64)

    def __init__(self, numbers: range):
        self._numbers = numbers
        self.shape = (len(numbers),)

    def __getitem__(self, indices: np.ndarray) -> np.ndarray:
        return self._numbers.start + self._numbers.step * np.asarray(indices, np.int64)


def _content(leaf: np.ndarray) -> list | bytes:
    """What is equal where arrays hold the same; the bytes of objects are where they lie."""
    return leaf.tolist() if leaf.dtype == object else leaf.tobytes()


def _form(record: Any) -> Any:
    """What the records of a source have in common."""

    def of(leaf: np.ndarray) -> str:
        return f"{rows.tensor_dtype(leaf.dtype).name} of {leaf.ndim} axes"

    return keras.tree.map_structure(of, record)


def _alike(leaf: np.ndarray, other: np.ndarray) -> np.ndarray:
    """The same numbers in the dtype of another record.

    Raises:
        TypeError: it does not hold them; whole numbers count as numbers of any precision.
    """
    if rows.tensor_dtype(leaf.dtype) == rows.tensor_dtype(other.dtype):
        return leaf  # texts of any length
    whole = leaf.dtype.kind in "iu" and other.dtype.kind == "f"
    return leaf.astype(other.dtype, casting="same_kind" if whole else "safe", copy=False)


def _own(record: Any) -> Any:
    """The record as arrays of its own; a list of numbers is one array, however long it is."""

    def copied(part: Any) -> np.ndarray | None:
        if _is_one_array(part) or not keras.tree.is_nested(part):
            return _copied(part)
        return None  # its parts come next

    return keras.tree.traverse(copied, record)


def _is_one_array(part: Any) -> bool:
    """Whether it is a list of numbers or texts, or of such lists."""
    return isinstance(part, list) and all(
        isinstance(entry, rows.SCALARS) or _is_one_array(entry) for entry in part
    )


def _copied(value: Any) -> np.ndarray:
    """An array of its own, as TensorFlow takes some without a copy, and none of other letters."""
    array = rows.as_array(value)
    return array.astype(object if array.dtype.kind == "U" else rows.batch_dtype(array.dtype))


def _refuse_batches(source: Any) -> None:
    kinds = (tf.data.Dataset, keras.utils.PyDataset, GeneratorType)
    names = {base.__name__ for base in type(source).__mro__}
    what = None
    if isinstance(source, kinds) or (callable(source) and not rows.has_random_access(source)):
        what = "which gives batches or has no random access"
    elif getattr(source, "batch_size", None) is not None or "BatchMapDataset" in names:
        what = "which gives batches: a draw of batches is no draw of records"
    elif "RepeatMapDataset" in names:
        what = "which gives the same record at several indices"
    elif hasattr(source, "__len__") and not isinstance(source, Mapping) and len(source) == 0:
        what = "which is empty"
    if what:
        raise ValueError(
            f"Expected a source of single records. Received: {type(source).__name__}, {what}. "
            f"{_REMEDY}"
        )

"""Draws of records, read and mapped one by one into logical batches of a fixed public shape."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from tf_lowrank_dp._tensorflow import has_branches
from tf_lowrank_dp._tf_data import mapped_in_one_thread
from tf_lowrank_dp.errors import UnsupportedModelError
from tf_lowrank_dp.sampling import batch as batch_lib
from tf_lowrank_dp.sampling import rows, weights
from tf_lowrank_dp.sampling.records import Records
from tf_lowrank_dp.tracing.random_ops import random_numbers_from, seeds_kept
from tf_lowrank_dp.tracing.secret_stream import SecretStream
from tf_lowrank_dp.tracing.traced_part import traced_part

_NAMES = (batch_lib.X, batch_lib.Y, batch_lib.SAMPLE_WEIGHT)


class MappedRecords:
    """What records become in a batch: their specification, and batches of draws.

    Args:
        records: the source and its map.
        class_weight: dict from class index to weight, or None.
        seed: makes the random numbers of the map reproducible, hence not private.

    Raises:
        ValueError: the map fails, keeps state, or gives other shapes for other records.
    """

    def __init__(self, records: Records, class_weight: dict | None, seed: int | None):
        self._records = records
        self._class_weight = class_weight
        self._secret = seed is None
        if self._secret:
            records.warn_of_other_numbers()
        with tf.device("CPU:0"):  # where tf.data runs
            self._stream = SecretStream(seed, "map")
        row_spec = tf.nest.map_structure(_without_rows, records.rows)
        self._row = tf.function(self._mapped, autograph=False).get_concrete_function(row_spec)
        traced = traced_part(self._row.graph, 0)
        writes = list(traced.writes)
        if records.is_read:  # by a call of Python that is the source's own
            writes.remove(next(name for name in writes if name.startswith("PyFunc")))
        if writes:
            raise ValueError(
                "Expected a map that treats each record by itself. Received: one with "
                f"{writes[0]}, which may keep something of a record for others. "
                "Write it in TensorFlow without variables that change, and do in the source's "
                "__getitem__ what needs Python."
            )
        self.reads = traced.reads
        self._branches = has_branches(self._row.graph)
        self.spec = self._spec()

    @property
    def batch_spec(self) -> dict:
        """The specification of a batch without its presence: unknown size, other axes static."""
        return tf.nest.map_structure(lambda s: tf.TensorSpec((None, *s.shape), s.dtype), self.spec)

    def __reduce__(self) -> tuple:
        """A copy is traced anew, with a secret stream of its own."""
        return type(self), (self._records, self._class_weight, None)

    def batches(self, draws: tf.data.Dataset) -> tf.data.Dataset:
        """The logical batches of draws, in their order; several are worked on at once.

        Args:
            draws: of `"rows"`, nested tensors `(b, ...)`, and `"size"`, the rows of the batch.
        """
        calls = self._records.num_parallel_calls
        if calls == 1:  # one call in parallel would begin with the next draw already
            return draws.flat_map(self._batch)
        return draws.interleave(
            self._batch, cycle_length=calls, num_parallel_calls=calls, deterministic=True
        )

    def in_order(self, batch_size: int) -> tf.data.Dataset:
        """All records once, in batches as Keras takes them: `(x,)`, `(x, y)` or with weights.

        One that cannot be read or mapped is an error, as it is for Keras.
        """
        spec = tf.nest.map_structure(_without_rows, self._records.rows)
        numbers = range(self._records.num_records)
        given = tf.data.Dataset.from_generator(
            lambda: ((self._records.row(number),) for number in numbers), output_signature=(spec,)
        )
        batches = given.map(self._in_parts).batch(batch_size)
        size = -(-len(numbers) // batch_size)
        return batches.apply(tf.data.experimental.assert_cardinality(size))

    def _in_parts(self, row: Any) -> Any:
        mapped = self._row(*tf.nest.flatten(row))
        return tuple(mapped[name] for name in _NAMES if name in mapped)

    def _batch(self, draw: dict) -> tf.data.Dataset:
        """The logical batch of a draw, as a data set of one element."""
        absent = tf.nest.map_structure(lambda s: tf.zeros(s.shape, s.dtype), self.spec)
        mapped = tf.data.Dataset.map if self._branches else mapped_in_one_thread
        drawn = mapped(tf.data.Dataset.from_tensor_slices((draw["rows"],)), self._present)
        padding = tf.data.Dataset.from_tensors(_with_presence(absent, 0.0)).repeat()
        return drawn.ignore_errors().concatenate(padding).batch(draw["size"]).take(1)

    def _present(self, row: Any) -> dict:
        mapped = self._row(*tf.nest.flatten(row))
        fixed = tf.nest.map_structure(lambda t, s: tf.ensure_shape(t, s.shape), mapped, self.spec)
        return _with_presence(fixed, 1.0)

    def _mapped(self, row: Any) -> dict:
        """The parts of a batch that a row becomes."""
        record = self._records.read(row, secret=self._secret)
        if self._records.map is not None:
            # Traced as tf.data does, with its branches and loops in Python converted.
            function = tf.function(self._records.map)
            with random_numbers_from(self._stream), seeds_kept():
                record = function(*record) if isinstance(record, tuple) else function(record)
        if isinstance(record, list) or (isinstance(record, tuple) and len(record) > len(_NAMES)):
            raise ValueError(
                "Expected records x, (x, y) or (x, y, sample_weight). Received: a "
                f"{type(record).__name__} of {len(record)}. Put several inputs into a tuple or "
                "dict x."
            )
        parts = record if isinstance(record, tuple) else (record,)
        found = {n: p for n, p in zip(_NAMES, parts, strict=False) if p is not None}
        if self._class_weight is not None:
            found = weights.with_class_weight(found, self._class_weight, axes=0)
        return keras.tree.map_structure(_batch_tensor, found)

    def _spec(self) -> dict:
        """The specification of a mapped record, whose shape a few records tell."""
        shapes, failure = [], None
        for index in self._records.tried:
            row = self._records.row(index)
            try:
                mapped = self._row(*tf.nest.flatten(tf.nest.map_structure(tf.constant, row)))
            except (tf.errors.OpError, UnsupportedModelError) as error:
                failure = error
                continue
            shapes.append(tf.nest.map_structure(lambda t: tf.TensorSpec(t.shape, t.dtype), mapped))
        if not shapes:
            raise ValueError(
                f"Expected records that can be read and mapped. Received: "
                f"{self._records!r}, of which those that were tried fail: {failure}. Correct the "
                "source or its map."
            ) from failure
        if any(shape != shapes[0] for shape in shapes):
            other = next(shape for shape in shapes if shape != shapes[0])
            raise ValueError(
                "Expected records of one shape, which is public. Received: a record of "
                f"{shapes[0]} and one of {other}. Resize, crop or pad them in map."
            )
        return shapes[0]


def _without_rows(data: Any) -> tf.TensorSpec:
    spec = rows.row_spec(data)
    return tf.TensorSpec(spec.shape[1:], spec.dtype)


def _with_presence(row: dict, presence: float) -> dict:
    return {**row, batch_lib.PRESENCE: tf.constant(presence, tf.float32)}


def _batch_tensor(leaf: Any) -> tf.Tensor:
    if isinstance(leaf, tf.RaggedTensor | tf.SparseTensor):
        raise ValueError(
            f"Expected records of dense tensors. Received: a {type(leaf).__name__}. Convert it in "
            "map: `.to_tensor(shape=...)`, `tf.sparse.to_dense`."
        )
    tensor = tf.convert_to_tensor(leaf)
    return tf.cast(tensor, keras.config.floatx()) if tensor.dtype == tf.float64 else tensor

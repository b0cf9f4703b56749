"""Poisson sampling: every step includes every example independently with one probability."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tf_lowrank_dp import _validate
from tf_lowrank_dp._types import Nested
from tf_lowrank_dp.accounting import Sampling
from tf_lowrank_dp.accounting.sampling import Unit, steps_per_epoch
from tf_lowrank_dp.sampling import batch as batch_lib
from tf_lowrank_dp.sampling import padding, randomness, rows
from tf_lowrank_dp.sampling.arguments import (
    refuse_beside_records,
    to_data,
    warn_of_full_batches,
)
from tf_lowrank_dp.sampling.draw import NUMBERS, draw_numbers, poisson_draw, with_numbers
from tf_lowrank_dp.sampling.gathered import can_be_gathered, gathered
from tf_lowrank_dp.sampling.mapped import MappedRecords
from tf_lowrank_dp.sampling.records import Records
from tf_lowrank_dp.sampling.rows_digest import rows_digest
from tf_lowrank_dp.sampling.upstream import given, prefetched


class PoissonSampler:
    """Draws Poisson batches of arrays or records, for `fit` and for custom loops.

    Every step includes each of the N examples independently with probability
    `batch_size / N`, so `batch_size` is the *expected* size: the size drawn varies and may be 0.
    Each draw is padded to a multiple of `pad_to_multiple` rows; `presence` says which rows are
    examples.

    Formal guarantees:
        * Inclusions are independent between examples and between steps, with the rate that
          `sampling` states: the sampler and the accountant are one object.
        * Within a draw no example occurs twice, and padding neither drops nor repeats an example.
        * Without `seed` the draws come from 128 bits of operating system entropy. Every iteration,
          every copy and every forked process has a key of its own; the key is in no repr, no
          pickle and no attribute.
        * Every batch that is yielded is a draw of its own: draws are not repeated by iterating
          again. Draws that are prefetched and then discarded release nothing.
        * Every batch says in `draw` which one it is, so that a `PrivateTrainer` knows a draw that
          it had, and one of another rate. Nothing of it is private.

    Args:
        x: inputs: an array, tensor, list of numbers or strings, or a dict, tuple or list of these,
            `(n, ...)` each. Data is referenced, not copied. Lists of arrays become tuples. Or
            `Records`, with their targets and weights.
        y: targets in the same forms, or `None`.
        batch_size: expected number of examples of a step; above `n` it is taken as `n`.
        steps: number of batches per iteration; `None` is endless.
        sample_weight: weights `(n,)`, or a structure like `y`. A zero weight is not padding.
        class_weight: dict from class index to weight, for a single output with integer or one-hot
            labels; folded into `sample_weight` as Keras does.
        pad_to_multiple: rows per granule of padding; `ceil(sqrt(batch_size))` by default.
        seed: non-negative integer that makes the draws reproducible. The run is then *not private*:
            `seeded` is `True` and the privacy statement says so. Copies (pickle, `deepcopy`) do not
            carry the seed: they draw from operating system entropy.

    Raises:
        ValueError: an argument is out of range, or the data has no rows or different numbers of
            rows.

    Batches are dicts (see `sampling.batch`) of numpy arrays, or of tensors from `as_dataset`.
    float64 becomes `keras.config.floatx()`; other dtypes are kept and strings become `tf.string`.

    Example:

    >>> import numpy as np
    >>> x, y = np.arange(6.0).reshape(6, 1), np.arange(6)
    >>> sampler = PoissonSampler(x, y, batch_size=3, steps=2, pad_to_multiple=6)
    >>> [batch["x"].shape for batch in sampler]
    [(6, 1), (6, 1)]
    >>> sampler
    PoissonSampler(num_examples=6, batch_size=3, steps=2, pad_to_multiple=6, seeded=False)
    """

    _unit: Unit = "example"

    def __init__(
        self,
        x: Any,
        y: Any = None,
        *,
        batch_size: int,
        steps: int | None = None,
        sample_weight: Any = None,
        class_weight: dict[int, float] | None = None,
        pad_to_multiple: int | None = None,
        seed: int | None = None,
    ):
        batch_size = _validate.integer_at_least(1, batch_size=batch_size)
        self._steps = None if steps is None else _validate.integer_at_least(1, steps=steps)
        self._seed = None if seed is None else _validate.integer_at_least(0, seed=seed)
        self._streams = itertools.count()
        self._worker, self._shards = 0, 1  # other numbers: see `parts`
        self._own: range | None = None
        self.records = x if isinstance(x, Records) else None
        self._mapped: MappedRecords | None = None
        if isinstance(x, Records):
            refuse_beside_records(y, sample_weight)
            self._mapped = MappedRecords(x, class_weight, self._seed)
            self._data = {"rows": x.rows}
        else:
            self._data = to_data(x, y, sample_weight, class_weight)
        self._draw_from(rows.count_rows(self._data), batch_size, pad_to_multiple)

    def _draw_from(
        self, num_examples: int, batch_size: int, pad_to_multiple: int | None = None
    ) -> None:
        """Sets what is drawn from: so many examples, or what is drawn instead of them."""
        self._num_examples = num_examples
        if batch_size > num_examples:
            warn_of_full_batches(batch_size, num_examples, self._unit)
        self._batch_size = min(batch_size, num_examples)
        granule = (
            padding.ceil_sqrt(self._batch_size) if pad_to_multiple is None else pad_to_multiple
        )
        self._pad_to_multiple = _validate.integer_at_least(1, pad_to_multiple=granule)

    @property
    def features(self) -> Nested:
        """The inputs `x` that are sampled from, nested arrays `(n, ...)`; none of `Records`."""
        return self._data.get(batch_lib.X, ())

    @property
    def reads(self) -> tuple[tf.Tensor, ...]:
        """Handles of the variables that the map of `Records` reads."""
        return () if self._mapped is None else self._mapped.reads

    @property
    def num_examples(self) -> int:
        """Number of examples that are sampled from."""
        return self._num_examples

    @property
    def batch_size(self) -> int:
        """Expected number of examples of a step: a public constant."""
        return self._batch_size

    @property
    def sampling_rate(self) -> float:
        """Probability that a step includes an example."""
        return self._batch_size / self._num_examples

    @property
    def steps_per_epoch(self) -> int:
        """Number of steps that make an epoch: `ceil(num_examples / batch_size)`."""
        return steps_per_epoch(self._num_examples, self._batch_size)

    @property
    def steps(self) -> int | None:
        """Number of batches per iteration, or `None` for endless."""
        return self._steps

    @property
    def pad_to_multiple(self) -> int:
        """Rows per granule of padding."""
        return self._pad_to_multiple

    @property
    def seeded(self) -> bool:
        """Whether the draws are reproducible, and therefore not private."""
        return self._seed is not None

    @property
    def sampling(self) -> Sampling:
        """What the accountant has to know about these draws."""
        size, count, unit = self._batch_size, self._num_examples, self._unit
        return Sampling.poisson(count, size, unit=unit, shards=self._shards, drawn_by="library")

    @property
    def element_spec(self) -> dict:
        """`tf.TensorSpec`s of a batch: unknown batch size, other axes static."""
        return {**self._spec, batch_lib.DRAW: NUMBERS}

    @property
    def _spec(self) -> dict:
        """Of a batch without its numbers."""
        if self._mapped is None:
            spec = tf.nest.map_structure(rows.row_spec, self._data)
        else:
            spec = self._mapped.batch_spec
        spec[batch_lib.PRESENCE] = tf.TensorSpec((None,), tf.float32)
        return spec

    def __iter__(self) -> Iterator[dict]:
        """Yields logical batches of numpy arrays, from a random stream of this iteration alone."""
        if self._mapped is not None:
            return map(given, self.as_dataset().as_numpy_iterator())
        return map(given, map(with_numbers, self._batches(), self._numbers()))

    def as_dataset(self) -> tf.data.Dataset:
        """The same batches as a prefetched `tf.data.Dataset` of tensors.

        The batch dimension of its element spec is unknown and the others are static, so a
        `tf.function` over its iterator is traced once. The dataset is endless where `steps` is
        `None`.

        Example:

        >>> import numpy as np
        >>> sampler = PoissonSampler(np.zeros((9, 2)), batch_size=3)
        >>> sampler.as_dataset().element_spec["x"].shape.as_list()
        [None, 2]
        """
        signature = tf.TensorSpec((6,), tf.int64)
        numbers = tf.data.Dataset.from_generator(self._numbers, output_signature=signature)
        dataset = tf.data.Dataset.zip((self.without_draws(), numbers)).map(with_numbers)
        return dataset.apply(tf.data.experimental.assert_cardinality(self._cardinality))

    def without_draws(self) -> tf.data.Dataset:
        """`as_dataset` for `fit`, whose batches need no `draw`: it takes each once."""
        dataset = self._without_length()
        dataset = dataset.apply(tf.data.experimental.assert_cardinality(self._cardinality))
        return prefetched(dataset)

    def _without_length(self) -> tf.data.Dataset:
        if self._mapped is not None:
            signature = tf.nest.map_structure(rows.row_spec, self._data)
            signature["size"] = tf.TensorSpec((), tf.int64)
            drawn = tf.data.Dataset.from_generator(
                lambda: map(self._rows_of, self._draws()), output_signature=signature
            )
            return self._mapped.batches(drawn)
        if can_be_gathered(self._data):
            return gathered(self._data, self._draws, self._padded_size)
        return self._made_by_python()

    def _made_by_python(self) -> tf.data.Dataset:
        return tf.data.Dataset.from_generator(self._batches, output_signature=self._spec)

    @property
    def _cardinality(self) -> int:
        return tf.data.INFINITE_CARDINALITY if self._steps is None else self._steps

    def rows_digest(self, key: bytes, ordered: bool = True) -> str:
        """See `rows_digest`; of all rows, whichever are drawn from."""
        return rows_digest(self._data, self.records, key, ordered)

    def _batches(self) -> Iterator[dict]:
        """Yields the batches of an iteration without their numbers."""
        return map(self._gather, self._draws())

    def _numbers(self) -> Iterator[np.ndarray]:
        """Yields which draws those of an iteration are."""
        return draw_numbers(self._num_examples, self._batch_size, self.seeded)

    def _draws(self) -> Iterator[np.ndarray]:
        """Yields the indices of draws, from a random stream of this iteration alone."""
        own = range(self._num_examples) if self._own is None else self._own
        for generator in self._generators():
            yield own.start + own.step * poisson_draw(generator, len(own), self.sampling_rate)

    def _generators(self) -> Iterator[np.random.Generator]:
        """Yields what each draw of an iteration takes its random numbers from."""
        process = randomness.process_token()
        if self._seed is None:
            generator = randomness.secret_generator()
        else:
            generator = randomness.seeded_generator(self._seed, next(self._streams), self._worker)
        for _ in itertools.count() if self._steps is None else range(self._steps):
            if self._seed is None and process != randomness.process_token():
                generator, process = randomness.secret_generator(), randomness.process_token()
            yield generator

    def _rows_of(self, indices: np.ndarray) -> dict:
        """The rows of a draw, to be mapped, and the size of its batch."""
        drawn = tf.nest.map_structure(lambda data: rows.take_rows(data, indices), self._data)
        return {**drawn, "size": self._padded_size(len(indices))}

    def _gather(self, indices: np.ndarray) -> dict:
        """The padded logical batch of some examples."""
        batch = tf.nest.map_structure(lambda data: rows.take_rows(data, indices), self._data)
        batch[batch_lib.PRESENCE] = np.ones(len(indices), np.float32)
        return padding.pad_rows(batch, self._padded_size(len(indices)))

    def _padded_size(self, drawn: int) -> int:
        return padding.padded_size(drawn, self._pad_to_multiple)

    def __getstate__(self) -> dict:
        """Leaves out the seed: a copy draws from operating system entropy."""
        state = {key: value for key, value in vars(self).items() if key != "_streams"}
        return {**state, "_seed": None}

    def __setstate__(self, state: dict) -> None:
        vars(self).update(state)
        self._streams = itertools.count()

    def __repr__(self) -> str:
        return (
            f"PoissonSampler(num_examples={self._num_examples}, batch_size={self._batch_size}, "
            f"steps={self._steps}, pad_to_multiple={self._pad_to_multiple}, seeded={self.seeded})"
        )

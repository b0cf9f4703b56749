"""Datasets that we did not sample: the user states how, and the statement is checked if it can be.

Nothing here can verify how a dataset was sampled, so nothing is guessed: a missing statement is an
error that explains the choice, and a statement that the dataset contradicts is an error too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from tf_lowrank_dp import _validate
from tf_lowrank_dp._types import Nested
from tf_lowrank_dp.accounting import Sampling
from tf_lowrank_dp.sampling import batch as batch_lib
from tf_lowrank_dp.sampling import batched_sources
from tf_lowrank_dp.sampling.iterators import refuse_within_pass
from tf_lowrank_dp.sampling.one_shape import refuse_padding, with_one_shape
from tf_lowrank_dp.sampling.stages import (
    in_order,
    refuse_batches_by_value,
    refuse_fixed_batches,
    refuse_hidden,
    refuse_other_orders,
    refuse_repeated_rows,
    refuse_state,
)
from tf_lowrank_dp.sampling.weights import with_class_weight

_CHOICE = """\
- "poisson": you promise that every batch is an independent Poisson draw: each example is in each \
batch by a coin of its own, with the same probability, whatever the other batches hold, in later \
epochs too (batches that were drawn once and are read again do not qualify). Batches then vary in \
size. Sampling hides who takes part in a step, so epsilon is low. Give \
`sampling_rate`, or `num_examples` and `batch_size` (the expected size). Shuffling, `.shuffle()` \
included, is not Poisson sampling.
- "shuffle": you promise that each example occurs at most once in a pass over the data (an epoch), \
in any order. The order is not relied upon, so each pass is accounted as one Gaussian mechanism \
without amplification, for neighbours that replace one example. Epsilon is higher.
Either way you promise that each row of a batch depends on one example alone, and that no example \
decides in which batch others are. What mixes rows after `.batch()`, such as `keras.layers.MixUp` \
and `CutMix`, a mean over the batch, or padding to its longest row, breaks the first; filters and \
buckets by length break the second: one example then moves several rows, and no clip bounds that. \
Nothing verifies it: the privacy statement says of which steps it was promised.
If your data fits in memory, pass the arrays themselves (`fit(x, y, batch_size=...)`); if it does \
not, or is augmented, pass its single records and what is mapped over them (`tfdp.Records(source, \
map=...)`): they are then Poisson sampled for you and nothing has to be promised."""


def declared_dataset(
    dataset: Any,
    *,
    sampling: str | None,
    batch_size: int | None = None,
    num_examples: int | None = None,
    sampling_rate: float | None = None,
    steps_per_epoch: int | None = None,
    class_weight: Mapping[int, float] | None = None,
) -> tuple[tf.data.Dataset, Sampling]:
    """Turns the user's batches and the user's statement into logical batches and a `Sampling`.

    Formal guarantees:
        * Nothing is assumed: without `sampling` there is no dataset, only an error.
        * The expected batch size is a public constant, stated or static in the element spec; it is
          never measured.
        * With `"shuffle"`, iterating the result once is one pass of exactly `steps_per_pass`
          batches, so that no batch spans two passes: a source of unknown length that ends earlier
          raises `tf.errors.FailedPreconditionError` there, and one that goes on is cut. An infinite
          dataset is refused, and an iterator that an interrupted pass has left within it.
        * Every row of the user's batches is an example: presence is 1, whatever its weight.

    Args:
        dataset: `tf.data.Dataset`, `keras.utils.PyDataset`, Python generator or generator function
            of batches `x`, `(x, y)` or `(x, y, sample_weight)`. Two batches of a generator are read
            ahead to learn shapes and dtypes (a generator function is called once more for that).
        sampling: `"poisson"` or `"shuffle"`.
        batch_size: expected number of examples of a batch. It may be left out where the batch
            dimension is static (`batch(..., drop_remainder=True)`) and, with `"poisson"`, where
            `num_examples` and `sampling_rate` give it.
        num_examples: number of examples of the whole dataset, which is treated as public.
        sampling_rate: with `"poisson"`, the probability in (0, 1] that a batch includes an example.
        steps_per_epoch: with `"shuffle"`, the number of batches in a pass; needed where the dataset
            does not know its own length.
        class_weight: dict from class index to weight, for batches (x, y) of a single output.

    Returns:
        `(batches, sampling)`: a prefetched dataset of logical batches (see `sampling.batch`) and
        what the accountant has to know.

    Raises:
        ValueError: the statement is missing, incomplete, or contradicted by the dataset.

    Example:

    >>> import tensorflow as tf
    >>> dataset = tf.data.Dataset.range(6).batch(2, drop_remainder=True)
    >>> batches, sampling = declared_dataset(dataset, sampling="shuffle")
    >>> [batch["x"].numpy().tolist() for batch in batches]
    [[0, 1], [2, 3], [4, 5]]
    """
    if sampling not in ("poisson", "shuffle"):
        raise ValueError(
            "Expected `sampling` to be 'poisson' or 'shuffle': this dataset chooses its own "
            "batches, so the privacy guarantee depends on how they were sampled, which only you "
            f"know. Received: sampling={sampling!r}.\n{_CHOICE}"
        )
    batch_size = (
        None if batch_size is None else _validate.integer_at_least(1, batch_size=batch_size)
    )
    num_examples = (
        None if num_examples is None else _validate.integer_at_least(1, num_examples=num_examples)
    )
    if steps_per_epoch is not None:
        steps_per_epoch = _validate.integer_at_least(1, steps_per_epoch=steps_per_epoch)
    if batch_size is not None and num_examples is not None and batch_size > num_examples:
        raise ValueError(
            f"Expected `batch_size` to be at most `num_examples`, {num_examples}. "
            f"Received: batch_size={batch_size}."
        )
    batches = batched_sources.to_dataset(dataset)
    if isinstance(dataset, tf.data.Dataset):
        refuse_hidden(dataset)
        refuse_batches_by_value(dataset)
        refuse_other_orders(dataset)
        refuse_state(dataset)
        refuse_padding(dataset)
        batches = in_order(batches)
    static = batched_sources.static_batch_size(batches.element_spec)
    if sampling == "poisson":
        declared = _declare_poisson(static, batch_size, num_examples, sampling_rate)
        if isinstance(dataset, tf.data.Dataset):
            refuse_fixed_batches(dataset, declared.batch_size, declared.sampling_rate == 1.0)
    else:
        if sampling_rate is not None:
            raise ValueError(
                "Expected no `sampling_rate` with sampling='shuffle', which uses no rate. "
                f"Received: sampling_rate={sampling_rate}. Leave it out, or declare 'poisson'."
            )
        steps_per_pass = _steps_per_pass(batches, steps_per_epoch)
        refuse_within_pass(dataset, steps_per_pass)
        declared = _declare_shuffle(static, batch_size, num_examples, steps_per_pass)
        if isinstance(dataset, tf.data.Dataset):
            refuse_repeated_rows(dataset)
        batches = batches.take(steps_per_pass)
        batches = batches.apply(tf.data.experimental.assert_cardinality(steps_per_pass))
    batches = with_one_shape(batches, dataset)
    return _as_logical_batches(batches, class_weight).prefetch(tf.data.AUTOTUNE), declared


def _declare_poisson(
    static: int | None,
    batch_size: int | None,
    num_examples: int | None,
    sampling_rate: float | None,
) -> Sampling:
    """The Poisson sampling that the numbers state, if they are complete."""
    if sampling_rate is not None:
        sampling_rate = _validate.probability(sampling_rate=sampling_rate)
    if static is not None and sampling_rate != 1.0 and batch_size != num_examples:
        raise ValueError(
            "Expected batches of varying size with sampling='poisson'. Received: a dataset whose "
            f"batches all have {static} rows, which are no Poisson draws. Declare 'shuffle', or "
            "pass arrays, which are then Poisson sampled for you."
        )
    if sampling_rate is None and None in (batch_size, num_examples):
        raise ValueError(
            "Expected the sampling rate with sampling='poisson': `num_examples` and `batch_size` "
            "(the expected size), or one of them and `sampling_rate`. "
            f"Received: num_examples={num_examples}, batch_size={batch_size}, sampling_rate=None."
        )
    if batch_size is None and num_examples is None:
        raise ValueError(
            "Expected `batch_size`, the expected number of examples of a batch, or `num_examples`, "
            "from which it follows: gradients are divided by this public constant. "
            f"Received: only sampling_rate={sampling_rate}."
        )
    if batch_size is None:
        assert sampling_rate is not None and num_examples is not None
        batch_size = max(1, round(sampling_rate * num_examples))
    return Sampling.poisson(num_examples, batch_size, sampling_rate)


def _steps_per_pass(batches: tf.data.Dataset, steps_per_epoch: int | None) -> int:
    """The number of batches in a pass: the dataset's own length, else the user's."""
    cardinality = int(batches.cardinality())
    if cardinality == tf.data.INFINITE_CARDINALITY:
        raise ValueError(
            "Expected a dataset that ends after one pass with sampling='shuffle'. Received: an "
            "infinite dataset, whose batches may span two passes. Remove `.repeat()`: `fit` "
            "starts a new pass by itself."
        )
    if cardinality == tf.data.UNKNOWN_CARDINALITY:
        if steps_per_epoch is None:
            raise ValueError(
                "Expected `steps_per_epoch`, the number of batches in a pass over the data, for a "
                "dataset of unknown length with sampling='shuffle'. Received: None. Passes are "
                "what is accounted, so they have to be known."
            )
        return steps_per_epoch
    if cardinality == 0:
        raise ValueError("Expected a dataset with at least one batch. Received: an empty one.")
    if steps_per_epoch not in (None, cardinality):
        raise ValueError(
            "Expected `steps_per_epoch` to be the number of batches in a pass over the data, "
            f"{cardinality}, with sampling='shuffle'. Received: steps_per_epoch={steps_per_epoch}. "
            "Leave it out."
        )
    return cardinality


def _declare_shuffle(
    static: int | None, batch_size: int | None, num_examples: int | None, steps_per_pass: int
) -> Sampling:
    """The sampling of passes in which each example occurs at most once."""
    batch_size = static if batch_size is None else batch_size
    if batch_size is None:
        raise ValueError(
            "Expected `batch_size`, the expected number of examples of a batch: gradients are "
            "divided by this public constant, never by a size that was counted. Received: None, "
            "and the dataset's batch dimension is not static. Pass `batch_size=`, or batch with "
            "`drop_remainder=True`."
        )
    rows = static or batch_size
    if num_examples is not None and steps_per_pass > math.ceil(num_examples / rows):
        raise ValueError(
            f"Expected a pass of at most {math.ceil(num_examples / rows)} batches of {rows} "
            f"examples when each of the {num_examples} examples occurs at most once. "
            f"Received: {steps_per_pass} batches. Remove `.repeat()` or correct `num_examples` "
            "and `batch_size`."
        )
    return Sampling.shuffle(batch_size, steps_per_pass, num_examples)


def _as_logical_batches(
    batches: tf.data.Dataset, class_weight: Mapping[int, float] | None
) -> tf.data.Dataset:
    """Maps `x`, `(x, y)` or `(x, y, sample_weight)` elements to logical batches."""

    @tf.autograph.experimental.do_not_convert  # conversion takes half a second
    def to_batch(*element: Nested) -> dict[str, Nested]:
        presence = tf.ones([batched_sources.leading_dimension(element)], tf.float32)
        batch = batch_lib.make_batch(*element, presence=presence)
        return batch if class_weight is None else with_class_weight(batch, class_weight, axes=1)

    return batches.map(to_batch, num_parallel_calls=tf.data.AUTOTUNE)

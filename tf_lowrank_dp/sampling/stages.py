"""What the stages of a `tf.data` pipeline tell of its batches, against what was stated of them."""

from __future__ import annotations

import tensorflow as tf

from tf_lowrank_dp._tensorflow import captured_by, inputs_of, kind_of, number_of
from tf_lowrank_dp.sampling.repeated_rows import BATCHES, OF_ROWS, SOME, repetition

_ONE_WAY = (*OF_ROWS, *SOME, "Repeat")
_ACROSS = {
    "TakeWhile": "`.take_while()`",
    "GroupByWindow": "`.bucket_by_sequence_length()` or `.group_by_window()`",
    "GroupByReducer": "`group_by_reducer`",
    "Scan": "`.scan()` (in `.rejection_resample()`, too)",
}
_BY_VALUE = {
    **_ACROSS,
    "Filter": "`.filter()`",
    "IgnoreErrors": "`.ignore_errors()`",
    "Unique": "`.unique()`",
}
_JOIN = {
    **_ACROSS,
    **dict.fromkeys(BATCHES, "`.batch()`"),
    "Window": "`.window()`",
    "DenseToSparseBatch": "`dense_to_sparse_batch`",
}


def refuse_batches_by_value(dataset: tf.data.Dataset) -> None:
    """Refuses stages by which what an example holds decides where others are.

    Args:
        dataset: of batches, however they were drawn.

    Raises:
        ValueError: with the stage.
    """
    what = _BY_VALUE.get(kind_of(dataset))
    if what and not _counts(dataset):
        raise ValueError(
            "Expected batches that no example chooses for others. Received: a dataset with "
            f"{what}, where what one example holds decides in which batch all later ones are, and "
            "no clip bounds that. Take what is wanted beforehand, and pass arrays or "
            "tfdp.Records(source, map=...) of it, which are Poisson sampled for you: an example "
            "that is left out is absent then, and moves nothing. Do without buckets by length: "
            "pad to one length."
        )
    for each in inputs_of(dataset):
        refuse_batches_by_value(each)


def _counts(dataset: tf.data.Dataset) -> bool:
    """Whether it is `tf.data.Dataset.counter()` or alike: a scan of one number, by numbers."""
    while kind_of(dataset) in ("Scan", "Repeat"):
        if any(captured.shape.rank != 0 for captured in captured_by(dataset)):
            return False
        [dataset] = inputs_of(dataset)
    spec = dataset.element_spec
    return kind_of(dataset) == "Tensor" and isinstance(spec, tf.TensorSpec) and spec.shape.rank == 0


def refuse_fixed_batches(
    dataset: tf.data.Dataset, batch_size: int, all_rows: bool, thinned: bool = False
) -> None:
    """Refuses batches that are no Poisson draws: they are of one size, or were drawn once.

    Batches larger than the expected size may be thinned out by a map, with a coin for each row.

    Args:
        dataset: of which independent Poisson draws were stated.
        batch_size: the expected one.
        all_rows: whether they were stated at the rate 1: a pass is one batch then.
        thinned: whether a map that may drop rows comes behind it.

    Raises:
        ValueError: with the stage.
    """
    cached = False
    while kind_of(dataset) in _ONE_WAY:
        cached = cached or kind_of(dataset) == "Cache"
        thinned = thinned or kind_of(dataset) in ("Map", "ParallelMap")
        [dataset] = inputs_of(dataset)
    if kind_of(dataset) in ("Zip", "Concatenate"):
        for source in inputs_of(dataset):
            refuse_fixed_batches(source, batch_size, all_rows, thinned)
    if kind_of(dataset) in BATCHES:
        size = number_of(dataset)
        may_be_draws = thinned and (size is None or size > batch_size)
        if may_be_draws or (all_rows and int(dataset.cardinality()) == 1):
            return
        raise ValueError(
            "Expected independent Poisson draws with sampling='poisson'. Received: a dataset that "
            f"takes {size} rows after the other (`.batch({size})`), which are no Poisson draws, "
            "however they were shuffled: each epoch has every row once. Declare 'shuffle', or pass "
            "arrays or tfdp.Records(source, map=...), which are then Poisson sampled for you."
        )
    if cached and not all_rows:
        raise ValueError(
            "Expected new draws in each epoch with sampling='poisson'. Received: a dataset whose "
            "batches are kept (`.cache()`) and come again. Remove it, or keep the single records."
        )


def refuse_joined_records(dataset: tf.data.Dataset) -> None:
    """Refuses data whose elements are no single records, each of them once, where the stages tell.

    Args:
        dataset: of records that are counted one by one.

    Raises:
        ValueError: with the stage.
    """
    how = _join(dataset) or repetition(dataset, of_pairs=False)
    if how:
        raise ValueError(
            f"Expected one record in each element, and each once. Received: a dataset with {how}, "
            "by which several records would count as one, or one several times. Pass records one "
            "by one: dataset.unbatch(), or without this stage."
        )


def _join(dataset: tf.data.Dataset) -> str:
    """By what an element depends on several records; nothing where the stages do not tell."""
    kind = kind_of(dataset)
    if kind == "Unbatch":
        return ""
    if kind in _JOIN:
        return _JOIN[kind]
    return next(filter(None, map(_join, inputs_of(dataset))), "")


def refuse_repeated_rows(dataset: tf.data.Dataset) -> None:
    """Refuses data in which an example comes more than once in a pass, where the stages tell.

    Args:
        dataset: of which it was stated that each example is in a pass at most once.

    Raises:
        ValueError: with the stage.
    """
    how = repetition(dataset)
    if how:
        raise ValueError(
            "Expected each example at most once in a pass with sampling='shuffle'. Received: a "
            f"dataset with {how}, in which it comes more often: the pass would be counted once. "
            "Leave this out: `fit` begins a new pass with each epoch, and fit(augment=..., "
            "multiplicity=...) takes several copies of an example into its one contribution. Pair "
            "and divide data (.zip(), .take(n) and .skip(n)) before they are shuffled."
        )

"""What the stages of a `tf.data` pipeline tell of its batches, against what was stated of them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import tensorflow as tf

from tf_lowrank_dp._tensorflow import captured_by, inputs_of, kind_of, number_of, windows_overlap

_OF_ROWS = ("Map", "ParallelMap", "Shuffle", "Cache", "Prefetch", "Options", "AssertCardinality")
_BATCHES = ("Batch", "ParallelBatch", "PaddedBatch", "Rebatch")
_SOME = ("Take", "Skip", "Shard")
_ONE_WAY = (*_OF_ROWS, *_SOME, "Repeat")
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
    **dict.fromkeys(_BATCHES, "`.batch()`"),
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
    if kind_of(dataset) in _BATCHES:
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
    how = _join(dataset) or _repetition(dataset, of_pairs=False)
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
    how = _repetition(dataset)
    if how:
        raise ValueError(
            "Expected each example at most once in a pass with sampling='shuffle'. Received: a "
            f"dataset with {how}, in which it comes more often: the pass would be counted once. "
            "Leave this out: `fit` begins a new pass with each epoch, and fit(augment=..., "
            "multiplicity=...) takes several copies of an example into its one contribution."
        )


def _repetition(dataset: tf.data.Dataset, of_pairs: bool = True) -> str:
    """By what rows come more than once; nothing where the stages do not tell.

    Args:
        dataset: of rows.
        of_pairs: whether pairs are others if one of their sides is, such as windows of one
            repeated series; else a side that repeats is enough.
    """
    kind, sources = kind_of(dataset), _joined(dataset)
    if kind == "Repeat" and number_of(dataset) != 1:
        return "`.repeat()`"
    if kind == "Window" and windows_overlap(dataset):
        return "`.window()` whose windows overlap (shift= below size)"
    if kind in ("Concatenate", "DirectedInterleave"):
        rows = [_rows_of(source) for source in sources]
        whole = {id(root) for root, is_whole in rows if is_whole}
        if any(
            sum(root is other for other, _ in rows) > 1 for root, _ in rows if id(root) in whole
        ):
            return "the same data set several times, one behind the other"
        for one, other in itertools.combinations(sources, 2):
            if _overlap(one, other):
                return "parts of one data set behind each other that may hold the same rows"
    if kind == "Zip":
        for one, other in itertools.combinations(sources, 2):
            if not _in_step(one, other):
                return "pairs of rows of one data set that are in another order, or apart"
    found = [_repetition(source, of_pairs) for source in sources]
    if kind == "Zip" and of_pairs and not all(found):
        return ""
    return next(filter(None, found), "")


def _joined(dataset: tf.data.Dataset) -> list[tf.data.Dataset]:
    """Where a dataset's rows come from; the first of what interleaves others says which is next."""
    inputs = inputs_of(dataset)
    return inputs[1:] if kind_of(dataset) == "DirectedInterleave" else inputs


def _overlap(one: tf.data.Dataset, other: tf.data.Dataset) -> bool:
    """Whether parts of one data set, taken by `.take()` and `.skip()`, may have rows in common.

    Other parts, such as shares, are taken for different ones.
    """
    (root, *_), (other_root, *_) = paths = [_path(dataset) for dataset in (one, other)]
    if root is not other_root:
        return False
    parts, before = {}, []
    for _, stages in paths:
        ends = [stage for stage in stages if kind_of(stage) in _SOME]
        if len(ends) != 1 or kind_of(ends[0]) == "Shard":
            return False
        parts[kind_of(ends[0])] = number_of(ends[0])
        before.append(stages[stages.index(ends[0]) + 1 :])
    if any(map(_is_in_new_order, before)) or _numbers(before[0], _BATCHES) != _numbers(
        before[1], _BATCHES
    ):
        return True
    taken, skipped = parts.get("Take"), parts.get("Skip")
    return taken is None or skipped is None or not 0 <= taken <= skipped


def _in_step(one: tf.data.Dataset, other: tf.data.Dataset) -> bool:
    """Whether two sides of pairs come from different data, or have the same row in each pair."""
    paths = [_path(dataset) for dataset in (one, other)]
    if paths[0][0] is not paths[1][0]:
        return True
    if any(_is_in_new_order(stages) for _, stages in paths):
        return False
    skipped = [_numbers(stages, ("Skip",)) for _, stages in paths]
    return skipped[0] == skipped[1]


def _path(dataset: tf.data.Dataset) -> tuple[tf.data.Dataset, list[tf.data.Dataset]]:
    """Where the rows of a dataset come from, and the stages from the last one back to there."""
    stages = []
    while kind_of(dataset) in (*_OF_ROWS, *_SOME, *_BATCHES):
        stages.append(dataset)
        [dataset] = inputs_of(dataset)
    return dataset, stages


def _is_in_new_order(stages: list[tf.data.Dataset]) -> bool:
    return any(kind_of(stage) == "Shuffle" for stage in stages)


def _numbers(stages: list[tf.data.Dataset], kinds: Sequence[str]) -> list[int | None]:
    return [number_of(stage) for stage in stages if kind_of(stage) in kinds]


def _rows_of(dataset: tf.data.Dataset) -> tuple[tf.data.Dataset, bool]:
    """The dataset whose rows these are, each of them once, and whether these are all."""
    root, stages = _path(dataset)
    return root, not any(kind_of(stage) in _SOME for stage in stages)

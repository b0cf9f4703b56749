"""What the stages of a `tf.data` pipeline tell of its batches, against what was stated of them."""

from __future__ import annotations

import re
from collections.abc import Iterator

import tensorflow as tf

from tf_lowrank_dp._tf_data import (
    captured_by,
    data_sets_of,
    held_by,
    inputs_of,
    is_out_of_order,
    kind_of,
    made_of_numbers,
    number_of,
    read_by,
)
from tf_lowrank_dp.sampling.function_rows import (
    WINDOWS,
    count_of,
    counts_inside,
    is_of_instructions,
    operations_inside,
    stages_inside,
)
from tf_lowrank_dp.sampling.repeated_rows import (
    APART,
    BATCHES,
    OF_ROWS,
    SOME,
    joined,
    overlapping_windows_apart,
    repetition,
)
from tf_lowrank_dp.tracing.random_draws import is_random

_KEPT = ("Cache", "Snapshot")
_MAPS = ("Map", "ParallelMap")
_ONE_WAY = (*OF_ROWS, *SOME, "Repeat", "Snapshot", "CopyToDevice")
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
_HIDDEN = ("Variant", "DataServiceDataset")
_WRITES = re.compile("Assign|ResourceScatter|Enqueue|StackPush|TableInsert|IteratorGetNext")
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
    what = None if _counts(dataset) else _BY_VALUE.get(kind_of(dataset))
    if kind_of(dataset) in (*APART, "Load"):  # such as of the lines of each file
        what = next(_by_value_inside(dataset), None)
    if what:
        raise ValueError(
            "Expected batches that no example chooses for others. Received: a dataset with "
            f"{what}, where what one example holds decides in which batch all later ones are, and "
            "no clip bounds that. Take what is wanted beforehand, and pass arrays or "
            "tfdp.Records(source, map=...) of it, which are Poisson sampled for you: an example "
            "that is left out is absent then, and moves nothing. Do without buckets by length: "
            "pad to one length."
        )
    for each in read_by(dataset):
        refuse_batches_by_value(each)


def _by_value_inside(dataset: tf.data.Dataset) -> Iterator[str]:
    """Stages in a stage's functions by which an element decides how many rows it gives."""
    for kind, op in stages_inside(dataset):
        if kind in _BY_VALUE and not (kind == "Scan" and counts_inside(op)):
            yield _BY_VALUE[kind]
        decides = kind in ("Repeat", "Take", "Skip") and count_of(op) is None
        if decides and not (kind != "Repeat" and is_of_instructions(op, dataset)):
            yield f"`.{kind.lower()}()` of a number that its elements decide"


def _counts(dataset: tf.data.Dataset) -> bool:
    """Whether it is `tf.data.Dataset.counter()` or alike: a scan of one number, by numbers."""
    while kind_of(dataset) in ("Scan", "Repeat"):
        if any(captured.shape.rank != 0 for captured in captured_by(dataset)):
            return False
        [dataset] = inputs_of(dataset)
    spec = dataset.element_spec
    return kind_of(dataset) == "Tensor" and isinstance(spec, tf.TensorSpec) and spec.shape.rank == 0


def refuse_hidden(dataset: tf.data.Dataset) -> None:
    """Refuses data sets that arrive without the stages which they are made of.

    Raises:
        ValueError: a part of it does.
    """
    parts = data_sets_of(dataset)
    held = [each for part in parts for each in held_by(part)]
    joined_ones = (source for part in parts for source in joined(part))
    shown = [dataset, *filter(None, held), *joined_ones]
    if None in held or any(kind_of(s) in _HIDDEN and not made_of_numbers(s) for s in shown):
        raise ValueError(
            "Expected a dataset whose stages are seen. Received: one with a part that a "
            "tf.function or a tf.data service gives, or that is an element of another dataset, "
            "where nobody sees which rows come again, or are left out for what others hold. Make "
            "it where it is used, of its source; take folds with `.take()`, `.skip()` and "
            "`.shard()` instead of `.window()`."
        )


def refuse_state(dataset: tf.data.Dataset) -> None:
    """Refuses functions that write to variables, but for the seeds of Keras' layers.

    Raises:
        ValueError: one does.
    """
    for each in data_sets_of(dataset):
        for op in operations_inside(each):
            if _WRITES.search(op.type) and not _is_seed(op.inputs[-1]):
                raise ValueError(
                    "Expected maps that treat each example by itself. Received: a dataset with "
                    f"{op.type} in a function, which keeps something of an example for those "
                    "after it, such as a running mean, and no clip bounds that. Release statistics "
                    "by tfdp.private_mean beforehand; count with `.enumerate()`."
                )


def _is_seed(value: tf.Tensor) -> bool:
    return value.dtype == tf.int64 and value.shape.is_compatible_with((2,))


def refuse_other_orders(dataset: tf.data.Dataset) -> None:
    """Refuses stages that give what is ready first: a record that takes long comes later.

    Raises:
        ValueError: with the stage.
    """
    for each in data_sets_of(dataset):
        inside = (op.node_def.attr["deterministic"].s for op in operations_inside(each))
        if is_out_of_order(each) or any(told == b"false" for told in inside):
            raise ValueError(
                "Expected batches that no example chooses for others. Received: a dataset with "
                f"{kind_of(each)}(deterministic=False), which gives what is ready first: an "
                "example that takes long to read or decode decides in which batch others are, and "
                "no clip bounds that. Leave deterministic=False out (sloppy=True, of older "
                "functions); of tfds.load(shuffle_files=True) pass read_config="
                "tfds.ReadConfig(shuffle_seed=...)."
            )


def in_order(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """The same data, in the same order whatever takes long, if its options say otherwise."""
    options = tf.data.Options()
    options.deterministic = True
    return dataset.with_options(options)


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
    cached, coins = False, thinned
    while kind_of(dataset) in _ONE_WAY:
        if kind_of(dataset) in _MAPS:
            thinned, coins = True, coins or _may_draw(dataset)
        cached = cached or (kind_of(dataset) in _KEPT and not coins)
        [dataset] = inputs_of(dataset)
    if cached and not all_rows:
        raise ValueError(
            "Expected new draws in each epoch with sampling='poisson'. Received: a dataset whose "
            "batches are kept (`.cache()`) and come again. Remove it, or keep the single records."
        )
    if kind_of(dataset) in ("Zip", "Concatenate", "DirectedInterleave"):
        for source in joined(dataset):
            refuse_fixed_batches(source, batch_size, all_rows, thinned)
    if kind_of(dataset) in BATCHES:
        size = number_of(dataset)
        how = repetition(inputs_of(dataset)[0])
        if how:
            raise ValueError(
                "Expected each example at most once in a draw with sampling='poisson'. Received: a "
                f"dataset with {how} before its rows are batched, so that a batch may hold an "
                "example twice, and no clip bounds both. Repeat the batches, "
                "`.batch(...).repeat(...)`, or pass arrays or tfdp.Records(source, map=...), which "
                "are Poisson sampled for you."
            )
        may_be_draws = thinned and (size is None or size > batch_size)
        if may_be_draws or (all_rows and int(dataset.cardinality()) == 1):
            return
        raise ValueError(
            "Expected independent Poisson draws with sampling='poisson'. Received: a dataset that "
            f"takes {size} rows after the other (`.batch({size})`), which are no Poisson draws, "
            "however they were shuffled: each epoch has every row once. Declare 'shuffle', or pass "
            "arrays or tfdp.Records(source, map=...), which are then Poisson sampled for you."
        )


def _may_draw(dataset: tf.data.Dataset) -> bool:
    """Whether the function of a map draws random numbers, or is Python's."""
    return any(is_random(op.type) or "PyFunc" in op.type for op in operations_inside(dataset))


def refuse_joined_records(dataset: tf.data.Dataset) -> None:
    """Refuses data whose elements are no single records, each of them once, where the stages tell.

    Args:
        dataset: of records that are counted one by one.

    Raises:
        ValueError: with the stage.
    """
    refuse_hidden(dataset)
    refuse_state(dataset)
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
    inside = next((_JOIN[kind] for kind, _ in stages_inside(dataset) if kind in _JOIN), "")
    return inside or next(filter(None, map(_join, read_by(dataset))), "")


def refuse_repeated_rows(dataset: tf.data.Dataset) -> None:
    """Refuses data in which an example comes more than once in a pass, where the stages tell.

    Args:
        dataset: of which it was stated that each example is in a pass at most once.

    Raises:
        ValueError: with the stage.
    """
    how = repetition(dataset) or (WINDOWS if overlapping_windows_apart(dataset, rows=True) else "")
    if how:
        raise ValueError(
            "Expected each example at most once in a pass with sampling='shuffle'. Received: a "
            f"dataset with {how}, in which it comes more often: the pass would be counted once. "
            "Leave this out: `fit` begins a new pass with each epoch, and fit(augment=..., "
            "multiplicity=...) takes several copies of an example into its one contribution. Pair "
            "and divide data (.zip(), .take(n) and .skip(n)) before they are shuffled."
        )

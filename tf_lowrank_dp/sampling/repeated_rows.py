"""Whether a row comes more than once in a pass over a `tf.data` pipeline, as its stages tell."""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

import tensorflow as tf

from tf_lowrank_dp._tf_data import (
    held_by,
    inputs_of,
    kind_of,
    number_of,
    shard_of,
    windows_overlap,
)
from tf_lowrank_dp.sampling.function_rows import (
    JOINS,
    WINDOWS,
    operations_inside,
    rows_again,
    shares_inside,
    stages_inside,
    whole_inside,
)

OF_ROWS = (
    "Map", "ParallelMap", "Shuffle", "Cache", "Prefetch", "Options", "AssertCardinality",
    "Restructured",
)  # fmt: skip
BATCHES = ("Batch", "ParallelBatch", "PaddedBatch", "Rebatch", "MapAndBatch")
SOME = ("Take", "Skip", "Shard")
_AGAIN = ("Repeat", "ShuffleAndRepeat")
APART = ("FlatMap", "Interleave", "ParallelInterleave", "Unbatch")


def repetition(dataset: tf.data.Dataset, of_pairs: bool = True) -> str:
    """By what rows come more than once; nothing where the stages do not tell.

    Args:
        dataset: of rows.
        of_pairs: whether pairs with one element that is repeated, such as the series that windows
            are cut from, are others where their other sides are.
    """
    kind, sources = kind_of(dataset), joined(dataset)
    if kind in _AGAIN and number_of(dataset) != 1:
        return "`.repeat()`"
    if kind in APART and overlapping_windows_apart(dataset):
        return WINDOWS
    if kind in (*APART, "Map", "ParallelMap") and (how := rows_again(dataset)):
        return how
    held = [each for each in held_by(dataset) if each is not None]
    if shares_inside(dataset) and any(map(_shuffles, held)):
        return "shares of a data set that is in another order for each (`.shard()` first)"
    if any(_in_common(*pair) for pair in itertools.combinations(held, 2)):
        return "one data set several times in a function, or parts of it that may overlap"
    if kind in JOINS:
        of_one = _apart if kind == "Zip" else _in_common
        if any(of_one(*pair) for pair in itertools.combinations(sources, 2)):
            if kind == "Zip":
                return "pairs of rows of one data set that are in another order, or apart"
            return "one data set several times behind each other, or parts of it that may overlap"
    found = [repetition(source, of_pairs) for source in sources]
    if kind == "Zip" and of_pairs and not all(found):
        pairs = zip(found, map(_is_one_element_again, sources), strict=True)
        found = ["" if one_element else how for how, one_element in pairs]
    return next(filter(None, [*found, *(repetition(each, of_pairs) for each in held)]), "")


def overlapping_windows_apart(dataset: tf.data.Dataset, rows: bool = False) -> bool:
    """Whether windows are taken apart again; one that stays whole is an example by itself.

    Args:
        dataset: a stage.
        rows: whether the elements are batches whose rows are meant.
    """
    depth = _depth_of_windows(dataset)
    return depth is not None and depth < int(rows)


def _depth_of_windows(dataset: tf.data.Dataset) -> float | None:
    """In how many batches overlapping windows are, each of them one element.

    Below 0 they are taken apart; infinite before they are elements, as data sets by themselves;
    None where there are none.
    """
    kind = kind_of(dataset)
    if kind == "Window" and windows_overlap(dataset):
        return math.inf
    depths = [
        depth for source in _sources(dataset) if (depth := _depth_of_windows(source)) is not None
    ]
    if not depths:
        return None
    depth = min(depths)
    if kind in BATCHES:
        return depth + (kind != "Rebatch")
    if kind == "Unbatch":
        return -1 if math.isinf(depth) else depth - 1
    if math.isinf(depth) and whole_inside(dataset):
        return 0
    if kind in APART:
        return -1 if math.isinf(depth) else depth - 1
    return depth


def _is_one_element_again(dataset: tf.data.Dataset) -> bool:
    """Whether it is `.from_tensors(...).repeat()`: what all rows of other sides are paired with."""
    while kind_of(dataset) in (*OF_ROWS, "Repeat", "Scan"):
        [dataset] = inputs_of(dataset)
    return kind_of(dataset) == "Tensor"


class _Part(NamedTuple):
    """Rows of a data set: those at `start`, `start + step`, and so on, or fewer.

    Attributes:
        most: largest number of them.
        batches: sizes of the batches that they are in, and of batches of these.
        shuffled: whether they are in another order.
        outer: those that held these, before they were taken apart.
    """

    start: int = 0
    step: int = 1
    most: float = math.inf
    batches: tuple[int, ...] = ()
    shuffled: bool = False
    outer: _Part | None = None

    @property
    def rows(self) -> int:
        """How many of them are in an element."""
        return math.prod(self.batches)

    def taken_apart(self) -> _Part:
        """What `.unbatch()` gives."""
        if self.batches:
            return self._replace(batches=self.batches[:-1])
        return _Part(shuffled=self.shuffled, outer=self)

    def is_apart_from(self, other: _Part) -> bool:
        """Whether the two have no row in common, as far as can be told."""
        if self.outer and other.outer and self.outer.is_apart_from(other.outer):
            return True
        if not self.most or not other.most:
            return True
        if self.outer != other.outer:  # they are counted from other beginnings
            return False
        if self.end <= other.start or other.end <= self.start:
            return True
        return (self.start - other.start) % math.gcd(self.step, other.step) != 0

    @property
    def end(self) -> float:
        """Behind its last row; `most` is not 0."""
        return self.start + self.step * (self.most - 1) + 1


def _in_common(one: tf.data.Dataset, other: tf.data.Dataset) -> bool:
    """Whether two data sets may have rows of one and the same in common."""
    (root, part), (other_root, other_part) = _part_of(one), _part_of(other)
    if root is other_root:
        return part is None or other_part is None or not part.is_apart_from(other_part)
    if sources := _sources(root):  # of what is joined, or read by a stage's functions
        return any(_in_common(source, other) for source in sources)
    return any(_in_common(one, source) for source in _sources(other_root))


def _sources(dataset: tf.data.Dataset) -> list[tf.data.Dataset]:
    return [*joined(dataset), *filter(None, held_by(dataset))]


def _apart(one: tf.data.Dataset, other: tf.data.Dataset) -> bool:
    """Whether a row may be in several pairs of two sides: in other places of each."""
    (root, part), (other_root, other_part) = _part_of(one), _part_of(other)
    if root is other_root and part is not None and other_part is not None:
        if part._replace(most=0) == other_part._replace(most=0) and not part.shuffled:
            return False
    elif part == _Part() and kind_of(root) == "Zip":
        return any(_apart(source, other) for source in joined(root))
    elif other_part == _Part() and kind_of(other_root) == "Zip":
        return any(_apart(one, source) for source in joined(other_root))
    return _in_common(one, other)


def _part_of(dataset: tf.data.Dataset) -> tuple[tf.data.Dataset, _Part | None]:
    """The data set whose rows these are, each of them once, and which of them; None if unknown."""
    stages = []
    while kind_of(dataset) in (*OF_ROWS, *SOME, *BATCHES, "Unbatch", "Repeat"):
        if kind_of(dataset) == "Repeat" and number_of(dataset) != 1:
            break
        stages.append(dataset)
        [dataset] = inputs_of(dataset)
    part: _Part | None = _Part(shuffled=_shuffles(dataset))
    for stage in reversed(stages):
        kind = kind_of(stage)
        if part is None:
            break
        if kind == "Rebatch":
            part = part.taken_apart()
        if kind in BATCHES:
            size = number_of(stage)
            part = None if size is None else part._replace(batches=(*part.batches, size))
        elif kind == "Unbatch":
            part = part.taken_apart()
        elif kind == "Shuffle" or _shuffles_inside(stage):
            part = part._replace(shuffled=True)
        elif kind in SOME:
            part = _selected(part, stage)
    return dataset, part


def _shuffles(dataset: tf.data.Dataset) -> bool:
    """Whether the order of a data set may be another each time that it is read."""
    shuffles = ("Shuffle", "ShuffleAndRepeat", "DirectedInterleave")
    if kind_of(dataset) in shuffles or _shuffles_inside(dataset):
        return True
    return any(map(_shuffles, inputs_of(dataset)))


def _shuffles_inside(dataset: tf.data.Dataset) -> bool:
    """Whether functions of a stage do, such as of the lines of each file."""
    if any(kind.startswith("Shuffle") for kind, _ in stages_inside(dataset)):
        return True
    held = any(each is None or _shuffles(each) for each in held_by(dataset))
    return held or any(op.type == "RandomShuffle" for op in operations_inside(dataset))


def _selected(part: _Part, stage: tf.data.Dataset) -> _Part | None:
    """Some elements of a part; None where it is not known which rows these are."""
    if part.shuffled:
        return None
    if kind_of(stage) == "Shard":
        shard = shard_of(stage)
        if shard is None or part.rows > 1:
            return None
        shards, index = shard
        most = part.most if math.isinf(part.most) else max(0, -(-(part.most - index) // shards))
        start, step = part.start + index * part.step, part.step * shards
        return part._replace(start=start, step=step, most=most)
    number = number_of(stage)
    if number is None:
        return None
    if kind_of(stage) == "Take":
        return part if number < 0 else part._replace(most=min(part.most, number * part.rows))
    if number < 0:  # nothing is left
        return part._replace(most=0)
    rows = number * part.rows
    return part._replace(start=part.start + rows * part.step, most=max(0, part.most - rows))


def joined(dataset: tf.data.Dataset) -> list[tf.data.Dataset]:
    """Where a dataset's rows come from; the first of what interleaves others says which is next."""
    inputs = inputs_of(dataset)
    return inputs[1:] if kind_of(dataset) == "DirectedInterleave" else inputs

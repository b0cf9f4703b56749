"""Which variables share a basis of anchor directions, and how many directions each group gets."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from tf_lowrank_dp.per_example.parameter import Parameter
from tf_lowrank_dp.release.selection import groups_of


def anchor_groups(
    parameters: Sequence[Parameter],
    num_groups: int | None = None,
    groups: Sequence[Sequence[str]] | None = None,
) -> list[list[int]]:
    """Positions of the parameters of each group.

    Args:
        parameters: the trainable variables.
        num_groups: number of contiguous groups with about equally many parameters; variables are
            not divided.
        groups: for each group, parts of the paths of its variables.  Without either there is one
            group a layer.

    Raises:
        ValueError: more groups than variables, or `groups` do not hold each variable once.
    """
    if groups is not None:
        return _named_groups(parameters, groups)
    if num_groups is not None:
        return _contiguous_groups(parameters, num_groups)
    return groups_of(parameters, "per_layer")


def allocated_bases(sizes: Sequence[int], num_bases: int, num_anchors: int) -> list[int]:
    """How many directions each group gets, in proportion to the root of its size.

    Directions are given one by one to the group that is furthest below its share (the method of
    Webster), at least one to each and never more than it has parameters or anchors: then the
    sum is below `num_bases`.

    Args:
        sizes: number of parameters of each group.
        num_bases: number of directions of all groups.
        num_anchors: number of public examples.

    Example:

    >>> allocated_bases([100, 10000, 400], 26, 1000)
    [2, 20, 4]
    >>> allocated_bases([3, 10000], 26, 10)
    [3, 10]

    Raises:
        ValueError: fewer directions than groups.
    """
    if num_bases < len(sizes):
        raise ValueError(
            f"Expected num_bases of at least the number of groups, {len(sizes)}. Received: "
            f"num_bases={num_bases}. Pass more, or num_groups=... for fewer groups."
        )
    most = [min(size, num_anchors) for size in sizes]
    bases = [1] * len(sizes)
    while sum(bases) < num_bases:
        wanting = [g for g, count in enumerate(bases) if count < most[g]]
        if not wanting:
            break
        bases[max(wanting, key=lambda g: math.sqrt(sizes[g]) / (bases[g] + 0.5))] += 1
    return bases


def size_of(parameters: Sequence[Parameter], group: Sequence[int]) -> int:
    """Number of parameters of a group."""
    return sum(math.prod(parameters[index].shape) for index in group)


def _contiguous_groups(parameters: Sequence[Parameter], num_groups: int) -> list[list[int]]:
    count = len(parameters)
    if num_groups > count:
        raise ValueError(
            f"Expected at most {count} groups, the number of trainable variables. Received: "
            f"num_groups={num_groups}. Pass fewer."
        )
    ends = list(itertools.accumulate(math.prod(p.shape) for p in parameters))
    cuts = [0]
    for number in range(1, num_groups):
        target = ends[-1] * number / num_groups
        possible = range(cuts[-1] + 1, count - (num_groups - number) + 1)
        cuts.append(min(possible, key=lambda cut: abs(ends[cut - 1] - target)))
    return [list(range(*pair)) for pair in itertools.pairwise([*cuts, count])]


def _named_groups(
    parameters: Sequence[Parameter], groups: Sequence[Sequence[str]]
) -> list[list[int]]:
    found = [
        [index for index, p in enumerate(parameters) if any(part in p.path for part in parts)]
        for parts in groups
    ]
    for index, parameter in enumerate(parameters):
        number = sum(index in group for group in found)
        if number != 1:
            raise ValueError(
                "Expected groups that hold each trainable variable once. Received: "
                f"'{parameter.path}' is in {number} of them. Correct the parts of paths."
            )
    if not all(found):
        raise ValueError(
            "Expected each of the groups to hold a trainable variable. Received: "
            f"{list(groups[found.index([])])} matches none of {[p.path for p in parameters]}. "
            "Correct the parts of paths."
        )
    return found

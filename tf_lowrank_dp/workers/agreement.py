"""What has to be the same on all workers before the first step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_SHOWN = 60


class Disagreement(ValueError):
    """Workers differ in what must be the same on all of them; raised on all of them."""


def refuse_differences(facts: Sequence[Mapping[str, str]]) -> None:
    """Refuses workers that differ.

    Args:
        facts: of each worker, by name.

    Raises:
        Disagreement: with a table by worker.

    Example:

    >>> refuse_differences([{"clip": "1.0"}, {"clip": "1.0"}])
    """
    names = list(dict.fromkeys(name for of_worker in facts for name in of_worker))
    values = {name: [of_worker.get(name, "-") for of_worker in facts] for name in names}
    different = {name: found for name, found in values.items() if len(set(found)) > 1}
    if different:
        raise Disagreement(
            f"Expected {len(facts)} workers that train one model on the same rows in the same way. "
            f"Received: workers that differ.\n{_table(different)}\nNothing was spent. Start the "
            "same program with the same data on all of them."
        )


def refuse_same_rows(digests: Sequence[str]) -> None:
    """Refuses workers that have the same rows, though each has said that they are its own.

    Args:
        digests: of the rows of each worker.

    Raises:
        Disagreement: two are equal.

    Example:

    >>> refuse_same_rows(["a1", "b2"])
    """
    if len(set(digests)) < len(digests):
        same = next(digest for digest in digests if digests.count(digest) > 1)
        indices = [str(i) for i, digest in enumerate(digests) if digest == same]
        raise Disagreement(
            "Expected rows of its own on each worker with sharded=True. Received: the same rows on "
            f"workers {' and '.join(indices)}. Nothing was spent. Leave sharded out where all "
            "workers have all rows; they share them then."
        )


def _table(different: Mapping[str, Sequence[str]]) -> str:
    """A line for each value of each thing, with the workers that have it."""
    lines = []
    for name, values in different.items():
        lines.append(f"  {name}:")
        for value in dict.fromkeys(values):
            workers = [str(i) for i, found in enumerate(values) if found == value]
            lines.append(f"    worker {', '.join(workers)}: {_short(value, values)}")
    return "\n".join(lines)


def _short(value: str, values: Sequence[str]) -> str:
    """The part of a long value around the first place where others differ."""
    if len(value) <= _SHOWN:
        return value
    shortest = min(map(len, values))
    same = next((i for i in range(shortest) if len({v[i] for v in values}) > 1), shortest)
    first = max(0, same - _SHOWN // 3)
    return "..." * (first > 0) + value[first : first + _SHOWN] + "..."

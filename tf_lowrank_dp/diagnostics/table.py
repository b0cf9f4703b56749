"""Text tables."""

from __future__ import annotations

from collections.abc import Sequence


def text_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines with the cells of each column below each other.

    Args:
        rows: the header and the rows, all with the same number of cells.

    Example:

    >>> print("\\n".join(text_table([("layer", "shape"), ("d", "(4, 2)")])))
    layer  shape
    d      (4, 2)
    """
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]

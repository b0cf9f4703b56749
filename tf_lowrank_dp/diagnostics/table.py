"""Tables for terminals and notebooks."""

from __future__ import annotations

import html
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


class Table(str):
    """A table as text, which notebooks show as an HTML table.

    Args:
        rows: the header and the rows, all with the same number of cells.
        notes: lines below the table.

    Example:

    >>> Table([("layer", "shape"), ("d", "(4, 2)")], ["One layer."])
    layer  shape
    d      (4, 2)
    One layer.
    """

    _rows: Sequence[Sequence[str]]
    _notes: Sequence[str]

    def __new__(cls, rows: Sequence[Sequence[str]], notes: Sequence[str] = ()) -> Table:
        table = super().__new__(cls, "\n".join([*text_table(rows), *notes]))
        table._rows, table._notes = rows, notes
        return table

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        header, *body = ("".join(map(_cell, row)) for row in self._rows)
        rows = "".join(f"<tr>{row}</tr>" for row in body)
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self._notes)
        return f"<table><thead><tr>{header}</tr></thead><tbody>{rows}</tbody></table>{notes}"


def _cell(text: str) -> str:
    return f'<td style="text-align: left">{html.escape(text)}</td>'

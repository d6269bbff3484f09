"""Which rows a table shows, and in which order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpumon.tui.rows.cell import Row

__all__ = ["matches", "ordered"]


def matches(row: Row, wanted: str) -> bool:
    """True where the row's text holds ``wanted``, whatever the case; ``!`` inverts."""
    inverted = wanted.startswith("!")
    sought = wanted.removeprefix("!").strip().casefold()
    if not sought:
        return True
    texts = [f"{cell.lead} {cell.text}" for cell in row.cells]
    found = sought in " ".join((*texts, *(span.text for span in row.note), row.words)).casefold()
    return found is not inverted


def ordered(
    rows: Sequence[Row], *, wanted: str = "", column: int | None = None, descending: bool = False
) -> list[Row]:
    """The rows that match, sorted by a column, each child below its parent.

    Unknown values come last whichever way the rest is sorted; equal ones keep the
    order they were given in. A parent stays while one of its children matches.
    """
    keys = {row.key for row in rows}
    children: dict[str, list[Row]] = {}
    tops: list[Row] = []
    for row in rows:
        if row.parent is not None and row.parent in keys:
            children.setdefault(row.parent, []).append(row)
        else:
            tops.append(row)
    result: list[Row] = []
    for top in _sorted(tops, column, descending):
        below = [
            child
            for child in _sorted(children.get(top.key, ()), column, descending)
            if matches(child, wanted)
        ]
        if below or matches(top, wanted):
            result += [top, *below]
    return result


def _sorted(rows: Iterable[Row], column: int | None, descending: bool) -> list[Row]:
    listed = list(rows)
    if column is None:
        return listed
    known = [row for row in listed if row.cells[column].sort is not None]
    rest = [row for row in listed if row.cells[column].sort is None]
    numbers = [row for row in known if not isinstance(row.cells[column].sort, str)]
    words = [row for row in known if isinstance(row.cells[column].sort, str)]
    numbers.sort(key=lambda row: float(row.cells[column].sort or 0), reverse=descending)
    words.sort(key=lambda row: str(row.cells[column].sort).casefold(), reverse=descending)
    return numbers + words + rest

"""Columns of a table and how they share the room.

A column's content class says how it is aligned and how wide it may be. Where the room
is short, bars shrink first, then whole columns give way, the one with the greatest
``gives_way`` first, and last of all texts shrink. A number is never cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

__all__ = ["Column", "Content", "Placed", "lay_out"]


@dataclass(frozen=True, slots=True)
class _Class:
    """Widths in cells: the least, the usual and the most."""

    least: int
    usual: int
    most: int
    right: bool = True
    #: cells at the right that hold the number of a bar column
    figure: int = 0
    #: no wider than its widest content
    fits: bool = False


class Content(Enum):
    """What a column holds."""

    NAME = _Class(8, 16, 30, right=False, fits=True)
    WORD = _Class(4, 12, 16, right=False, fits=True)
    TEXT = _Class(12, 20, 400, right=False, fits=True)
    AGE = _Class(4, 4, 4)
    COUNT = _Class(4, 4, 4)
    RATE = _Class(6, 6, 6)
    PERCENT = _Class(5, 5, 5)
    NUMBER = _Class(5, 5, 5)
    GIB = _Class(6, 6, 6)
    #: figures of a varying count of digits, like used/total
    FIGURES = _Class(4, 12, 20, fits=True)
    BAR_PERCENT = _Class(9, 14, 22, figure=5)
    BAR_PAIR = _Class(14, 20, 36, figure=8)

    @property
    def is_bar(self) -> bool:
        """True where a bar takes what the number leaves."""
        return self.value.figure > 0

    @property
    def is_right(self) -> bool:
        """True for numbers, which stand at the right edge and sort greatest first."""
        return self.value.right


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its name is its key, its header carries the unit."""

    name: str
    header: str
    content: Content
    #: 0 never gives way; the greatest goes first
    gives_way: int = 0
    #: header where the long one does not fit
    short: str = ""
    #: other bounds than the class has
    least: int | None = None
    usual: int | None = None
    most: int | None = None
    figure: int | None = None
    #: a column of lesser rank gives way before this one gets narrower than this
    comfort: int | None = None
    #: takes whatever is left over
    stretches: bool = False
    #: says what a row is, where there is room for no more
    names_row: bool = False

    @property
    def figure_width(self) -> int:
        """Cells of the number in a bar column."""
        return self.figure if self.figure is not None else self.content.value.figure

    @property
    def is_head_right(self) -> bool:
        """True where the header stands at the right edge: over numbers, not over bars."""
        return self.content.is_right and not self.content.is_bar

    def title(self, width: int) -> str:
        """The header for a width."""
        return self.header if len(self.header) <= width or not self.short else self.short


@dataclass(frozen=True, slots=True)
class Placed:
    """Where a column stands: ``index`` in the table's columns, first cell, cells."""

    index: int
    x: int
    width: int


@dataclass(frozen=True, slots=True)
class _Bounds:
    least: int
    usual: int
    most: int
    #: below this a column of lesser rank gives way
    comfort: int


def lay_out(
    columns: Sequence[Column], fits: Sequence[int], room: int, *, margin: int = 1
) -> tuple[Placed, ...]:
    """Places for the columns that fit into ``room`` cells, ``margin`` free at both ends.

    ``fits`` holds the widest content of each column, which matters for texts.
    """
    room -= 2 * margin
    bounds = [_bounds(column, fit) for column, fit in zip(columns, fits, strict=True)]
    shown = list(range(len(columns)))
    while _taken(bounds[i].comfort for i in shown) > room:
        victim = max(shown, key=lambda i: (columns[i].gives_way, i))
        if columns[victim].gives_way == 0:
            break
        shown.remove(victim)
    while len(shown) > 1 and _taken(bounds[i].least for i in shown) > room:
        shown.pop()
    widths = {i: bounds[i].least for i in shown}
    spare = room - _taken(widths.values())
    texts = [i for i in shown if not columns[i].content.is_bar]
    bars = [i for i in shown if columns[i].content.is_bar]
    for i in (*texts, *bars):
        spare -= _grow(widths, i, bounds[i].usual, spare)
    gap = 1
    if spare >= 2 * (len(shown) - 1):
        gap = 2
        spare -= len(shown) - 1
    for i in texts:
        spare -= _grow(widths, i, bounds[i].most, spare)
    spare = _share(widths, {i: bounds[i].most for i in bars}, spare)
    for i in shown:
        if columns[i].stretches:
            widths[i] += max(spare, 0)
            break
    placed: list[Placed] = []
    x = margin
    for i in shown:
        placed.append(Placed(i, x, max(1, min(widths[i], margin + room - x))))
        x += widths[i] + gap
    return tuple(placed)


def _taken(widths: Iterable[int]) -> int:
    listed = list(widths)
    return sum(listed) + len(listed) - 1


def _bounds(column: Column, fit: int) -> _Bounds:
    kind: _Class = column.content.value
    least = kind.least if column.least is None else column.least
    usual = kind.usual if column.usual is None else column.usual
    most = kind.most if column.most is None else column.most
    if kind.fits:
        need = max(fit, len(column.short or column.header))
        least, usual = min(least, need), min(usual, need)
        most = min(most, max(fit, len(column.header)))
        if kind.right:
            least = usual = min(need, most)
    usual = max(usual, least)
    most = max(most, usual)
    comfort = least if column.content.is_bar else usual
    return _Bounds(least, usual, most, max(least, column.comfort or comfort))


def _grow(widths: dict[int, int], index: int, target: int, spare: int) -> int:
    more = max(0, min(target - widths[index], spare))
    widths[index] += more
    return more


def _share(widths: dict[int, int], most: dict[int, int], spare: int) -> int:
    """Give the spare cells to several columns one by one; returns what is left."""
    growing = [i for i in most if widths[i] < most[i]]
    while spare > 0 and growing:
        for i in list(growing):
            if spare == 0:
                break
            widths[i] += 1
            spare -= 1
            if widths[i] >= most[i]:
                growing.remove(i)
    return spare

"""A table that draws its own lines.

Rows are keyed: the selection follows its row through sorting, and when the row
vanishes the nearest one is marked until it returns or the user moves. The header does
not scroll. Only cells that differ from the screen are sent (see ``painted``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from textual import events
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView

from gpumon.tui.actions import Scope, bindings
from gpumon.tui.rows.cell import Row
from gpumon.tui.tones import Line, Span, Tone
from gpumon.tui.widgets.columns import Column, Placed, lay_out
from gpumon.tui.widgets.drawing import cell_spans, fit, line_spans
from gpumon.tui.widgets.ordering import ordered
from gpumon.tui.widgets.painted import Painted

__all__ = ["MetricTable"]

Ground = tuple[Span, str]


class MetricTable(Painted, ScrollView, can_focus=True):
    """Keyed rows of figures with sort, filter and a selection."""

    BINDINGS = bindings(Scope.TABLE)

    @dataclass
    class Opened(Message):
        """Enter, or a second click, on a row."""

        table: MetricTable
        key: str

        @property
        def control(self) -> MetricTable:
            """The table that was opened."""
            return self.table

    @dataclass
    class Moved(Message):
        """Another row is selected, or the table shows other rows."""

        table: MetricTable

        @property
        def control(self) -> MetricTable:
            """The table that changed."""
            return self.table

    def __init__(
        self,
        columns: Sequence[Column],
        *,
        id: str,  # noqa: A002
        title: str = "",
        empty: str = "nothing here",
    ) -> None:
        super().__init__(id=id)
        self.columns = tuple(columns)
        self.title = title
        #: said instead of rows when there are none
        self.empty = empty
        #: a remark beside the title, as on the age of all rows
        self.title_note = ""
        self.sort_column: str | None = None
        self.descending = False
        self.filter_text = ""
        self._rows: tuple[Row, ...] = ()
        self._shown: list[Row] = []
        self._selected: str | None = None
        self._wanted: str | None = None
        self._fits = [0] * len(self.columns)
        self._placed: tuple[Placed, ...] = ()
        self._placed_for: tuple[int, tuple[int, ...]] = (-1, ())
        self._drawn: dict[str, tuple[object, list[Ground]]] = {}

    # --- what it holds ---------------------------------------------------------

    @property
    def rows(self) -> tuple[Row, ...]:
        """All rows, in the order they were given."""
        return self._rows

    @property
    def shown_rows(self) -> Sequence[Row]:
        """The rows that pass the filter, as sorted."""
        return self._shown

    @property
    def selected(self) -> Row | None:
        """The row under the cursor."""
        index = self._index()
        return None if index is None else self._shown[index]

    @property
    def head_lines(self) -> int:
        """Lines above the first row."""
        return (1 if self.title else 0) + (1 if self._shown else 0)

    @property
    def wanted_lines(self) -> int:
        """Lines it takes to show everything."""
        return self.head_lines + len(self._shown) + (0 if self._shown or self.title else 1)

    def show(self, rows: Sequence[Row]) -> None:
        """Take the rows of this tick."""
        if tuple(rows) == self._rows:
            return
        self._rows = tuple(rows)
        self._arrange()

    def filter_by(self, text: str) -> None:
        """Show only rows that hold the text; ``!`` in front inverts, '' shows all."""
        self.filter_text = text.strip()
        self._arrange()

    def sort_by(self, name: str | None, descending: bool | None = None) -> None:
        """Sort by a column; None = the order the rows come in."""
        self.sort_column = name
        if descending is None:
            descending = name is not None and self._column(name)[1].content.is_right
        self.descending = descending
        self._arrange()

    def select(self, key: str) -> None:
        """Put the cursor on a row, now or as soon as it is there."""
        self._wanted = key
        self._arrange()

    def forget(self) -> None:
        """Drop rows, selection, filter and widths: other rows are to follow."""
        self._rows, self._shown = (), []
        self._selected = self._wanted = None
        self.filter_text = ""
        self._fits = [0] * len(self.columns)
        self._drawn.clear()

    def _column(self, name: str) -> tuple[int, Column]:
        return next((i, column) for i, column in enumerate(self.columns) if column.name == name)

    def _arrange(self) -> None:
        """Sort, filter, keep the selection, paint."""
        was_at = self._index()
        was_visible = was_at is not None and self._is_visible(was_at)
        column = None if self.sort_column is None else self._column(self.sort_column)[0]
        self._shown = ordered(
            self._rows, wanted=self.filter_text, column=column, descending=self.descending
        )
        keys = [row.key for row in self._shown]
        if self._wanted in keys:
            self._selected = self._wanted
        elif keys and self._selected not in keys:
            self._selected = keys[min(was_at or 0, len(keys) - 1)]
            self._wanted = self._wanted or self._selected
        self._measure()
        if self.is_mounted:
            self._stretch()
            if was_visible or was_at is None:
                self._reveal()
            self.repaint()
            self.post_message(self.Moved(self))

    def _index(self) -> int | None:
        for index, row in enumerate(self._shown):
            if row.key == self._selected:
                return index
        return None

    def _measure(self) -> None:
        """Widest content of each column; it only grows, lest columns jump each second."""
        for i, column in enumerate(self.columns):
            if column.content.value.fits:
                widths = (
                    cell_len(row.cells[i].text)
                    + (len(row.cells[i].lead) + 1 if row.cells[i].lead else 0)
                    for row in self._shown
                    if row.note_at is None or row.note_at > i
                )
                self._fits[i] = max(self._fits[i], max(widths, default=0))

    # --- drawing ---------------------------------------------------------------

    def draw(self, width: int, height: int) -> Sequence[Sequence[Ground]]:
        """The title, the header, and the rows at the scroll position."""
        self._place(width)
        lines: list[Sequence[Ground]] = []
        if self.title:
            lines.append([(span, "") for span in line_spans(self._title_line(height), width)])
        if not self._shown:
            if not self.title:
                said = self._nothing()
                lines.append([(Span(fit(f" {said}", width), Tone.DIM), "")])
            return lines
        lines.append([(span, "") for span in self._header(width)])
        first = self.scroll_offset.y
        room = max(0, height - len(lines))
        chosen = self._selected
        for row in self._shown[first : first + room]:
            ground = "" if row.key != chosen else ("selected" if self.has_focus else "chosen")
            lines.append(self._row(row, ground, width))
        return lines

    def _nothing(self) -> str:
        if self._rows and self.filter_text:
            return f"none of {len(self._rows)} matches {self.filter_text!r}; Esc clears the filter"
        return self.empty

    def filter_note(self) -> str:
        """``/berlin 2 of 6`` while a filter is set, else ''."""
        if not self.filter_text:
            return ""
        return f"/{self.filter_text}  {len(self._shown)} of {len(self._rows)}"

    def _count(self) -> str:
        """Rows, those below others apart: ``2+3`` for two cards and three slices."""
        keys = {row.key for row in self._rows}
        below = sum(1 for row in self._rows if row.parent in keys)
        return f"{len(keys) - below}+{below}" if below else str(len(keys))

    def position_note(self) -> str:
        """``3-9 of 64`` while not all rows are in sight, else ''."""
        page = self._page()
        if len(self._shown) <= page:
            return ""
        first = self.scroll_offset.y + 1
        return f"{first}-{min(first + page - 1, len(self._shown))} of {len(self._shown)}"

    def _names(self) -> str:
        """What is in a table that has no room for rows."""
        names = dict.fromkeys(
            row.cells[i].text
            for row in self._shown
            for i, column in enumerate(self.columns)
            if column.names_row
        )
        return ", ".join(names)

    def _title_line(self, height: int) -> Line:
        rule = Span("─", Tone.RULE)
        said = f" {self._count()}" if self._rows else ""
        left = [Span("── ", Tone.RULE), Span(f"{self.title}{said} ", Tone.TITLE)]
        if self.title_note:
            left.append(Span(f"{self.title_note} ", Tone.WARN))
        if not self._shown:
            left.append(Span(f"{self._nothing()} ", Tone.DIM))
        elif height <= self.head_lines:
            left.append(Span(f"{self._names()} ", Tone.DIM))
        right: list[Span] = []
        if note := self.filter_note():
            right.append(Span(f" {note} ", Tone.KEY))
        if height > self.head_lines and (position := self.position_note()):
            right.append(Span(f" {position} ", Tone.DIM))
        return Line(tuple(left), (*right, Span("──", Tone.RULE)), rule)

    def _header(self, width: int) -> list[Span]:
        spans: list[Span] = []
        x = 0
        for place in self._placed:
            column = self.columns[place.index]
            is_sorted = column.name == self.sort_column
            before = place.x - x
            text = fit(column.title(place.width), place.width, column.is_head_right)
            if not is_sorted:
                spans += [Span(" " * before), Span(text, Tone.HEAD)]
            else:
                mark = "▼" if self.descending else "▲"
                spans += _marked(column, place.width, before, mark)
            x = max(place.x + place.width, sum(len(span.text) for span in spans))
        spans.append(Span(" " * (width - x)))
        return spans

    def _row(self, row: Row, ground: str, width: int) -> list[Ground]:
        situation = (row, ground, width, self._placed)
        known = self._drawn.get(row.key)
        if known is not None and known[0] == situation:
            return known[1]
        spans: list[Span] = []
        x = 0
        for place in self._placed:
            if row.note_at is not None and place.index >= row.note_at:
                spans.append(Span(" " * (place.x - x)))
                spans += line_spans(Line(row.note), width - place.x - 1)
                x = width - 1
                break
            spans.append(Span(" " * (place.x - x)))
            cell = row.cells[place.index]
            drawn = cell_spans(cell, self.columns[place.index], place.width)
            if row.faded or cell.faded:
                drawn = [_fade(span, cell.lead, cell.lead_tone) for span in drawn]
            spans += drawn
            x = place.x + place.width
        spans.append(Span(" " * (width - x)))
        line = [(span, ground) for span in spans]
        if len(self._drawn) > 2 * len(self._rows) + 64:
            self._drawn.clear()
        self._drawn[row.key] = (situation, line)
        return line

    def _place(self, width: int) -> None:
        situation = (width, tuple(self._fits))
        if situation != self._placed_for:
            self._placed = lay_out(self.columns, self._fits, width)
            self._placed_for = situation

    def _situation(self) -> object:
        return (*super()._situation(), self.head_lines)  # type: ignore[misc]

    # --- moving ----------------------------------------------------------------

    def _stretch(self) -> None:
        """Room to scroll in; steady while everything fits, for a change costs a layout."""
        width, height = self.size
        size = Size(width, max(height, self.head_lines + len(self._shown)))
        if size != self.virtual_size:
            self.virtual_size = size

    def on_resize(self) -> None:
        """Another size: another room to scroll in."""
        self._stretch()
        self._reveal()

    def _page(self) -> int:
        return max(1, self.size.height - self.head_lines)

    def _is_visible(self, index: int) -> bool:
        return self.scroll_offset.y <= index < self.scroll_offset.y + self._page()

    def _reveal(self) -> None:
        index = self._index()
        if index is None or self._is_visible(index):
            return
        top = index if index < self.scroll_offset.y else index - self._page() + 1
        self.scroll_to(y=top, animate=False, immediate=True)

    def _move(self, choose: Callable[[int], int]) -> None:
        index = self._index()
        if index is None:
            return
        target = max(0, min(choose(index), len(self._shown) - 1))
        self._selected = self._wanted = self._shown[target].key
        self._reveal()
        self.repaint()
        self.post_message(self.Moved(self))

    def action_up(self) -> None:
        """One row up."""
        self._move(lambda index: index - 1)

    def action_down(self) -> None:
        """One row down."""
        self._move(lambda index: index + 1)

    def action_page_up(self) -> None:
        """One page up."""
        self._move(lambda index: index - self._page())

    def action_page_down(self) -> None:
        """One page down."""
        self._move(lambda index: index + self._page())

    def action_first(self) -> None:
        """To the first row."""
        self._move(lambda _: 0)

    def action_last(self) -> None:
        """To the last row."""
        self._move(lambda _: len(self._shown) - 1)

    def action_open(self) -> None:
        """Open the selected row."""
        if self.selected is not None:
            self.post_message(self.Opened(self, self.selected.key))

    def action_sort_left(self) -> None:
        """Sort by the column left of the present one."""
        self._sort_step(-1)

    def action_sort_right(self) -> None:
        """Sort by the column right of the present one."""
        self._sort_step(1)

    def action_reverse(self) -> None:
        """Turn the order round."""
        if self.sort_column is not None:
            self.sort_by(self.sort_column, not self.descending)

    def _sort_step(self, step: int) -> None:
        """Through the visible columns; before the first one stands the given order."""
        self._place(self.size.width)
        names: list[str | None] = [None, *(self.columns[p.index].name for p in self._placed)]
        at = names.index(self.sort_column) if self.sort_column in names else 0
        self.sort_by(names[(at + step) % len(names)])

    def on_click(self, event: events.Click) -> None:
        """Header: sort by it, again: turn round. Row: select, twice: open."""
        offset = event.get_content_offset(self)
        if offset is None or not self._shown:
            return
        if offset.y < self.head_lines:
            if offset.y == self.head_lines - 1:
                self._sort_at(offset.x)
            return
        index = offset.y - self.head_lines + self.scroll_offset.y
        if index < len(self._shown):
            self._move(lambda _: index)
            if event.chain == 2:
                self.action_open()

    def _sort_at(self, x: int) -> None:
        for place in self._placed:
            if place.x <= x < place.x + place.width:
                name = self.columns[place.index].name
                self.sort_by(name, not self.descending if name == self.sort_column else None)


def _marked(column: Column, width: int, before: int, mark: str) -> list[Span]:
    """A header with its sort mark, beside the text where there is room, else in the gap."""
    name = column.title(width)
    if column.is_head_right:
        text = fit(f"{mark}{name}" if len(name) < width else name, width, right=True)
        gap = " " * before if len(name) < width else " " * (before - 1) + mark
        return [Span(gap, Tone.SORTED), Span(text, Tone.SORTED)]
    # Where the name fills its column the mark stands in the gap after it.
    text = fit(f"{name}{mark}", max(width, len(name) + 1))
    return [Span(" " * before), Span(text, Tone.SORTED)]


def _fade(span: Span, lead: str, lead_tone: Tone) -> Span:
    """Old values are dim; the glyph in front keeps its tone."""
    if lead and span.tone is lead_tone:
        return span
    if span.tone is Tone.REST or (span.tone is Tone.WARN and span.text == "X"):
        return span
    return Span(span.text, Tone.DIM)

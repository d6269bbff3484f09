"""What every screen with tables has: the top line, banner, filter, detail line, keys."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, cast

from textual import on
from textual.app import ComposeResult
from textual.widget import Widget
from textual.widgets import Input

from gpumon.tui.actions import Scope
from gpumon.tui.format import reason_text
from gpumon.tui.frame import Frame
from gpumon.tui.rows.cell import Row
from gpumon.tui.rows.top_line import banner_lines, top_line
from gpumon.tui.rows.troubles import Trouble
from gpumon.tui.tones import Line, Span, Tone
from gpumon.tui.widgets.key_line import KeyLine
from gpumon.tui.widgets.lean import LeanScreen
from gpumon.tui.widgets.metric_table import MetricTable
from gpumon.tui.widgets.pane import Pane

if TYPE_CHECKING:
    from gpumon.tui.app import GpumonApp

__all__ = ["FrameScreen"]


class FrameScreen(LeanScreen):
    """A screen drawn from frames. Subclasses fill the middle and take each frame."""

    SCOPE = Scope.FLEET
    AUTO_FOCUS = "MetricTable"

    def __init__(self) -> None:
        super().__init__()
        self.frame: Frame | None = None

    @property
    def gpumon(self) -> GpumonApp:
        """The application, with its own type."""
        return cast("GpumonApp", self.app)

    def compose(self) -> ComposeResult:
        """Top line and banner, the middle, filter, detail line and keys."""
        yield Pane(id="top")
        yield Pane(id="banner")
        yield from self.compose_middle()
        yield Input(id="filter", placeholder="text that a row must hold; ! in front inverts")
        yield Pane(id="detail")
        yield KeyLine((self.SCOPE, Scope.TABLE, Scope.EVERYWHERE), id="keys")

    def compose_middle(self) -> Iterable[Widget]:
        """The screen's own widgets."""
        raise NotImplementedError

    def place(self) -> str:
        """Where this is, for the top line."""
        return ""

    def show_frame(self, frame: Frame, found: dict[str, list[Trouble]]) -> None:
        """Draw a frame; subclasses add their tables."""
        self.frame = frame
        self.query_one("#top", Pane).show([top_line(frame, found, self.size.width, self.place())])
        self.query_one("#banner", Pane).show(banner_lines(frame.status))
        self.query_one(KeyLine).set_extra("t take over" if frame.status.mode == "orphaned" else "")

    def on_mount(self) -> None:
        """Without blinking, and with the newest frame at once."""
        self.query_one("#filter", Input).cursor_blink = False
        self.gpumon.show_latest()

    def on_screen_resume(self) -> None:
        """Back from another screen: what is shown is old by then."""
        if self.is_mounted:
            self.gpumon.show_latest()

    def on_resize(self) -> None:
        """What fits has changed."""
        if self.is_mounted:
            self.gpumon.show_latest()

    # --- the selected row ------------------------------------------------------

    @property
    def table(self) -> MetricTable:
        """The table that keys and filter act on: the focused one, else the last used."""
        return self.query_one(MetricTable)

    @on(MetricTable.Moved)
    def _show_detail(self) -> None:
        self.query_one("#detail", Pane).show([self.detail_line()])

    def detail_line(self) -> Line:
        """What is to say of the selected row: its trouble, and why values are unknown."""
        table = self.table
        row = table.selected
        if row is None:
            return Line()
        spans: list[Span] = [Span(" ")]
        for (reason, partly), names in _reasons(table, row).items():
            said = f"part of {', '.join(names)} n/a: " if partly else f"{', '.join(names)} n/a: "
            spans += [Span(said, Tone.UNKNOWN), Span(f"{reason}   ")]
        if row.remark:
            spans.append(Span(row.remark, Tone.DIM))
        return Line(tuple(spans))

    # --- filter ----------------------------------------------------------------

    def action_filter(self) -> None:
        """Open the filter's line."""
        box = self.query_one("#filter", Input)
        box.value = self.table.filter_text
        box.add_class("-open")
        box.focus()

    def action_clear_filter(self) -> None:
        """Close the filter's line and show all rows."""
        self.query_one("#filter", Input).value = ""
        self.table.filter_by("")
        self._close_filter()

    @on(Input.Changed, "#filter")
    def _filter_typed(self, event: Input.Changed) -> None:
        if event.input.has_class("-open"):
            self.table.filter_by(event.value)

    @on(Input.Submitted, "#filter")
    def _filter_done(self) -> None:
        self._close_filter()

    def _close_filter(self) -> None:
        self.query_one("#filter", Input).remove_class("-open")
        self.table.focus()


def _reasons(table: MetricTable, row: Row) -> dict[tuple[str, bool], list[str]]:
    """Columns whose value is unknown, or known in part, by the reason."""
    reasons: dict[tuple[str, bool], list[str]] = {}
    for column, cell in zip(table.columns, row.cells, strict=True):
        if cell.reason is not None:
            key = (reason_text(cell.reason), not cell.text.startswith("n/a"))
            reasons.setdefault(key, []).append(column.short or column.header)
    return reasons

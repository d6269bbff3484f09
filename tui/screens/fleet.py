"""The fleet: every host in one row, and below what is wrong with which."""

from __future__ import annotations

from collections.abc import Iterable

from textual import on
from textual.widget import Widget

from gpumon.snapshot import HostView
from gpumon.tui.actions import Scope, bindings
from gpumon.tui.frame import Frame, says_the_same
from gpumon.tui.rows.cell import Row
from gpumon.tui.rows.fleet import FLEET_COLUMNS, fleet_row
from gpumon.tui.rows.strip import strip_lines
from gpumon.tui.rows.top_line import banner_lines
from gpumon.tui.rows.troubles import Trouble
from gpumon.tui.screens.base import FrameScreen
from gpumon.tui.tones import Line, Span, Tone
from gpumon.tui.widgets.metric_table import MetricTable
from gpumon.tui.widgets.pane import Pane

__all__ = ["FleetScreen"]

#: lines of the strip: at most this and a quarter of the screen, twice this where the
#: hosts leave room
_STRIP_MOST = 8
#: top line, header, rule, detail line, keys
_OTHER_LINES = 5


class FleetScreen(FrameScreen):
    """Start screen."""

    SCOPE = Scope.FLEET
    BINDINGS = bindings(Scope.FLEET)

    def __init__(self) -> None:
        super().__init__()
        self._made: dict[str, tuple[HostView, int, list[Trouble], Row]] = {}

    def compose_middle(self) -> Iterable[Widget]:
        """The table, a rule and the strip of troubles."""
        yield MetricTable(FLEET_COLUMNS, id="hosts", empty="no hosts: see gpumon config init")
        yield Pane(id="rule")
        yield Pane(id="strip")

    def show_frame(self, frame: Frame, found: dict[str, list[Trouble]]) -> None:
        """One row a host, then the troubles of all."""
        super().show_frame(frame, found)
        rows = [self._row(view, found.get(view.host, []), frame.now) for view in frame.views]
        self.table.show(rows)
        everything = sorted(
            (trouble for each in found.values() for trouble in each),
            key=lambda trouble: -trouble.severity.rank,
        )
        spare = self.size.height - _OTHER_LINES - len(banner_lines(frame.status)) - len(rows)
        most = max(min(_STRIP_MOST, self.size.height // 4), min(2 * _STRIP_MOST, spare))
        lines = strip_lines(everything, frame.now, most=most, width=self.size.width)
        self.query_one("#strip", Pane).show(lines)
        self._show_rule(len(everything))

    def _row(self, view: HostView, found: list[Trouble], now: float) -> Row:
        """A host's row; made anew when it said something or a second went by."""
        made = self._made.get(view.host)
        if (
            made is None
            or made[1] != int(now)
            or made[2] is not found
            or not says_the_same(made[0], view)
        ):
            row = fleet_row(view, found, now)
            made = self._made[view.host] = (view, int(now), found, row)
        return made[3]

    def _show_rule(self, count: int) -> None:
        word = "no trouble" if count == 0 else "1 trouble" if count == 1 else f"{count} troubles"
        right: list[Span] = []
        if note := self.table.filter_note():
            right.append(Span(f" {note} ", Tone.KEY))
        if position := self.table.position_note():
            right.append(Span(f" {position} ", Tone.DIM))
        right.append(Span("──", Tone.RULE))
        left = (Span("── ", Tone.RULE), Span(f"{word} ", Tone.DIM))
        self.query_one("#rule", Pane).show([Line(left, tuple(right), Span("─", Tone.RULE))])

    @on(MetricTable.Moved)
    def _rule_follows_filter(self) -> None:
        if self.frame is not None:
            self._show_rule(sum(len(each) for each in self.gpumon.found.values()))

    @on(MetricTable.Opened)
    def _open_host(self, event: MetricTable.Opened) -> None:
        self.gpumon.open_host(event.key)

    def action_fix(self) -> None:
        """Why the selected host fails, and what mends it."""
        if self.table.selected is not None:
            self.gpumon.show_fix(self.table.selected.key)

    async def action_retry(self) -> None:
        """Try the selected host again."""
        if self.table.selected is not None:
            await self.gpumon.retry(self.table.selected.key)

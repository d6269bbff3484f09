"""One host: its header, cards, models, engines, processes and troubles."""

from __future__ import annotations

from collections.abc import Iterable

from textual import on
from textual.widget import Widget

from gpumon.text import safe
from gpumon.tui.actions import Scope, bindings
from gpumon.tui.frame import Frame
from gpumon.tui.rows.engines import ENGINE_COLUMNS, engine_rows
from gpumon.tui.rows.gpus import GPU_COLUMNS, gpu_rows, gpus_age_note, no_gpus_text
from gpumon.tui.rows.host_header import host_header
from gpumon.tui.rows.models import MODEL_COLUMNS, model_rows
from gpumon.tui.rows.processes import PROCESS_COLUMNS, no_processes_text, process_rows
from gpumon.tui.rows.strip import strip_lines
from gpumon.tui.rows.troubles import Trouble
from gpumon.tui.screens.base import FrameScreen
from gpumon.tui.widgets.metric_table import MetricTable
from gpumon.tui.widgets.pane import Pane
from gpumon.tui.widgets.sharing import share_lines

__all__ = ["HostScreen"]

#: lines of this host's troubles: at most this, one where the tables need the room
_STRIP_MOST = 3
#: top line, detail line, keys
_OTHER_LINES = 3


class HostScreen(FrameScreen):
    """Everything a host said, and how old it is."""

    SCOPE = Scope.HOST
    BINDINGS = bindings(Scope.HOST)

    def __init__(self, host: str) -> None:
        super().__init__()
        self.host = host
        self._last_table = "gpus"
        #: the first table with rows is still to be focused
        self._fresh = True

    def compose_middle(self) -> Iterable[Widget]:
        """The header, four tables, the strip."""
        yield Pane(id="header")
        yield MetricTable(GPU_COLUMNS, id="gpus", title="GPUs")
        yield MetricTable(MODEL_COLUMNS, id="models", title="Models", empty="none loaded")
        yield MetricTable(ENGINE_COLUMNS, id="engines", title="Engines", empty="none found")
        yield MetricTable(PROCESS_COLUMNS, id="processes", title="GPU processes")
        yield Pane(id="strip")

    def place(self) -> str:
        """The host's name."""
        return safe(self.host, 40)

    @property
    def table(self) -> MetricTable:
        """The focused table, else the one that was."""
        focused = self.focused
        if isinstance(focused, MetricTable):
            self._last_table = str(focused.id)
        return self.query_one(f"#{self._last_table}", MetricTable)

    def show_frame(self, frame: Frame, found: dict[str, list[Trouble]]) -> None:
        """Header and tables of this host."""
        super().show_frame(frame, found)
        view = frame.view(self.host)
        if view is None:
            return
        mine = found.get(self.host, [])
        header = self.query_one("#header", Pane)
        header.show(host_header(view, mine, frame.now, self.size.width))
        gpus, models, engines, processes = self._tables()
        gpus.empty = no_gpus_text(view.snapshot)
        gpus.title_note = gpus_age_note(view, frame.now)
        processes.empty = no_processes_text(view)
        known = view.snapshot is not None
        models.empty = "none loaded" if known else "not read yet"
        engines.empty = "none found" if known else "not read yet"
        gpus.show(gpu_rows(view, frame.now))
        models.show(model_rows(view, frame.now))
        engines.show(engine_rows(view, frame.now))
        processes.show(process_rows(view, frame.now))
        if self._fresh and known:
            self._fresh = False
            next((t for t in self._tables() if t.shown_rows), gpus).focus()
        said = [trouble for trouble in mine if trouble.key != "connection"]
        most = max(1, min(_STRIP_MOST, self._spare()))
        lines = strip_lines(said, frame.now, most=most, width=self.size.width, hosts=False)
        self.query_one("#strip", Pane).show(lines)
        self._share()

    def _spare(self) -> int:
        """Lines left when every table has all it wants."""
        taken = _OTHER_LINES + sum(
            len(self.query_one(f"#{name}", Pane).lines) for name in ("banner", "header")
        )
        return self.size.height - taken - sum(table.wanted_lines for table in self._tables())

    def _tables(self) -> list[MetricTable]:
        return list(self.query(MetricTable))

    def _share(self) -> None:
        """Give each table its lines."""
        panes = [self.query_one(f"#{name}", Pane) for name in ("banner", "header", "strip")]
        taken = _OTHER_LINES + sum(len(pane.lines) for pane in panes)
        if self.query_one("#filter").has_class("-open"):
            taken += 1
        tables = self._tables()
        chosen = tables.index(self.table)
        room = max(len(tables), self.size.height - taken)
        for table, lines in zip(
            tables, share_lines([t.wanted_lines for t in tables], room, chosen), strict=True
        ):
            if table.styles.height is None or table.styles.height.value != lines:
                table.styles.height = lines

    @on(MetricTable.Moved)
    def _share_again(self) -> None:
        self._share()

    def on_descendant_focus(self) -> None:
        """The focused table gets the room, and the detail line is about its row."""
        if self.frame is not None:
            self._share()
            self._show_detail()

    @on(MetricTable.Opened)
    def _open_row(self, event: MetricTable.Opened) -> None:
        self.gpumon.show_details(self.host, str(event.table.id), event.key)

    def action_next_table(self) -> None:
        """To the next table."""
        self._step_table(1)

    def action_previous_table(self) -> None:
        """To the previous table."""
        self._step_table(-1)

    def _step_table(self, step: int) -> None:
        tables = self._tables()
        at = tables.index(self.table)
        order = [tables[(at + step * n) % len(tables)] for n in range(1, len(tables))]
        target = next((table for table in order if table.shown_rows), order[0])
        target.focus()

    def action_step_host(self, step: int) -> None:
        """To the previous or next host of the inventory."""
        if self.frame is None or not self.frame.views:
            return
        names = [view.host for view in self.frame.views]
        at = names.index(self.host) if self.host in names else 0
        self.host = names[(at + step) % len(names)]
        for table in self._tables():
            table.forget()
        self._fresh = True
        self.gpumon.show_latest()

    def action_back(self) -> None:
        """Clear the filter where there is one, else back to the fleet."""
        if self.table.filter_text or self.query_one("#filter").has_class("-open"):
            self.action_clear_filter()
        else:
            self.dismiss()

    def action_fix(self) -> None:
        """Why this host fails, and what mends it."""
        self.gpumon.show_fix(self.host)

    async def action_retry(self) -> None:
        """Try this host again."""
        await self.gpumon.retry(self.host)

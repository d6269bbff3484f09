"""A screen of text to scroll in: the help, a host's fix, the details of a row."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.containers import VerticalScroll

from gpumon.tui.actions import Scope, bindings
from gpumon.tui.tones import Line, Span, Tone
from gpumon.tui.widgets.drawing import wrapped
from gpumon.tui.widgets.key_line import KeyLine
from gpumon.tui.widgets.lean import LeanScreen
from gpumon.tui.widgets.pane import Pane

__all__ = ["PageScreen"]


class PageScreen(LeanScreen):
    """Lines under a title. Esc or Enter leaves it."""

    BINDINGS = bindings(Scope.PAGE)

    def __init__(self, title: str, lines: Sequence[Line], *, copies: str | None = None) -> None:
        super().__init__()
        self._title = title
        self._lines = list(lines)
        #: what ``y`` copies
        self._copies = copies

    def compose(self) -> ComposeResult:
        """Title, text, keys."""
        yield Pane(id="top")
        with VerticalScroll(id="page"):
            yield Pane(id="text")
        yield KeyLine((Scope.PAGE, Scope.EVERYWHERE), id="keys")

    def on_mount(self) -> None:
        """Fill it."""
        title = (Span(" gpumon", Tone.TITLE), Span(" › ", Tone.DIM), Span(self._title, Tone.STRONG))
        self.query_one("#top", Pane).show([Line(title)])
        self.fill()

    def fill(self) -> None:
        """Show the lines, at the present width."""
        text = self.query_one("#text", Pane)
        # A cell for the bar that shows how far one has scrolled.
        width = self.size.width - 1
        text.show([part for line in self.lines(width) for part in wrapped(line, width)])
        text.styles.height = len(text.lines)

    def lines(self, width: int) -> Sequence[Line]:
        """The text for a width."""
        return self._lines

    def on_resize(self) -> None:
        """Another width may need another layout."""
        if self.is_mounted:
            self.fill()

    @property
    def _page(self) -> VerticalScroll:
        return self.query_one("#page", VerticalScroll)

    def action_back(self) -> None:
        """Leave."""
        self.dismiss()

    def action_scroll_up(self) -> None:
        """One line up."""
        self._page.scroll_up(animate=False)

    def action_scroll_down(self) -> None:
        """One line down."""
        self._page.scroll_down(animate=False)

    def action_page_up(self) -> None:
        """One page up."""
        self._page.scroll_page_up(animate=False)

    def action_page_down(self) -> None:
        """One page down."""
        self._page.scroll_page_down(animate=False)

    def action_copy(self) -> None:
        """To the terminal's clipboard (OSC 52, where the terminal allows it)."""
        if self._copies:
            self.app.copy_to_clipboard(self._copies)
            self.app.notify("copied, where the terminal allows it", timeout=3)

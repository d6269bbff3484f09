"""A pane of plain lines: headers, banners, troubles, the detail line."""

from __future__ import annotations

from collections.abc import Sequence

from textual.geometry import Size

from gpumon.tui.tones import Line, Span
from gpumon.tui.widgets.drawing import line_spans
from gpumon.tui.widgets.painted import Painted

__all__ = ["Pane"]


class Pane(Painted):
    """Shows the lines it was last given, as many as fit."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id, classes=classes)
        self._lines: tuple[Line, ...] = ()

    @property
    def lines(self) -> tuple[Line, ...]:
        """What the pane shows."""
        return self._lines

    def show(self, lines: Sequence[Line]) -> None:
        """Take new lines; only what differs is painted."""
        if tuple(lines) == self._lines:
            return
        taller = len(lines) != len(self._lines)
        self._lines = tuple(lines)
        if taller:
            self.refresh(layout=True)
            self._painted_for = None
        else:
            self.repaint()

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """As many lines as it was given."""
        return len(self._lines)

    def draw(self, width: int, height: int) -> Sequence[Sequence[tuple[Span, str]]]:
        """Each line cut or filled to the width."""
        return [[(span, "") for span in line_spans(line, width)] for line in self._lines[:height]]

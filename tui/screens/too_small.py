"""What is shown in a terminal too small for anything else."""

from __future__ import annotations

from textual.app import ComposeResult

from gpumon.tui.tones import Line, Span, Tone
from gpumon.tui.widgets.lean import LeanScreen
from gpumon.tui.widgets.pane import Pane

__all__ = ["LEAST_HEIGHT", "LEAST_WIDTH", "TooSmallScreen", "is_too_small", "size_message"]

LEAST_WIDTH = 60
LEAST_HEIGHT = 15


def is_too_small(width: int, height: int) -> bool:
    """True where the screens would be cut."""
    return width < LEAST_WIDTH or height < LEAST_HEIGHT


def size_message(width: int, height: int) -> str:
    """One line naming the needed and the present size, the longest that fits."""
    need, have = f"{LEAST_WIDTH}x{LEAST_HEIGHT}", f"{width}x{height}"
    texts = (
        f"gpumon needs a terminal of {need}; this one is {have}",
        f"gpumon needs {need}, has {have}",
        f"needs {need}, has {have}",
        f"{need}, not {have}",
        f"{need}>{have}",
    )
    return next((text for text in texts if len(text) <= width), texts[-1][:width])


class TooSmallScreen(LeanScreen):
    """One line."""

    def compose(self) -> ComposeResult:
        """The line."""
        yield Pane(id="message")

    def on_mount(self) -> None:
        """Fill it."""
        self.say(*self.app.size)

    def say(self, width: int, height: int) -> None:
        """Name the present size."""
        text = size_message(width, height)
        before = max(0, (width - len(text)) // 2)
        self.query_one("#message", Pane).show([Line((Span(" " * before), Span(text, Tone.STRONG)))])

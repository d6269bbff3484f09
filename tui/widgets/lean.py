"""Screen updates that send a changed cell and not the line up to it.

Textual 8.2 writes each dirty span from the left edge of its widget
(``ChopsUpdate.render_segments`` crops the right side only), so one changed figure at
the right end of a line costs the whole line. Here both sides are cropped.
"""

from __future__ import annotations

from rich.console import Console
from rich.control import Control
from textual._compositor import ChopsUpdate, Compositor
from textual.screen import Screen

__all__ = ["LeanScreen"]


class _LeanUpdate(ChopsUpdate):
    def render_segments(self, console: Console) -> str:
        """Cursor moves and text for the dirty spans alone."""
        written: list[str] = []
        for y, first, last in self.spans:
            for end, (x, strip) in zip(self.chop_ends[y], self.chops[y].items(), strict=False):
                if strip is None or x >= last or end <= first:
                    continue
                start, stop = max(x, first), min(end, last)
                written.append(Control.move_to(start, y).segment.text)
                written.append(strip.crop(start - x, stop - x).render(console))
        return "".join(written)


class _LeanCompositor(Compositor):
    def render_partial_update(self) -> ChopsUpdate | None:
        """As the base class, with the update that crops."""
        update = super().render_partial_update()
        if update is None:
            return None
        return _LeanUpdate(update.chops, update.spans, update.chop_ends)


class LeanScreen(Screen[None]):
    """A screen whose updates are as small as the change."""

    def __init__(self) -> None:
        super().__init__()
        self._compositor = _LeanCompositor()

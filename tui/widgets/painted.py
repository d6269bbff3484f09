"""A widget that knows what it last drew and repaints only what differs.

Textual sends dirty regions, never a difference of cells, so a widget that calls plain
``refresh()`` pays for every cell each second. Here the new strips are compared with
the ones on the screen and only runs of changed cells are marked dirty.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from gpumon.tui.tones import Span, Tone

__all__ = ["Painted", "changed_runs"]

#: Changed cells this near are sent as one run: a cursor move costs as much.
_JOIN_WITHIN = 6


def changed_runs(old: Strip, new: Strip) -> list[tuple[int, int]]:
    """Runs of cells (first, one past the last) in which two lines differ."""
    if old == new:
        return []
    if old.cell_length != new.cell_length:
        return [(0, max(old.cell_length, new.cell_length))]
    before, after = _cells_of(old), _cells_of(new)
    if before is None or after is None:
        return [(0, new.cell_length)]
    runs: list[tuple[int, int]] = []
    for x, (one, other) in enumerate(zip(before, after, strict=True)):
        if one == other:
            continue
        if runs and x - runs[-1][1] < _JOIN_WITHIN:
            runs[-1] = (runs[-1][0], x + 1)
        else:
            runs.append((x, x + 1))
    return runs


def _cells_of(strip: Strip) -> list[tuple[str, Style | None]] | None:
    """Character and style of each cell; None where a character is not one cell wide."""
    cells = [(character, segment.style) for segment in strip for character in segment.text]
    return cells if len(cells) == strip.cell_length else None


class Painted(Widget):
    """Base of panes and tables: subclasses draw whole lines, changes find themselves."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        *(f"tone--{tone.value}" for tone in Tone),
        "tone--selected",
        "tone--chosen",
    }
    ALLOW_SELECT = False

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id, classes=classes)
        self._painted: list[Strip] = []
        self._painted_for: object = None
        self._styles_of: dict[tuple[Tone, str], Style] = {}

    def draw(self, width: int, height: int) -> Sequence[Sequence[tuple[Span, str]]]:
        """Lines of ``width`` cells: spans, each with the name of its ground ('' = none)."""
        raise NotImplementedError

    def repaint(self) -> None:
        """Draw anew and mark as dirty what differs from the screen."""
        if not self.is_mounted:
            return
        if self._painted_for != self._situation():
            self.refresh()
            return
        old, self._painted = self._painted, self._strips()
        regions = [
            Region(start, y, end - start, 1)
            for y, (before, after) in enumerate(zip(old, self._painted, strict=True))
            for start, end in changed_runs(before, after)
        ]
        if regions:
            self.refresh(*regions)

    def render_line(self, y: int) -> Strip:
        """The line at ``y`` of the visible part."""
        situation = self._situation()
        if situation != self._painted_for:
            self._painted = self._strips()
            self._painted_for = situation
        if y < len(self._painted):
            return self._painted[y]
        return Strip.blank(self.size.width, self.rich_style)

    def notify_style_update(self) -> None:
        """Forget colours when the theme changes."""
        super().notify_style_update()
        self._styles_of.clear()
        self._painted_for = None

    def _situation(self) -> object:
        """What a painting is good for: another size or scroll position needs another."""
        return (self.size, self.scroll_offset, self.has_focus)

    def _strips(self) -> list[Strip]:
        width, height = self.size
        lines = self.draw(width, height)
        strips = [self._strip(line, width) for line in lines[:height]]
        blank = Strip.blank(width, self.rich_style)
        return strips + [blank] * (height - len(strips))

    def _strip(self, line: Iterable[tuple[Span, str]], width: int) -> Strip:
        segments: list[Segment] = []
        for span, ground in line:
            if not span.text:
                continue
            style = self._style(span.tone, ground)
            if segments and segments[-1].style == style:
                segments[-1] = Segment(segments[-1].text + span.text, style)
            else:
                segments.append(Segment(span.text, style))
        return Strip(segments).adjust_cell_length(width, self.rich_style)

    def _style(self, tone: Tone, ground: str) -> Style:
        key = (tone, ground)
        style = self._styles_of.get(key)
        if style is None:
            style = self.rich_style
            if ground:
                under = self.get_component_rich_style(f"tone--{ground}", partial=True)
                # Reverse video would turn a bar into its opposite.
                if not (under.reverse and tone in (Tone.BAR, Tone.REST)):
                    style += under
            if tone is not Tone.NORMAL:
                style += self.get_component_rich_style(f"tone--{tone.value}", partial=True)
            self._styles_of[key] = style
        return style

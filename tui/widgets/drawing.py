"""Cells, bars and lines as runs of text, measured in terminal cells."""

from __future__ import annotations

import os
from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size

from gpumon.tui.glyphs import glyphs_for
from gpumon.tui.rows.cell import Cell
from gpumon.tui.tones import Line, Span, Tone
from gpumon.tui.widgets.columns import Column

__all__ = ["bar_spans", "cell_spans", "fit", "level_spans", "line_spans", "wrapped"]

_GLYPHS = glyphs_for(os.environ)
#: a bar of fewer cells says nothing
_BAR_LEAST = 3
#: one GPU's utilisation is one glyph, up to this many side by side
_LEVELS_MOST = 8


def fit(text: str, width: int, right: bool = False) -> str:
    """Text in exactly ``width`` cells; what is too long ends in an ellipsis."""
    used = cell_len(text)
    if used > width:
        if width <= 1:
            return "…"[:width]
        return set_cell_size(text, width - 1) + "…"
    return " " * (width - used) + text if right else text + " " * (width - used)


def bar_spans(share: float, width: int) -> tuple[Span, Span]:
    """A bar and its empty rest; a little never looks empty, nor almost all full."""
    share = min(max(share, 0.0), 1.0)
    steps = len(_GLYPHS.parts) + 1
    filled = round(share * width * steps)
    if share > 0:
        filled = max(filled, 1)
    if share < 1:
        filled = min(filled, width * steps - 1)
    whole, part = divmod(filled, steps)
    text = _GLYPHS.full * whole + (_GLYPHS.parts[part - 1] if part else "")
    return Span(text, Tone.BAR), Span(_GLYPHS.rest * (width - len(text)), Tone.REST)


def level_spans(levels: Sequence[float | str], width: int) -> list[Span]:
    """One glyph a GPU; where there are more GPUs than cells, the worst of each group."""
    groups = max(0, min(width, _LEVELS_MOST, len(levels)))
    spans: list[Span] = []
    for group in range(groups):
        part = levels[group * len(levels) // groups : (group + 1) * len(levels) // groups]
        letters = [level for level in part if isinstance(level, str)]
        numbers = [level for level in part if not isinstance(level, str)]
        if "X" in letters:
            glyph, tone = "X", Tone.WARN
        elif not numbers:
            glyph, tone = letters[0], Tone.UNKNOWN
        else:
            share = min(max(*numbers, 0.0), 1.0)
            glyph, tone = _level(share), Tone.BAR
        if spans and spans[-1].tone is tone:
            spans[-1] = Span(spans[-1].text + glyph, tone)
        else:
            spans.append(Span(glyph, tone))
    return spans


def _level(share: float) -> str:
    return _GLYPHS.levels[round(share * (len(_GLYPHS.levels) - 1))]


def cell_spans(cell: Cell, column: Column, width: int) -> list[Span]:
    """The cell in exactly ``width`` cells."""
    if column.content.is_bar:
        return _bar_cell(cell, column, width)
    spans: list[Span] = []
    if cell.lead:
        lead = fit(cell.lead, min(cell_len(cell.lead), width - 1))
        spans += [Span(lead, cell.lead_tone), Span(" ")]
        width -= cell_len(lead) + 1
    if width <= 0:
        return spans
    text = cell.text
    for shorter in cell.shorter:
        if cell_len(text) <= width:
            break
        text = shorter
    right = column.content.is_right
    padded = fit(text, width, right)
    if cell.tone is Tone.CRIT and cell_len(text) < width:
        # Reverse video only under the word itself.
        blank = Span(" " * (width - cell_len(text)))
        word = Span(text, cell.tone)
        return [*spans, *((blank, word) if right else (word, blank))]
    spans.append(Span(padded, cell.tone))
    return spans


def _bar_cell(cell: Cell, column: Column, width: int) -> list[Span]:
    figure = min(width, max(column.figure_width, cell_len(cell.text)))
    room = width - figure
    spans: list[Span] = []
    if cell.lead and room > len(cell.lead):
        spans += [Span(cell.lead, cell.lead_tone), Span(" ")]
        room -= len(cell.lead) + 1
    if cell.levels and room >= 2:
        glyphs = level_spans(cell.levels, room - 1)
        spans += glyphs
        room -= sum(len(glyph.text) for glyph in glyphs)
    elif cell.bar is not None and room > _BAR_LEAST:
        spans.extend(bar_spans(cell.bar, room - 1))
        room = 1
    spans.append(Span(" " * room + fit(cell.text, figure, right=True), cell.tone))
    return spans


def line_spans(line: Line, width: int) -> list[Span]:
    """A pane's line in exactly ``width`` cells; the right part stays, the left is cut."""
    right_width = sum(cell_len(span.text) for span in line.right)
    if right_width > width:
        return _cut(line.right, width)
    left_width = sum(cell_len(span.text) for span in line.left)
    room = width - right_width
    gap = 1 if line.right and line.left and room > 0 else 0
    if left_width + gap > room:
        return [*_cut(line.left, room - gap), Span(" " * gap), *line.right]
    filled = Span((line.fill.text * (room - left_width))[: room - left_width], line.fill.tone)
    return [*line.left, filled, *line.right]


def _cut(spans: Sequence[Span], width: int) -> list[Span]:
    kept: list[Span] = []
    room = width
    for span in spans:
        used = cell_len(span.text)
        if used > room:
            kept.append(Span(fit(span.text, room), span.tone))
            return kept
        kept.append(span)
        room -= used
    kept.append(Span(" " * room))
    return kept


def wrapped(line: Line, width: int) -> list[Line]:
    """A line of the left part alone, continued below its second span where it is long."""
    if sum(cell_len(span.text) for span in line.left) <= width:
        return [line]
    hang = cell_len(line.left[0].text) if len(line.left) > 1 else 1
    hang = hang if hang < width - 10 else 1
    lines: list[list[Span]] = [[]]
    room = width
    for span in line.left:
        text = span.text
        while cell_len(text) > room:
            head = set_cell_size(text, room)
            if not text.startswith(head):
                # Half of a wide character was replaced by a blank.
                head = head[:-1]
            # At a space where there is one; a command is broken anywhere.
            cut = head.rstrip().rfind(" ") + 1 or len(head)
            lines[-1].append(Span(text[:cut], span.tone))
            text = text[cut:]
            lines.append([Span(" " * hang)])
            room = width - hang
        lines[-1].append(Span(text, span.tone))
        room -= cell_len(text)
    return [Line(tuple(spans)) for spans in lines]

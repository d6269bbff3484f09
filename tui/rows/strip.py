"""The troubles below the tables, the worst first."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size

from gpumon.text import safe
from gpumon.tui.format import duration
from gpumon.tui.rows.troubles import Trouble
from gpumon.tui.tones import Line, Span, Tone, tone_of
from gpumon.tui.widgets.drawing import fit

__all__ = ["strip_lines"]

_HOST_WIDTH = 20
#: a trouble younger than this has just been seen
_NEW_S = 5


def strip_lines(
    found: Sequence[Trouble], now: float, *, most: int, width: int, hosts: bool = True
) -> list[Line]:
    """A line for each trouble; two where its text is long and there is room for both.

    Where not all fit, the last line says how many more there are. ``hosts`` names the
    host on each.
    """
    name_width = max((cell_len(safe(t.host, _HOST_WIDTH)) for t in found), default=0)
    indent = 3 + (name_width + 2 if hosts else 0)
    room = width - indent - 9
    parts = [_halves(trouble.text, room) for trouble in found]
    if sum(map(len, parts)) > most:
        parts = [[trouble.text] for trouble in found]
    kept = found if len(found) <= most else found[: max(0, most - 1)]
    lines: list[Line] = []
    for trouble, texts in zip(kept, parts, strict=False):
        since = "" if trouble.since is None else _since(now - trouble.since)
        glyph = Span(trouble.severity.glyph, tone_of(trouble.severity))
        name = f" {fit(safe(trouble.host, _HOST_WIDTH), name_width)}  " if hosts else " "
        left = (Span(" "), glyph, Span(name, Tone.STRONG), Span(texts[0]))
        lines.append(Line(left, (Span(f"{since:>8} ", Tone.DIM),)))
        lines += [Line((Span(" " * indent), Span(text))) for text in texts[1:]]
    if most == 1 and len(found) > 1:
        first = strip_lines(found[:1], now, most=1, width=width, hosts=hosts)[0]
        return [Line(first.left, (Span(f"+{len(found) - 1} more ", Tone.DIM),))]
    if len(kept) < len(found):
        more = f" … and {len(found) - len(kept)} more"
        lines.append(Line((Span(more, Tone.DIM),)))
    return lines


def _since(seconds: float) -> str:
    return "now" if seconds < _NEW_S else duration(seconds)


def _halves(text: str, room: int) -> list[str]:
    """The text, broken once at a space where it is too long."""
    if cell_len(text) <= room or room < 20:
        return [text]
    head = set_cell_size(text, room).rpartition(" ")[0]
    return [head, text[len(head) :].lstrip()] if head else [text]

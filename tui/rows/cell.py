"""One figure of a table, and one row of figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gpumon.tui.format import reason_of
from gpumon.tui.tones import Span, Tone

__all__ = ["ABSENT", "Cell", "Row", "figure", "unknown"]


@dataclass(frozen=True, slots=True)
class Cell:
    """Text for one column. The column decides alignment and width."""

    text: str = ""
    tone: Tone = Tone.NORMAL
    #: what the column sorts by; None sorts last, whichever way
    sort: float | str | None = None
    #: why the value is unknown: a reason code
    reason: str | None = None
    #: drawn before the text: a severity glyph, "cpu", "RAM"
    lead: str = ""
    lead_tone: Tone = Tone.DIM
    #: filled share of the bar that takes the room left of the text
    bar: float | None = None
    #: instead of a bar: one glyph each, a share of 0..1 or a letter as it is
    levels: tuple[float | str, ...] = ()
    #: texts to take instead, longest first, where the room is less
    shorter: tuple[str, ...] = ()
    #: drawn dim, for its reading is old
    faded: bool = False


#: a figure that does not apply here
ABSENT = Cell("-", Tone.DIM)


@dataclass(frozen=True, slots=True)
class Row:
    """One keyed row. ``cells`` stand in the order of the table's columns."""

    key: str
    cells: tuple[Cell, ...]
    #: key of the row it belongs under (a MIG slice under its card)
    parent: str | None = None
    #: every value is old
    faded: bool = False
    #: from this cell on the row is one text, for the figures are not there
    note_at: int | None = None
    note: tuple[Span, ...] = ()
    #: words the filter finds besides what is shown
    words: str = ""
    #: a remark for the detail line, when the row is selected
    remark: str = ""


def unknown(reason: str | None) -> Cell:
    """``n/a``, with the reason that the detail line tells."""
    return Cell("n/a", Tone.UNKNOWN, reason=reason or "no-reading")


def figure(
    value: float | None,
    text: str,
    field: str,
    reasons: Mapping[str, str],
    tone: Tone = Tone.NORMAL,
) -> Cell:
    """The text of a known value, else ``n/a`` with the field's reason."""
    if value is None:
        return unknown(reason_of(reasons, field))
    return Cell(text, tone, sort=value)

"""What a piece of text means, so that a theme can say how it looks."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Line", "Severity", "Span", "Tone", "tone_of"]


class Tone(StrEnum):
    """A meaning with a look in every theme (``themes/gpumon.tcss``)."""

    NORMAL = "normal"
    #: units, old values, what is not urgent
    DIM = "dim"
    STRONG = "strong"
    #: the name of the program, the host, the table
    TITLE = "title"
    #: column headers
    HEAD = "head"
    SORTED = "sorted"
    #: the filled and the empty part of a bar
    BAR = "bar"
    REST = "rest"
    WARN = "warn"
    CRIT = "crit"
    UNKNOWN = "unknown"
    #: keys in footer and help
    KEY = "key"
    RULE = "rule"
    BADGE = "badge"


class Severity(StrEnum):
    """How bad: a glyph, a word and a tone, never a colour alone."""

    OK = "ok"
    UNKNOWN = "unknown"
    WARN = "warn"
    CRIT = "crit"

    @property
    def glyph(self) -> str:
        """One cell: ``·`` ok, ``!`` warn, ``X`` crit, ``?`` unknown."""
        return _GLYPHS[self]

    @property
    def rank(self) -> int:
        """0 for ok up to 3 for crit: what is worst sorts first when descending."""
        return _RANKS[self]


_GLYPHS = {Severity.OK: "·", Severity.UNKNOWN: "?", Severity.WARN: "!", Severity.CRIT: "X"}
_RANKS = {Severity.OK: 0, Severity.UNKNOWN: 1, Severity.WARN: 2, Severity.CRIT: 3}
_TONES = {
    Severity.OK: Tone.DIM,
    Severity.UNKNOWN: Tone.UNKNOWN,
    Severity.WARN: Tone.WARN,
    Severity.CRIT: Tone.CRIT,
}


def tone_of(severity: Severity) -> Tone:
    """The tone a severity is drawn in."""
    return _TONES[severity]


@dataclass(frozen=True, slots=True)
class Span:
    """A run of already safe text in one tone."""

    text: str
    tone: Tone = Tone.NORMAL


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a pane: spans from the left, and spans held at the right edge.

    Where both do not fit, the left part gives way. ``fill`` is repeated between them.
    """

    left: tuple[Span, ...] = ()
    right: tuple[Span, ...] = ()
    fill: Span = Span(" ")

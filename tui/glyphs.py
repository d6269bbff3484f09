"""Block characters, and plain ones for terminals whose fonts lack them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["BLOCKS", "PLAIN", "Glyphs", "glyphs_for"]


@dataclass(frozen=True, slots=True)
class Glyphs:
    """What bars are drawn with."""

    #: a whole cell of a bar
    full: str
    #: parts of a cell, from the least to the greatest; none where there are none
    parts: str
    #: an empty cell of a bar
    rest: str
    #: levels from idle to busy, one cell each
    levels: str


#: Seven eighths at most, so that levels of two lines do not run into each other.
BLOCKS = Glyphs("█", "▏▎▍▌▋▊▉", "·", "▁▂▃▄▅▆▇")
PLAIN = Glyphs("#", "", ".", "_.-=+*#")

#: The Linux console has 512 glyphs at most, and hardly ever eighths of a block.
_PLAIN_TERMINALS = frozenset({"linux", "dumb", "vt100", "vt220", "ansi"})


def glyphs_for(environ: Mapping[str, str]) -> Glyphs:
    """The glyphs a terminal can show, by its ``TERM``."""
    return PLAIN if environ.get("TERM") in _PLAIN_TERMINALS else BLOCKS

"""Text that came from a host, made fit for a terminal.

Names of models, GPUs, processes and error texts are whatever a host says. They stay
raw in the records; whoever shows them calls ``safe``. What could move the cursor,
change colours, hide or reorder its neighbours becomes a visible escape.
"""

from __future__ import annotations

import unicodedata

__all__ = ["cells", "safe"]

#: Printable for Python, yet nothing to see, or of a width terminals disagree on:
#: Hangul fillers and conjoining jamo, and the Braille blank.
_BLANK = frozenset([0x115F, 0x2800, 0x3164, 0xFFA0, *range(0x1160, 0x1200)])
#: Variation selectors change the width of the character before them.
_SELECTORS = frozenset([*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)])
#: More marks than this on one letter climb into the lines above and below.
_MARKS_MOST = 2


def cells(text: str) -> int:
    """Terminal cells that already safe text takes: 2 for East Asian wide characters."""
    if text.isascii():
        return len(text)
    return sum(_width(character) for character in text)


def safe(text: str, limit: int | None = None) -> str:
    r"""Text with everything unsafe as ``\x1b`` or ``\u202e``, at most ``limit`` cells.

    Replaced are control characters, bidirectional controls, zero-width and unassigned
    characters, lone surrogates (names that were not UTF-8), odd spaces, and combining
    marks beyond two on a letter. A text that was cut ends in an ellipsis.
    """
    if text.isascii() and text.isprintable():
        if limit is None or len(text) <= limit:
            return text
        return text[: limit - 1] + "…" if limit > 0 else ""
    pieces: list[tuple[str, int]] = []
    used = 0
    marks = 0
    for character in text:
        if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me"):
            marks += 1
        else:
            marks = 0
        piece = character if _is_plain(character, marks, bool(pieces)) else _escape(character)
        width = cells(piece)
        pieces.append((piece, width))
        used += width
        if limit is not None and used > limit:
            return _cut(pieces, limit)
    return "".join(piece for piece, _ in pieces)


def _cut(pieces: list[tuple[str, int]], limit: int) -> str:
    """The pieces that leave one cell for the ellipsis."""
    kept: list[str] = []
    room = limit - 1
    for piece, width in pieces:
        if width > room:
            break
        kept.append(piece)
        room -= width
    return "".join(kept) + "…" if limit > 0 else ""


def _is_plain(character: str, marks: int, has_base: bool) -> bool:
    code = ord(character)
    if not character.isprintable() or code in _BLANK or code in _SELECTORS:
        return False
    return marks == 0 or (has_base and marks <= _MARKS_MOST)


def _escape(character: str) -> str:
    code = ord(character)
    if code < 0x100:
        return {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(character, f"\\x{code:02x}")
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _width(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1

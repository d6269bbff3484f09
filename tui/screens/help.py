"""The help, made from the action table."""

from __future__ import annotations

import os
from collections.abc import Sequence

from rich.cells import cell_len

from gpumon.tui.actions import Action, Scope, actions_in, key_label
from gpumon.tui.glyphs import glyphs_for
from gpumon.tui.screens.page import PageScreen
from gpumon.tui.tones import Line, Severity, Span, Tone, tone_of
from gpumon.tui.widgets.drawing import fit

__all__ = ["HelpScreen", "help_lines"]

_KEYS_WIDTH = 9
#: at and above this width the help stands in two columns
_TWO_COLUMNS_FROM = 76

_G = glyphs_for(os.environ)

_LEGEND: tuple[tuple[str, str], ...] = (
    ("UTIL", f"one glyph a GPU, {_G.levels[0]} idle to {_G.levels[-1]} busy; X lost, ? unknown"),
    ("n/a", "unknown; the line above the keys says why"),
    ("≥", "a sum of the known parts, some are unknown"),
    ("AGE", "since the last sample; dim after 2 intervals, STALE after 3"),
    (f"{_G.full * 2}{_G.rest * 2}", "used of total: VRAM, or RAM without a GPU"),
)


class HelpScreen(PageScreen):
    """Keys and signs."""

    def __init__(self) -> None:
        super().__init__("help", ())

    def lines(self, width: int) -> Sequence[Line]:
        """In one or two columns."""
        return help_lines(width)


def help_lines(width: int) -> list[Line]:
    """Every action of the table with its keys, then what the signs mean."""
    two = width >= _TWO_COLUMNS_FROM
    half = min((width - 2) // 2, 50) if two else width - 2
    left = [*_section(Scope.TABLE, half), *_section(Scope.PAGE, half)]
    right: list[Line] = []
    for scope in (Scope.EVERYWHERE, Scope.FLEET, Scope.HOST):
        right += _section(scope, half)
    lines = _beside(left, right, half) if two else left + right
    return [*lines, *_signs()]


def _section(scope: Scope, width: int) -> list[Line]:
    lines = [Line((Span(f" {scope.value}", Tone.TITLE),))]
    for action in actions_in(scope):
        keys = fit(_keys(action), max(_KEYS_WIDTH, cell_len(_keys(action))))
        text = fit(action.text, width - 3 - cell_len(keys))
        lines.append(Line((Span(f" {keys} ", Tone.KEY), Span(text))))
    return lines


def _keys(action: Action) -> str:
    return " ".join(key_label(key) for key in action.keys)


def _beside(left: Sequence[Line], right: Sequence[Line], half: int) -> list[Line]:
    lines = []
    for row in range(max(len(left), len(right))):
        one = left[row].left if row < len(left) else ()
        other = right[row].left if row < len(right) else ()
        used = sum(cell_len(span.text) for span in one)
        lines.append(Line((*one, Span(" " * (half + 1 - used)), *other)))
    return lines


def _signs() -> list[Line]:
    spans: list[Span] = [Span(" ")]
    for severity in (Severity.OK, Severity.WARN, Severity.CRIT, Severity.UNKNOWN):
        spans += [Span(severity.glyph, tone_of(severity)), Span(f" {severity.value}   ")]
    lines = [Line((Span(" signs", Tone.TITLE),)), Line(tuple(spans))]
    for sign, meaning in _LEGEND:
        lines.append(Line((Span(f" {fit(sign, _KEYS_WIDTH)} ", Tone.KEY), Span(meaning))))
    said = " gpumon only reads: no key changes anything on a host."
    return [*lines, Line((Span(said, Tone.DIM),))]

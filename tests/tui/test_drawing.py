"""Bars, levels and lines in exactly the cells they have."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from gpumon.tui.glyphs import BLOCKS, PLAIN, glyphs_for
from gpumon.tui.rows.cell import Cell
from gpumon.tui.tones import Line, Span, Tone
from gpumon.tui.widgets.columns import Column, Content
from gpumon.tui.widgets.drawing import (
    bar_spans,
    cell_spans,
    fit,
    level_spans,
    line_spans,
    wrapped,
)
from gpumon.tui.widgets.sharing import share_lines

TEXTS = st.text(st.sampled_from("abc 模…é"), max_size=40)


def plain(spans: list[Span]) -> str:
    return "".join(span.text for span in spans)


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.0, "····"), (0.001, "▏···"), (0.5, "██··"), (0.53, "██▏·"), (0.999, "███▉"), (1.0, "████"),
     (1.7, "████"), (-1.0, "····")],
)  # fmt: skip
def test_a_bar_never_hides_a_little_nor_a_remainder(share: float, text: str) -> None:
    assert plain(list(bar_spans(share, 4))) == text


def test_levels_stand_for_gpus_and_the_worst_of_a_group_wins() -> None:
    assert plain(level_spans((0.0, 1.0, "X", "?"), 8)) == "▁▇X?"
    assert plain(level_spans((0.0, 1.0, "?", 0.5), 2)) == "▇▄"
    assert plain(level_spans(("?", "?", "X", 0.5), 2)) == "?X"
    assert [span.tone for span in level_spans((0.5, "X"), 8)] == [Tone.BAR, Tone.WARN]
    assert level_spans((0.5,), 0) == []


def test_a_number_is_never_cut_for_a_bar() -> None:
    column = Column("v", "V", Content.BAR_PAIR, figure=8)
    cell = Cell("1368/2560", bar=0.5)
    assert plain(cell_spans(cell, column, 14)) == "██·· 1368/2560"
    assert plain(cell_spans(cell, column, 10)) == " 1368/2560"


def test_a_shorter_text_is_taken_before_one_is_cut() -> None:
    column = Column("m", "M", Content.TEXT)
    cell = Cell("three long names", shorter=("two names +1", "3"))
    assert plain(cell_spans(cell, column, 13)) == "two names +1 "
    assert plain(cell_spans(cell, column, 4)) == "3   "
    assert plain(cell_spans(Cell("abcdef"), column, 4)) == "abc…"


@given(
    st.builds(Cell, text=TEXTS, lead=st.sampled_from(["", "X", "DOWN now"]),
              bar=st.none() | st.floats(-1, 2), levels=st.just(()) | st.just((0.1, "X"))),
    st.sampled_from(list(Content)),
    st.integers(1, 60),
)  # fmt: skip
def test_a_cell_fills_its_width(cell: Cell, content: Content, width: int) -> None:
    assert cell_len(plain(cell_spans(cell, Column("c", "C", content), width))) == width


@given(st.lists(TEXTS, max_size=4), st.lists(TEXTS, max_size=2), st.integers(1, 60))
def test_a_line_fills_its_width(left: list[str], right: list[str], width: int) -> None:
    line = Line(tuple(map(Span, left)), tuple(map(Span, right)))
    assert cell_len(plain(line_spans(line, width))) == width


@given(TEXTS, st.integers(0, 50), st.booleans())
def test_fit_fits(text: str, width: int, right: bool) -> None:
    assert cell_len(fit(text, width, right)) == width


@given(TEXTS, st.integers(30, 60))
def test_wrapping_loses_nothing(text: str, width: int) -> None:
    line = Line((Span(" label "), Span(text * 5)))
    parts = wrapped(line, width)
    assert all(sum(cell_len(span.text) for span in part.left) <= width for part in parts)
    joined = "".join("".join(span.text for span in part.left) for part in parts)
    assert joined.replace(" ", "") == plain(list(line.left)).replace(" ", "")


def test_terminals_without_blocks_get_plain_characters() -> None:
    assert glyphs_for({"TERM": "linux"}) is PLAIN
    assert glyphs_for({"TERM": "xterm-256color"}) is glyphs_for({}) is BLOCKS
    assert replace(PLAIN, full="x") != PLAIN


# --- how tables share a screen --------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "room", "chosen", "given_lines"),
    [
        ((10, 5, 3, 9), 40, 0, [10, 5, 3, 22]),
        ((10, 5, 3, 9), 15, 0, [10, 3, 1, 1]),
        ((10, 5, 3, 9), 15, 3, [4, 1, 1, 9]),
        ((1, 3, 3, 1), 15, 1, [1, 3, 3, 8]),
        ((10, 5, 3, 9), 4, 0, [1, 1, 1, 1]),
    ],
)
def test_lines_are_shared(
    wanted: tuple[int, ...], room: int, chosen: int, given_lines: list[int]
) -> None:
    assert share_lines(wanted, room, chosen) == given_lines


@given(st.lists(st.integers(1, 80), min_size=4, max_size=4), st.integers(4, 100), st.integers(0, 3))
def test_shared_lines_add_up(wanted: list[int], room: int, chosen: int) -> None:
    given_lines = share_lines(wanted, room, chosen)
    assert sum(given_lines) == room
    assert min(given_lines) >= 1

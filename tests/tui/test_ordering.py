"""Which rows are shown, and in which order."""

from __future__ import annotations

from gpumon.tui.rows.cell import Cell, Row, unknown
from gpumon.tui.tones import Span
from gpumon.tui.widgets.ordering import matches, ordered


def row(key: str, value: float | str | None, parent: str | None = None, **more: object) -> Row:
    cell = unknown("lost") if value is None else Cell(str(value), sort=value)
    return Row(key, (Cell(key, sort=key), cell), parent=parent, **more)  # type: ignore[arg-type]


def keys(rows: list[Row]) -> list[str]:
    return [each.key for each in rows]


ROWS = [row("b", 2.0), row("a", None), row("c", 10.0), row("d", 2.0)]


def test_without_a_column_the_order_stays() -> None:
    assert keys(ordered(ROWS)) == ["b", "a", "c", "d"]


def test_unknown_comes_last_both_ways_and_equals_keep_their_order() -> None:
    assert keys(ordered(ROWS, column=1)) == ["b", "d", "c", "a"]
    assert keys(ordered(ROWS, column=1, descending=True)) == ["c", "b", "d", "a"]


def test_text_sorts_without_case() -> None:
    rows = [row("1", "beta"), row("2", "Alpha"), row("3", "gamma")]
    assert keys(ordered(rows, column=1)) == ["2", "1", "3"]


def test_children_stay_below_their_parent_and_sort_among_themselves() -> None:
    rows = [row("0", 5.0), row("0b", 1.0, "0"), row("0a", 3.0, "0"), row("1", 9.0)]
    assert keys(ordered(rows, column=1, descending=True)) == ["1", "0", "0a", "0b"]
    assert keys(ordered(rows, column=1)) == ["0", "0b", "0a", "1"]


def test_a_parent_stays_while_a_child_matches() -> None:
    rows = [row("0", 5.0), row("0b", "slice", "0"), row("1", 9.0)]
    assert keys(ordered(rows, wanted="slice")) == ["0", "0b"]


def test_a_child_without_its_parent_is_a_row() -> None:
    assert keys(ordered([row("x", 1.0, "gone")])) == ["x"]


def test_filter_looks_at_cells_words_and_notes_whatever_the_case() -> None:
    assert matches(row("Berlin", 1.0), "berl")
    assert matches(row("x", 1.0, words="tag-eu"), "TAG")
    assert matches(row("x", 1.0, note=(Span("key changed"),)), "changed")
    assert not matches(row("x", 1.0), "y")


def test_exclamation_mark_inverts_and_nothing_matches_all() -> None:
    assert not matches(row("Berlin", 1.0), "!berlin")
    assert matches(row("Paris", 1.0), "! berlin")
    assert matches(row("x", 1.0), "!")
    assert matches(row("x", 1.0), "  ")

"""The table on a screen: keys, mouse, selection, and how little it repaints."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
from rich.segment import Segment
from rich.style import Style
from textual.app import App, ComposeResult
from textual.geometry import Region
from textual.pilot import Pilot
from textual.strip import Strip

from gpumon.tui.rows.cell import Cell, Row
from gpumon.tui.themes import THEMES, defaults_for
from gpumon.tui.widgets.columns import Column, Content
from gpumon.tui.widgets.metric_table import MetricTable
from gpumon.tui.widgets.painted import changed_runs

COLUMNS = (
    Column("name", "NAME", Content.NAME),
    Column("util", "UTIL", Content.BAR_PERCENT),
    Column("watts", "W", Content.NUMBER),
)


def row(key: str, util: float, watts: float) -> Row:
    return Row(
        key,
        (
            Cell(key, sort=key),
            Cell(f"{util:.0f} %", sort=util, bar=util / 100),
            Cell(f"{watts:.0f}", sort=watts),
        ),
    )


def rows(count: int) -> list[Row]:
    return [row(f"r{number:02}", number % 101, 300 - number) for number in range(count)]


class TableApp(App[None]):
    CSS_PATH = "../../tui/themes/gpumon.tcss"

    def __init__(self) -> None:
        super().__init__()
        for theme in THEMES:
            self.register_theme(theme)
        self.theme = "ansi"
        self.heard: list[str] = []

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return defaults_for(self.current_theme)

    def compose(self) -> ComposeResult:
        yield MetricTable(COLUMNS, id="table")

    def on_metric_table_opened(self, event: MetricTable.Opened) -> None:
        self.heard.append(event.key)


@asynccontextmanager
async def table_of(
    given: Sequence[Row], size: tuple[int, int] = (60, 12)
) -> AsyncIterator[tuple[MetricTable, Pilot[None]]]:
    app = TableApp()
    async with app.run_test(size=size) as pilot:
        table = app.query_one(MetricTable)
        table.focus()
        table.show(given)
        await pilot.pause()
        yield table, pilot


def lines(table: MetricTable) -> list[str]:
    return [table.render_line(y).text for y in range(table.size.height)]


def selected(table: MetricTable) -> str:
    assert table.selected is not None
    return table.selected.key


async def test_keys_move_and_stop_at_the_ends() -> None:
    async with table_of(rows(40)) as (table, pilot):
        for keys, expected in (
            (["down", "j"], "r02"), (["up", "k", "k"], "r00"), (["pagedown"], "r11"),
            (["pagedown", "pageup"], "r11"), (["G"], "r39"), (["down"], "r39"), (["g"], "r00"),
            (["end"], "r39"), (["home"], "r00"),
        ):  # fmt: skip
            await pilot.press(*keys)
            assert selected(table) == expected


async def test_the_header_does_not_scroll_and_the_selection_stays_in_sight() -> None:
    async with table_of(rows(40)) as (table, pilot):
        await pilot.press("end")
        await pilot.pause()
        shown = lines(table)
        assert "NAME" in shown[0]
        assert "r39" in shown[-1]


async def test_selection_follows_its_key_through_sorting() -> None:
    async with table_of(rows(40)) as (table, pilot):
        await pilot.press("down", "down", "down")
        assert selected(table) == "r03"
        await pilot.press(">", ">", ">")
        assert table.sort_column == "watts"
        assert table.descending
        assert selected(table) == "r03"
        await pilot.press("r")
        assert not table.descending
        assert selected(table) == "r03"
        await pilot.pause()
        assert any("r03" in line for line in lines(table))


async def test_a_vanished_row_hands_the_selection_over_until_it_returns() -> None:
    given = rows(5)
    async with table_of(given) as (table, pilot):
        await pilot.press("down", "down")
        table.show([each for each in given if each.key != "r02"])
        assert selected(table) == "r03"
        table.show(given)
        assert selected(table) == "r02"
        table.show([each for each in given if each.key != "r02"])
        await pilot.press("down")
        table.show(given)
        assert selected(table) == "r04"


async def test_no_rows_and_rows_again() -> None:
    async with table_of([]) as (table, pilot):
        assert table.selected is None
        await pilot.press("down", "enter", ">")
        assert "nothing here" in lines(table)[0]
        table.show(rows(3))
        await pilot.pause()
        assert selected(table) == "r00"
        table.show([])
        await pilot.pause()
        assert table.selected is None


async def test_sorting_walks_the_columns_and_marks_the_header() -> None:
    async with table_of(rows(3)) as (table, pilot):
        seen = []
        for _ in range(4):
            await pilot.press(">")
            seen.append((table.sort_column, lines(table)[0].strip()))
        assert [column for column, _ in seen] == ["name", "util", "watts", None]
        assert "NAME▲" in seen[0][1]
        assert "UTIL▼" in seen[1][1]
        assert "▼W" in seen[2][1]
        assert "▼" not in seen[3][1]
        await pilot.press("<")
        assert table.sort_column == "watts"


async def test_filter_shows_how_many_of_how_many() -> None:
    async with table_of(rows(40)) as (table, _):
        table.filter_by("r1")
        assert len(table.shown_rows) == 10
        assert table.filter_note() == "/r1  10 of 40"
        table.filter_by("!r1")
        assert len(table.shown_rows) == 30
        table.filter_by("nowhere")
        assert "none of 40 matches" in lines(table)[0]
        table.filter_by("")
        assert len(table.shown_rows) == 40


async def test_mouse_selects_opens_and_sorts() -> None:
    async with table_of(rows(20)) as (table, pilot):
        await pilot.click(table, offset=(3, 4))
        assert selected(table) == "r03"
        await pilot.click(table, offset=(3, 5), times=2)
        assert pilot.app.heard == ["r04"]  # type: ignore[attr-defined]
        x = lines(table)[0].index("W")
        await pilot.click(table, offset=(x, 0))
        assert (table.sort_column, table.descending) == ("watts", True)
        await pilot.click(table, offset=(x, 0))
        assert not table.descending


async def test_the_wheel_scrolls_and_leaves_the_selection() -> None:
    async with table_of(rows(40)) as (table, pilot):
        table._on_mouse_scroll_down(_wheel(table))
        await pilot.pause()
        assert table.scroll_offset.y > 0
        assert selected(table) == "r00"


def _wheel(table: MetricTable) -> object:
    from textual.events import MouseScrollDown

    return MouseScrollDown(table, 1, 1, 0, 1, 0, False, False, False)


async def test_enter_opens_the_selected_row() -> None:
    async with table_of(rows(5)) as (_, pilot):
        await pilot.press("down", "enter")
        await pilot.pause()
        assert pilot.app.heard == ["r01"]  # type: ignore[attr-defined]


# --- how little is repainted ---------------------------------------------------


@pytest.fixture
def repainted(monkeypatch: pytest.MonkeyPatch) -> list[Region]:
    """Regions that tables ask to be repainted; a whole one counts as a screen."""
    asked: list[Region] = []
    original = MetricTable.refresh

    def spy(self: MetricTable, *regions: Region, **more: bool) -> MetricTable:
        asked.extend(regions or [self.size.region])
        return original(self, *regions, **more)

    monkeypatch.setattr(MetricTable, "refresh", spy)
    return asked


async def test_the_same_rows_repaint_nothing(repainted: list[Region]) -> None:
    async with table_of(rows(8)) as (table, pilot):
        await pilot.pause()
        repainted.clear()
        table.show(rows(8))
        assert repainted == []


async def test_one_changed_figure_repaints_its_digits_alone(repainted: list[Region]) -> None:
    given = rows(8)
    async with table_of(given) as (table, pilot):
        await pilot.pause()
        repainted.clear()
        given[3] = row("r03", 3, 291)  # it was 297
        table.show(given)
        (region,) = repainted
        assert (region.y, region.height) == (4, 1)
        assert region.width == 1
        assert region.x == lines(table)[4].index("291") + 2


async def test_moving_the_cursor_repaints_two_lines(repainted: list[Region]) -> None:
    async with table_of(rows(8)) as (_, pilot):
        await pilot.pause()
        repainted.clear()
        await pilot.press("down")
        assert {region.y for region in repainted} == {1, 2}


def strip(*parts: tuple[str, str]) -> Strip:
    return Strip([Segment(text, Style.parse(style)) for text, style in parts])


def test_changed_runs_join_what_is_near_and_see_styles() -> None:
    old = strip(("aaaaaaaaaaaaaaaaaaaa", "none"))
    assert changed_runs(old, strip(("aaaaaaaaaaaaaaaaaaaa", "none"))) == []
    assert changed_runs(old, strip(("abaacaaaaaaaaaaaaaad", "none"))) == [(1, 5), (19, 20)]
    assert changed_runs(old, strip(("aaa", "none"), ("aa", "bold"), ("a" * 15, "none"))) == [(3, 5)]


def test_lines_with_wide_characters_are_repainted_whole() -> None:
    assert changed_runs(strip(("模型 1", "none")), strip(("模型 2", "none"))) == [(0, 6)]

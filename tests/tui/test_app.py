"""The application over a fake feed: frames, pause, drill-down, filter, feed trouble."""

from __future__ import annotations

import unicodedata
from dataclasses import replace

import pytest

from gpumon.feed import FeedMode, FeedStatus
from gpumon.inventory import Inventory
from gpumon.snapshot import HostStatus
from gpumon.tui.app import GpumonApp
from gpumon.tui.screens.fleet import FleetScreen
from gpumon.tui.screens.help import HelpScreen
from gpumon.tui.screens.host import HostScreen
from gpumon.tui.screens.page import PageScreen
from gpumon.tui.screens.too_small import TooSmallScreen, size_message
from gpumon.tui.widgets.metric_table import MetricTable
from tests.tui import fleet_fixture as made
from tests.tui.fleet_fixture import FakeFeed
from tests.tui.screen_text import running, screen_lines, screen_text, tick


def line_with(app: GpumonApp, text: str) -> str:
    return next(line for line in screen_lines(app) if text in line)


# --- frames ------------------------------------------------------------------------


async def test_the_first_paint_shows_what_the_feed_has() -> None:
    stored = replace(made.eight_gpus(), stored=True, status=HostStatus())
    async with running(FakeFeed([stored])) as (app, _):
        assert "stored" in line_with(app, " berlin-1 ")
        assert "7" in line_with(app, " berlin-1 ")


async def test_ages_tick_when_nothing_arrives_until_the_host_is_stale() -> None:
    feed = FakeFeed([made.cpu_only()])
    async with running(feed) as (app, pilot):
        assert " 2s " in line_with(app, " cpu-vps ")
        feed.now += 2
        await tick(app, pilot)
        assert " 4s " in line_with(app, " cpu-vps ")
        feed.now += 40
        await tick(app, pilot)
        assert "STALE 44s" in line_with(app, " cpu-vps ")
        assert "14:02:49" in screen_lines(app)[0]


async def test_pause_holds_the_screen_and_tells_how_old_it_is() -> None:
    feed = FakeFeed([made.cpu_only()])
    async with running(feed) as (app, pilot):
        await pilot.press("space")
        assert "PAUSED 14:02:07" in screen_lines(app)[0]
        before = screen_text(app)
        feed.now += 50
        feed.hosts = [made.split()]
        await tick(app, pilot)
        assert screen_text(app) == before
        feed.now += 20
        await tick(app, pilot)
        assert "PAUSED 14:02:07, 1 min old" in screen_lines(app)[0]
        await pilot.press("space")
        await pilot.pause()
        assert "PAUSED" not in screen_text(app)
        assert "berlin-2" in screen_text(app)


async def test_hosts_may_come_and_go() -> None:
    feed = FakeFeed([])
    async with running(feed) as (app, pilot):
        assert "no hosts" in screen_text(app)
        feed.hosts = made.fleet()
        await tick(app, pilot)
        assert "berlin-1" in screen_text(app)
        await pilot.press("enter")
        feed.hosts = [made.cpu_only()]
        await tick(app, pilot)
        await pilot.press("]", "escape")
        await pilot.pause()
        assert isinstance(app.screen, FleetScreen)


async def test_trouble_has_the_time_it_was_first_seen() -> None:
    feed = FakeFeed([made.split()])
    async with running(feed) as (app, pilot):
        assert line_with(app, "shifted").endswith("now")
        feed.now += 720
        feed.hosts = [replace(made.split(), snapshot=replace(
            made.split().snapshot, received_at=feed.now))]  # type: ignore[type-var]  # fmt: skip
        await tick(app, pilot)
        assert line_with(app, "shifted").endswith("12 min")


# --- the feed ------------------------------------------------------------------------


async def test_a_viewer_says_whose_values_these_are() -> None:
    feed = FakeFeed(state=FeedStatus(FeedMode.VIEWER, collector_pid=4711))
    async with running(feed) as (app, _):
        assert "viewing pid 4711" in screen_lines(app)[0]


async def test_an_orphan_offers_to_take_over() -> None:
    feed = FakeFeed(state=FeedStatus(FeedMode.ORPHANED, collector_pid=4711))
    async with running(feed) as (app, pilot):
        assert "(pid 4711) has died" in screen_text(app)
        assert screen_lines(app)[-1].strip().startswith("t take over")
        await pilot.press("t")
        await pilot.pause()
        assert "ORPHANED" not in screen_text(app)
        assert feed.state.mode is FeedMode.LIVE


async def test_store_trouble_is_a_line_and_goes_with_it() -> None:
    feed = FakeFeed(state=FeedStatus(store_trouble="no space left on /var\x1b[2J"))
    async with running(feed, (80, 24)) as (app, pilot):
        assert "! history: no space left on /var\\x1b[2J" in screen_text(app)
        lines = len(screen_lines(app))
        feed.state = FeedStatus()
        await tick(app, pilot)
        assert "history" not in screen_text(app)
        assert len(screen_lines(app)) == lines


async def test_a_demo_is_marked_on_every_screen() -> None:
    feed = FakeFeed([replace(made.split(), simulated=True)])
    async with running(feed) as (app, pilot):
        assert "SIMULATED" in screen_lines(app)[0]
        await pilot.press("enter")
        await pilot.pause()
        assert "SIMULATED" in screen_lines(app)[0]


# --- moving about ---------------------------------------------------------------------


async def test_enter_and_escape_go_down_and_up_and_the_selection_stays() -> None:
    async with running(FakeFeed()) as (app, pilot):
        await pilot.press("down", "enter")
        assert isinstance(app.screen, HostScreen)
        assert app.screen.host == "berlin-2"
        await pilot.press("enter")
        assert isinstance(app.screen, PageScreen)
        await pilot.press("escape", "escape")
        await pilot.pause()
        assert isinstance(app.screen, FleetScreen)
        selected = app.screen.table.selected
        assert selected is not None
        assert selected.key == "berlin-2"
        await pilot.press("escape")
        assert isinstance(app.screen, FleetScreen)


async def test_brackets_step_through_the_hosts_and_1_leads_home() -> None:
    async with running(FakeFeed()) as (app, pilot):
        await pilot.press("enter", "]")
        assert "berlin-2" in screen_lines(app)[0]
        await pilot.press("[", "[")
        await pilot.pause()
        assert "osaka" in screen_lines(app)[0]
        await pilot.press("1")
        await pilot.pause()
        assert isinstance(app.screen, FleetScreen)


async def test_tab_goes_round_the_tables_that_have_rows() -> None:
    async with running(FakeFeed()) as (app, pilot):
        await pilot.press("enter")
        seen = []
        for _ in range(4):
            assert isinstance(app.focused, MetricTable)
            seen.append(app.focused.id)
            await pilot.press("tab")
        assert seen == ["gpus", "models", "engines", "processes"]
        await pilot.press("shift+tab")
        assert app.focused is not None
        assert app.focused.id == "processes"


async def test_a_host_without_gpus_starts_at_its_first_table_with_rows() -> None:
    async with running(FakeFeed([made.cpu_only()])) as (app, pilot):
        await pilot.press("enter")
        await pilot.pause()
        assert app.focused is not None
        assert app.focused.id == "models"


async def test_fix_shows_the_exact_command_and_y_copies_it() -> None:
    feed = FakeFeed([made.key_changed()])
    async with running(feed, (80, 24)) as (app, pilot):
        await pilot.press("f")
        await pilot.pause()
        assert "ssh-keygen -R home.example" in screen_text(app)
        assert "host key changed" in screen_text(app)
        await pilot.press("y")
        assert app.clipboard == made.key_changed().status.fix
        await pilot.press("escape", "R")
        assert feed.retried == ["home"]


async def test_a_viewer_says_who_can_try_a_host_again() -> None:
    feed = FakeFeed([made.key_changed()], FeedStatus(FeedMode.VIEWER, collector_pid=4711))
    async with running(feed) as (app, pilot):
        await pilot.press("R")
        await pilot.pause()
        assert "process 4711" in [note.message for note in app._notifications][-1]


async def test_help_opens_and_closes_by_its_key() -> None:
    async with running(FakeFeed()) as (app, pilot):
        await pilot.press("?")
        assert isinstance(app.screen, HelpScreen)
        await pilot.press("?")
        await pilot.press("f1")
        assert isinstance(app.screen, HelpScreen)
        await pilot.press("escape")
        assert isinstance(app.screen, FleetScreen)


async def test_filter_is_typed_kept_and_cleared() -> None:
    async with running(FakeFeed()) as (app, pilot):
        await pilot.press("/", *"jberlin")
        assert "0 of 8" in screen_text(app)
        await pilot.press("home", "delete")
        await pilot.pause()
        assert "/berlin  2 of 8" in screen_text(app)
        await pilot.press("enter", "down")
        await pilot.pause()
        assert "/berlin  2 of 8" in screen_text(app)
        assert isinstance(app.screen, FleetScreen)
        assert app.screen.table.selected is not None
        assert app.screen.table.selected.key == "berlin-2"
        await pilot.press("escape")
        await pilot.pause()
        assert "2 of 8" not in screen_text(app)
        await pilot.press("/", "x", "escape")
        await pilot.pause()
        assert "cpu-vps" in screen_text(app)


async def test_escape_on_a_host_clears_the_filter_before_it_leaves() -> None:
    async with running(FakeFeed()) as (app, pilot):
        await pilot.press("enter", "/", *"lost", "enter")
        await pilot.pause()
        assert "1 of 8" in screen_text(app)
        await pilot.press("escape")
        await pilot.pause()
        assert isinstance(app.screen, HostScreen)
        await pilot.press("escape")
        await pilot.pause()
        assert isinstance(app.screen, FleetScreen)


async def test_the_detail_line_tells_why_a_value_is_unknown() -> None:
    async with running(FakeFeed()) as (app, pilot):
        await pilot.press("enter", *["down"] * 6)
        await pilot.pause()
        detail = screen_lines(app)[-2]
        assert "UTIL, MEM %, ECC n/a: the card or driver does not offer it" in detail
        assert "W/limit n/a: no permission to read it" in detail


async def test_a_click_on_the_footer_does_what_its_key_does() -> None:
    async with running(FakeFeed()) as (app, pilot):
        line = screen_lines(app)[-1]
        await pilot.click("#keys", offset=(line.index("help"), 0))
        assert isinstance(app.screen, HelpScreen)


async def test_the_palette_opens_by_colon_and_finds_hosts() -> None:
    async with running(FakeFeed()) as (app, pilot):
        await pilot.press(":")
        await pilot.pause()
        assert type(app.screen).__name__ == "CommandPalette"
        titles = [command.title for command in app.get_system_commands(app.screen)]
        assert {"Theme", "Quit", "Host berlin-1"} <= set(titles)


# --- size and colours -----------------------------------------------------------------


@pytest.mark.parametrize("size", [(59, 24), (80, 14), (20, 5), (8, 2)])
async def test_too_small_names_both_sizes(size: tuple[int, int]) -> None:
    async with running(FakeFeed(), size) as (app, pilot):
        assert isinstance(app.screen, TooSmallScreen)
        text = screen_text(app)
        assert sum(1 for line in text.splitlines() if line.strip()) == 1
        await pilot.resize_terminal(80, 24)
        await pilot.pause()
        assert "berlin-1" in screen_text(app)


@pytest.mark.parametrize("width", range(1, 60))
def test_the_size_message_fits(width: int) -> None:
    message = size_message(width, 10)
    assert len(message) <= width
    if width >= 12:
        assert "60x15" in message
        assert f"{width}x10" in message


@pytest.mark.parametrize("theme", ["dark", "light", "ansi", "textual-light", "nord", "ansi-light"])
async def test_every_theme_draws_every_screen(theme: str) -> None:
    async with running(FakeFeed(), (80, 24), theme) as (app, pilot):
        for keys in (("enter",), ("escape", "f"), ("escape", "?")):
            await pilot.press(*keys)
            await pilot.pause()
        assert app.current_theme.name == theme


async def test_the_ansi_theme_uses_base_colours_only() -> None:
    async with running(FakeFeed(), (120, 40), "ansi") as (app, pilot):
        for keys in ((), ("enter",), ("escape", "?")):
            await pilot.press(*keys)
            await pilot.pause()
            for strip in app.screen._compositor.render_strips():
                for segment in strip:
                    for colour in (segment.style and segment.style.color,
                                   segment.style and segment.style.bgcolor):  # fmt: skip
                        assert colour is None or colour.is_default or (colour.number or 0) < 8


async def test_severity_is_never_a_colour_alone() -> None:
    async with running(FakeFeed()) as (app, _):
        for host, glyph in (("berlin-1", "X"), ("berlin-2", "!"), ("ams-mig", "·"), ("osaka", "?")):
            assert line_with(app, f" {host} ").startswith(f" {glyph} {host}")


# --- hostile text ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "keys",
    [(), ("enter",), ("enter", "enter"), ("enter", "tab", "enter"), ("f",), ("/", *"evil"),
     ("enter", "tab", "tab", "enter")],
)  # fmt: skip
async def test_no_control_character_reaches_the_screen(keys: tuple[str, ...]) -> None:
    down = replace(made.key_changed(), host=made.HOSTILE, address=made.HOSTILE)
    down = replace(down, status=replace(down.status, detail=made.HOSTILE, fix=made.HOSTILE))
    async with running(FakeFeed([made.hostile(), down]), (120, 40)) as (app, pilot):
        await pilot.press(*keys)
        await pilot.pause()
        for strip in app.screen._compositor.render_strips():
            for segment in strip:
                assert not {unicodedata.category(c) for c in segment.text} & {"Cc", "Cf", "Cs"}
        assert "\\x1b[31m" in screen_text(app) or keys == ("/", *"evil")


async def test_an_unknown_theme_is_named_with_the_nearest() -> None:
    with pytest.raises(ValueError, match="did you mean 'dark'"):
        GpumonApp(FakeFeed(), inventory=Inventory(), theme="darg")

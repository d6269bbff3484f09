"""Whole screens as text, at every size that is promised.

``GPUMON_WRITE_GOLDEN=1 python -m pytest tests/tui/test_golden_screens.py`` writes them
anew; read the difference before committing it.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.cells import cell_len

from gpumon.tui.app import GpumonApp
from tests.tui import fleet_fixture as made
from tests.tui.screen_text import running, screen_lines, screen_text

GOLDEN = Path(__file__).parent / "golden"
SIZES = ((80, 24), (120, 40), (200, 60))


def sorted_and_filtered(app: GpumonApp) -> None:
    table = app.screen.query_one("#hosts")
    table.sort_by("util", False)  # type: ignore[attr-defined]
    table.filter_by("berlin")  # type: ignore[attr-defined]


#: name -> what leads there from the start screen
SCREENS: dict[str, Callable[[GpumonApp], object]] = {
    "fleet": lambda app: None,
    "host-eight-gpus": lambda app: app.open_host("berlin-1"),
    "host-split": lambda app: app.open_host("berlin-2"),
    "host-mig": lambda app: app.open_host("ams-mig"),
    "host-hung": lambda app: app.open_host("ams-gpu"),
    "host-cpu-only": lambda app: app.open_host("cpu-vps"),
    "host-lost": lambda app: app.open_host("paris-1"),
    "host-key-changed": lambda app: app.open_host("home"),
    "fix": lambda app: app.show_fix("home"),
    "help": lambda app: app.action_help(),
    "details": lambda app: app.show_details(
        "berlin-1", "gpus", "GPU-00000006-aaaa-bbbb-cccc-0123456789ab"
    ),
    "fleet-sorted-filtered": sorted_and_filtered,
}


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
async def test_screens_are_as_recorded(size: tuple[int, int]) -> None:
    differences: list[str] = []
    async with running(made.FakeFeed(), size) as (app, pilot):
        for name, lead_there in SCREENS.items():
            lead_there(app)
            await pilot.pause()
            text = screen_text(app)
            path = GOLDEN / f"{name}-{size[0]}x{size[1]}.txt"
            if os.environ.get("GPUMON_WRITE_GOLDEN"):
                path.write_text(text)
            known = path.read_text().splitlines()
            differences += difflib.unified_diff(known, text.splitlines(), path.name, "now", n=0)
            app.action_fleet()
            await pilot.pause()
    assert not differences, "\n".join(differences)


def test_no_golden_screen_is_left_over() -> None:
    expected = {f"{name}-{width}x{height}.txt" for name in SCREENS for width, height in SIZES}
    assert {path.name for path in GOLDEN.iterdir()} == expected


@pytest.mark.parametrize("size", [(60, 15), (80, 24), (97, 31), (120, 40), (163, 50), (200, 60)])
async def test_no_line_is_wider_than_the_screen(size: tuple[int, int]) -> None:
    feed = made.FakeFeed([*made.fleet(), made.hostile()])
    async with running(feed, size) as (app, pilot):
        for lead_there in (
            SCREENS["fleet"], SCREENS["host-eight-gpus"], SCREENS["help"], SCREENS["fix"],
            lambda app: app.open_host("mallory"),
        ):  # fmt: skip
            lead_there(app)
            await pilot.pause()
            lines = screen_lines(app)
            assert len(lines) == size[1]
            assert max(map(cell_len, lines)) <= size[0]
            assert sum(1 for line in lines if line.strip()) > 5
            app.action_fleet()
            await pilot.pause()

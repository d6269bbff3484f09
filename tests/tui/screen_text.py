"""A running application over a fake feed, and its screen as text."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from textual.pilot import Pilot

from gpumon.inventory import Inventory
from gpumon.tui.app import GpumonApp
from tests.tui.fleet_fixture import FakeFeed

__all__ = ["running", "screen_lines", "screen_text"]


@asynccontextmanager
async def running(
    feed: FakeFeed, size: tuple[int, int] = (120, 40), theme: str = "ansi"
) -> AsyncIterator[tuple[GpumonApp, Pilot[None]]]:
    """The application, painted once. Ticks come only from ``tick``: time stands still."""
    app = GpumonApp(feed, inventory=Inventory(), theme=theme, clock=feed.clock, tick_s=3600)
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        yield app, pilot


async def tick(app: GpumonApp, pilot: Pilot[None]) -> None:
    """What a second does."""
    app._tick()
    await pilot.pause()


def screen_lines(app: GpumonApp) -> list[str]:
    """The lines of the top screen, without blanks at their ends."""
    strips = app.screen._compositor.render_strips()
    return ["".join(segment.text for segment in strip).rstrip() for strip in strips]


def screen_text(app: GpumonApp) -> str:
    """The whole screen."""
    return "\n".join(screen_lines(app)) + "\n"

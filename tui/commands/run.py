"""``gpumon [HOST ...]``: the screens."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os

from gpumon.inventory import Inventory
from gpumon.tui.commands.settings import choose_database, read_inventory, start_log

__all__ = ["run"]

#: Textual reads these when it is imported. Frames and animations cost bytes on the line.
_TEXTUAL = {"TEXTUAL_FPS": "15", "TEXTUAL_ANIMATIONS": "none", "TEXTUAL_SMOOTH_SCROLL": "0"}


def run(options: argparse.Namespace) -> int:
    """Show the screens until the user leaves."""
    inventory = read_inventory(options)
    start_log(options)
    for name, value in _TEXTUAL.items():
        os.environ.setdefault(name, value)
    return asyncio.run(_show(options, inventory))


async def _show(options: argparse.Namespace, inventory: Inventory) -> int:
    from gpumon.tui.app import GpumonApp
    from gpumon.tui.feeds import SwitchingFeed

    feed = SwitchingFeed(inventory, choose_database(options, inventory))
    try:
        app = GpumonApp(feed, inventory=inventory, theme=options.theme)
        feed.start()
        await app.run_async(mouse=inventory.mouse and not options.no_mouse)
        return app.return_code or 0
    finally:
        # A second Ctrl-C must not leave probes on the hosts.
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.shield(feed.close())

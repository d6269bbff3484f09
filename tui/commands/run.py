"""``gpumon [HOST ...]``: the screens."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys

from gpumon.errors import GpumonError
from gpumon.inventory import Inventory
from gpumon.tui.commands.finishing import finish
from gpumon.tui.commands.settings import choose_database, read_inventory, start_log
from gpumon.tui.exit_codes import ExitCode
from gpumon.tui.options import UsageError

__all__ = ["run"]

#: Textual reads these when it is imported. Frames and animations cost bytes on the line.
_TEXTUAL = {"TEXTUAL_FPS": "15", "TEXTUAL_ANIMATIONS": "none", "TEXTUAL_SMOOTH_SCROLL": "0"}


def run(options: argparse.Namespace) -> int:
    """Show the screens until the user leaves."""
    inventory = read_inventory(options)
    if not (sys.stdin.isatty() and (sys.stdout.isatty() or sys.stderr.isatty())):
        raise UsageError("the screens need a terminal", "use gpumon snapshot or gpumon collect")
    start_log(options)
    for name, value in _TEXTUAL.items():
        os.environ.setdefault(name, value)
    return asyncio.run(_show(options, inventory))


async def _show(options: argparse.Namespace, inventory: Inventory) -> int:
    from gpumon.tui.app import GpumonApp
    from gpumon.tui.feeds import SwitchingFeed
    from gpumon.tui.themes import UnknownThemeError, choose_theme

    wanted = options.theme or os.environ.get("GPUMON_THEME") or inventory.theme
    try:
        theme = choose_theme(wanted, os.environ)
    except UnknownThemeError as error:
        raise GpumonError(str(error)) from None
    database = choose_database(options, inventory)
    feed = SwitchingFeed(inventory, database, named=bool(options.hosts))
    try:
        app = GpumonApp(feed, inventory=inventory, theme=theme)
        # Textual would print a traceback with the values of all variables.
        app._print_error_renderables = app._exit_renderables.clear  # type: ignore[method-assign]
        feed.start()
        await app.run_async(mouse=inventory.mouse and not options.no_mouse)
        if app._exception is not None:
            raise app._exception
        # Textual takes the cancellation by SIGINT for a wish to leave.
        task = asyncio.current_task()
        interrupted = task is not None and task.cancelling() > 0
        return ExitCode.INTERRUPTED if interrupted else app.return_code or 0
    finally:
        await finish(feed.close())

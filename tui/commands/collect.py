"""``gpumon collect``: collect into the database without a screen."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import time

from gpumon.inventory import Inventory
from gpumon.snapshot import HostView
from gpumon.tui.commands.settings import choose_database, read_inventory, start_log

__all__ = ["run"]


def run(options: argparse.Namespace) -> int:
    """Collect until SIGTERM or Ctrl-C. Raises ``StoreError`` where nothing can be recorded."""
    inventory = read_inventory(options)
    start_log(options)
    return asyncio.run(_collect(options, inventory))


async def _collect(options: argparse.Namespace, inventory: Inventory) -> int:
    from gpumon.collectors.fleet import Fleet
    from gpumon.store import open_writer

    database = choose_database(options, inventory)
    writer = open_writer(database, retention=inventory.retention)
    told: dict[str, tuple[str, str]] = {}
    trouble: str | None = None

    def take(view: HostView) -> None:
        nonlocal trouble
        writer.offer(view)
        _tell(view, told)
        if writer.trouble != trouble:
            trouble = writer.trouble
            _say(f"database: {trouble or 'well again'}")

    fleet = Fleet(inventory.hosts, on_view=take)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, stop.set)
    _say(f"collecting {len(inventory.hosts)} host(s) into {database}")
    tasks = [asyncio.create_task(fleet.run()), asyncio.create_task(writer.run())]
    stopped = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([*tasks, stopped], return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (*tasks, stopped):
            task.cancel()
        await asyncio.gather(*tasks, stopped, return_exceptions=True)
        await writer.close()
    _say("stopped; all that was read is written")
    return 0


def _tell(view: HostView, told: dict[str, tuple[str, str]]) -> None:
    """One line for every change of a host's state, for the journal."""
    status = view.status
    now = (status.state.value, status.cause.value)
    if status.state == "connecting" or told.get(view.host) == now:
        return
    told[view.host] = now
    why = f": {status.detail}" if status.detail else ""
    fix = f" (next: {status.fix})" if status.fix and status.state != "up" else ""
    _say(f"{view.host} is {status.state}{why}{fix}")


def _say(text: str) -> None:
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    print(f"{stamp} {text}", file=sys.stderr, flush=True)

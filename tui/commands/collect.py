"""``gpumon collect``: collect into the database without a screen."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import sys
import time
from collections.abc import Sequence

from gpumon.collectors.fleet import Fleet
from gpumon.inventory import Inventory
from gpumon.snapshot import HostState, HostView
from gpumon.store import StoreWriter, open_writer
from gpumon.text import safe
from gpumon.tui.commands.finishing import finish
from gpumon.tui.commands.settings import choose_database, read_inventory, start_log
from gpumon.tui.exit_codes import ExitCode

__all__ = ["run"]


def run(options: argparse.Namespace) -> int:
    """Collect until SIGTERM or Ctrl-C. Raises ``StoreError`` where nothing can be recorded."""
    inventory = read_inventory(options)
    start_log(options)
    return asyncio.run(_collect(options, inventory))


class _Journal:
    """One line on stderr for every change of a host's or the database's state."""

    def __init__(self, writer: StoreWriter) -> None:
        self._writer = writer
        self._trouble: str | None = None
        self._told: dict[str, tuple[str, str]] = {}

    def take(self, view: HostView) -> None:
        self._writer.offer(view)
        self._tell_host(view)
        if self._writer.trouble != self._trouble:
            self._trouble = self._writer.trouble
            say(f"database: {self._trouble or 'recording again'}")

    def _tell_host(self, view: HostView) -> None:
        status = view.status
        now = (status.state.value, status.cause.value)
        if status.state is HostState.CONNECTING or self._told.get(view.host) == now:
            return
        self._told[view.host] = now
        why = f": {status.detail}" if status.detail else ""
        fix = f"; next: {status.fix}" if status.fix and status.state is not HostState.UP else ""
        say(f"{view.host} is {status.state}{why}{fix}")


async def _collect(options: argparse.Namespace, inventory: Inventory) -> int:
    database = choose_database(options, inventory)
    writer = open_writer(database, retention=inventory.retention)
    fleet = Fleet(inventory.hosts, on_view=_Journal(writer).take)
    stop = _stop_on_signals()
    say(f"collecting {len(inventory.hosts)} host(s) into {database}")
    tasks = [asyncio.create_task(work) for work in (fleet.run(), writer.run(), stop.wait())]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await finish(_end(tasks, writer))
    for task in tasks:
        if not task.cancelled():
            task.result()
    if writer.trouble:
        say(f"stopped; {writer.trouble}")
        return ExitCode.STORE
    say("stopped; all that was read is written")
    return ExitCode.OK


def _stop_on_signals() -> asyncio.Event:
    """Set by the first SIGTERM, SIGINT or SIGHUP; a second one ends at once."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    numbers = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup wants it ignored
        numbers.append(signal.SIGHUP)

    def begin_to_stop() -> None:
        for number in numbers:
            loop.remove_signal_handler(number)
        stop.set()

    for number in numbers:
        loop.add_signal_handler(number, begin_to_stop)
    return stop


async def _end(tasks: Sequence[asyncio.Task[object]], writer: StoreWriter) -> None:
    """End every probe, then write what still waits."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await writer.close()


def say(text: str) -> None:
    """One line for the journal. Nobody reading it is no reason to stop."""
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    with contextlib.suppress(OSError):
        print(f"{stamp} {safe(text, 1000)}", file=sys.stderr, flush=True)

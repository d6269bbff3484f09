"""The two feeds of the screens: hosts collected here, or read from another's database."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gpumon.errors import GpumonError
from gpumon.feed import FeedMode, FeedStatus
from gpumon.inventory import Inventory
from gpumon.snapshot import HostState, HostStatus, HostView

if TYPE_CHECKING:
    from gpumon.collectors.fleet import Fleet
    from gpumon.store.reader import StoreReader
    from gpumon.store.writer import StoreWriter

__all__ = ["LiveFeed", "SwitchingFeed", "ViewerFeed"]

_log = logging.getLogger(__name__)
#: A viewer looks this often; reading takes a millisecond.
_VIEWER_EVERY_S = 1.0


class LiveFeed:
    """Collects here; starts from what was stored, so that the first screen is not empty."""

    def __init__(
        self,
        inventory: Inventory,
        stored: Sequence[HostView] = (),
        writer: StoreWriter | None = None,
        trouble: str | None = None,
    ) -> None:
        self._inventory = inventory
        self._stored = {view.host: view for view in stored if view.snapshot is not None}
        self._writer = writer
        self._trouble = trouble
        self._fleet: Fleet | None = None
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin to collect and to write, in the background."""
        self._tasks.append(asyncio.create_task(self._collect(), name="fleet"))
        if self._writer is not None:
            self._tasks.append(asyncio.create_task(self._writer.run(), name="store"))

    async def _collect(self) -> None:
        # Loading asyncssh takes 0.2 s, which must not hold up the first screen.
        module = await asyncio.to_thread(importlib.import_module, "gpumon.collectors.fleet")
        self._fleet = module.Fleet(self._inventory.hosts, on_view=self._take)
        try:
            await self._fleet.run()
        except Exception:
            _log.exception("collecting ended")
            raise

    def _take(self, view: HostView) -> None:
        if self._writer is not None:
            self._writer.offer(view)

    def views(self) -> Sequence[HostView]:
        """Live views, and in their place stored ones until a host has spoken."""
        if self._fleet is None:
            return [self._before(host.name, host.address) for host in self._inventory.hosts]
        return [
            view if view.snapshot is not None else self._with_stored(view)
            for view in self._fleet.views()
        ]

    def _before(self, host: str, address: str | None) -> HostView:
        status = HostStatus(HostState.CONNECTING, since=time.time())
        return self._with_stored(HostView(host, status, address=address))

    def _with_stored(self, view: HostView) -> HostView:
        stored = self._stored.get(view.host)
        if stored is None:
            return view
        return HostView(view.host, view.status, stored.snapshot, address=view.address, stored=True)

    def status(self) -> FeedStatus:
        """Live, with the database's trouble."""
        trouble = self._writer.trouble if self._writer is not None else self._trouble
        return FeedStatus(FeedMode.LIVE, store_trouble=trouble)

    async def take_over(self) -> bool:
        """It collects already."""
        return False

    async def retry(self, host: str) -> None:
        """Try a waiting or blocked host again now."""
        if self._fleet is not None:
            await self._fleet.retry(host)

    async def close(self) -> None:
        """End every probe, then write what is still waiting."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._writer is not None:
            await self._writer.close()


class ViewerFeed:
    """Shows what another gpumon collects into the same database."""

    def __init__(self, reader: StoreReader, inventory: Inventory) -> None:
        self._reader = reader
        self._inventory = inventory
        self._views: Sequence[HostView] = ()
        self._owner: int | None = None
        self._trouble: str | None = None
        self._task: asyncio.Task[None] | None = None
        self._read()

    def start(self) -> None:
        """Begin to look, in the background."""
        self._task = asyncio.create_task(self._look(), name="viewer")

    async def _look(self) -> None:
        while True:
            await asyncio.to_thread(self._read)
            await asyncio.sleep(_VIEWER_EVERY_S)

    def _read(self) -> None:
        try:
            self._reader.touch_viewer_mark()
            self._owner = self._reader.lock_owner()
            views = self._reader.latest_views()
            self._trouble = None
        except GpumonError as error:
            self._trouble = str(error)
            return
        order = {host.name: position for position, host in enumerate(self._inventory.hosts)}
        self._views = sorted(views, key=lambda view: (order.get(view.host, len(order)), view.host))

    def views(self) -> Sequence[HostView]:
        """The views of the last look."""
        return self._views

    def status(self) -> FeedStatus:
        """Viewing, or orphaned once nobody holds the database's lock."""
        mode = FeedMode.VIEWER if self._owner is not None else FeedMode.ORPHANED
        return FeedStatus(mode, self._trouble, self._owner)

    async def take_over(self) -> bool:
        """True where the collector has died and this gpumon may collect."""
        return self._owner is None

    async def retry(self, host: str) -> None:
        """Only the gpumon that collects can."""

    async def close(self) -> None:
        """Stop looking."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._reader.close()


class SwitchingFeed:
    """Live where the database's lock is free, else a viewer that may take over."""

    def __init__(self, inventory: Inventory, database: Path) -> None:
        self._inventory = inventory
        self._database = database
        self._feed = self._choose()

    def _choose(self) -> LiveFeed | ViewerFeed:
        from gpumon.store import Locked, StoreError, open_reader, open_writer

        stored: Sequence[HostView] = ()
        try:
            writer = open_writer(self._database, retention=self._inventory.retention)
        except Locked:
            with contextlib.suppress(StoreError):
                return ViewerFeed(open_reader(self._database), self._inventory)
            return LiveFeed(self._inventory, trouble="another gpumon collects into the database")
        except StoreError as error:
            fix = f"; {error.fix}" if error.fix else ""
            return LiveFeed(self._inventory, trouble=f"not recorded: {error}{fix}")
        with contextlib.suppress(StoreError):
            reader = open_reader(self._database)
            try:
                stored = reader.latest_views()
            finally:
                reader.close()
        return LiveFeed(self._inventory, stored, writer)

    def start(self) -> None:
        """Begin, in the background."""
        self._feed.start()

    def views(self) -> Sequence[HostView]:
        """Every host, with its newest snapshot of any age."""
        return self._feed.views()

    def status(self) -> FeedStatus:
        """How the feed fares now."""
        return self._feed.status()

    async def take_over(self) -> bool:
        """Collect here when the collector has died; False when it has not."""
        if not await self._feed.take_over():
            return False
        await self._feed.close()
        self._feed = self._choose()
        self._feed.start()
        _log.info("process %d collects now", os.getpid())
        return isinstance(self._feed, LiveFeed)

    async def retry(self, host: str) -> None:
        """Try a blocked or waiting host again now."""
        await self._feed.retry(host)

    async def close(self) -> None:
        """End what was started; nothing is left behind."""
        await self._feed.close()

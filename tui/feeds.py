"""The feeds of the screens: hosts collected here, or read from another's database."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gpumon.feed import FeedMode, FeedStatus
from gpumon.inventory import HostConfig, Inventory
from gpumon.snapshot import HostState, HostStatus, HostView
from gpumon.store import Locked, StoreError, open_reader, open_writer

if TYPE_CHECKING:
    from gpumon.collectors.fleet import Fleet
    from gpumon.store import StoreReader, StoreWriter

__all__ = ["LiveFeed", "SwitchingFeed", "ViewerFeed"]

_log = logging.getLogger(__name__)
#: A viewer looks this often; reading takes a millisecond.
_VIEWER_EVERY_S = 1.0
#: A database that could not be opened is tried again this often.
_REOPEN_EVERY_S = 10.0
#: What is read meanwhile waits to be written, this much at the most.
_MOST_EARLY_VIEWS = 10_000
#: Between the first question for views and the screen that shows them.
_PAINT_S = 0.08
#: Collecting begins after this at the latest.
_WAIT_FOR_SCREEN_S = 1.0
#: A viewer shows a host that only the collector knows while something was heard of it.
_HEARD_OF_S = 3600.0


class LiveFeed:
    """Collects here; starts from what was stored, so that the first screen is not empty.

    Without a ``writer`` nothing is recorded, and ``trouble`` says why; ``reopen`` is
    tried again and again then, where it is given.
    """

    def __init__(
        self,
        inventory: Inventory,
        stored: Sequence[HostView] = (),
        writer: StoreWriter | None = None,
        *,
        trouble: str | None = None,
        reopen: Callable[[], StoreWriter] | None = None,
    ) -> None:
        self._hosts = inventory.hosts
        self._stored = {view.host: view for view in stored if view.snapshot is not None}
        self._writer = writer
        self._trouble = trouble
        self._reopen = reopen
        self._started_at = time.time()
        self._asked = asyncio.Event()
        self._fleet: Fleet | None = None
        self._tasks: list[asyncio.Task[None]] = []
        #: read before there was a writer
        self._early: deque[HostView] = deque(maxlen=_MOST_EARLY_VIEWS)

    def start(self) -> None:
        """Begin to collect and to write, in the background."""
        self._tasks.append(asyncio.create_task(self._collect(), name="fleet"))
        self._tasks.append(asyncio.create_task(self._record(), name="store"))

    async def _let_screen_come_first(self) -> None:
        """Loading what connects or writes takes 0.1 to 0.2 s; a person waits for a screen."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_WAIT_FOR_SCREEN_S):
                await self._asked.wait()
        await asyncio.sleep(_PAINT_S)

    async def _collect(self) -> None:
        try:
            await self._let_screen_come_first()
            module = await asyncio.to_thread(importlib.import_module, "gpumon.collectors.fleet")
            self._fleet = module.Fleet(self._hosts, on_view=self._take)
            await self._fleet.run()
        except Exception as error:
            _log.exception("collecting ended")
            self._trouble = f"collecting ended by a mistake in gpumon: {error!r}; start it again"

    async def _record(self) -> None:
        await self._let_screen_come_first()
        while self._writer is None:
            if self._reopen is None:
                return
            try:
                await self._open_writer(self._reopen)
            except StoreError as error:
                self._trouble = _explain(error)
                await asyncio.sleep(_REOPEN_EVERY_S)
        try:
            await self._writer.run()
        except Exception as error:
            _log.exception("recording ended")
            self._trouble = f"recording ended by a mistake in gpumon: {error!r}; start it again"

    async def _open_writer(self, reopen: Callable[[], StoreWriter]) -> None:
        opening = asyncio.ensure_future(asyncio.to_thread(reopen))
        try:
            writer = await asyncio.shield(opening)
        except asyncio.CancelledError:
            # The thread goes on, and what it opens must be closed.
            with contextlib.suppress(StoreError):
                self._begin_recording(await opening)
            raise
        self._begin_recording(writer)

    def _begin_recording(self, writer: StoreWriter) -> None:
        self._trouble = None
        self._writer = writer
        while self._early:
            writer.offer(self._early.popleft())

    def _take(self, view: HostView) -> None:
        if self._writer is not None:
            self._writer.offer(view)
        elif self._reopen is not None:
            self._early.append(view)

    def views(self) -> Sequence[HostView]:
        """Live views, and in their place stored ones until a host has spoken."""
        self._asked.set()
        if self._fleet is None:
            return [self._with_stored(self._connecting(host)) for host in self._hosts]
        return [
            view if view.snapshot is not None else self._with_stored(view)
            for view in self._fleet.views()
        ]

    def _connecting(self, host: HostConfig) -> HostView:
        state = HostState.CONNECTING if host.enabled else HostState.DISABLED
        return HostView(host.name, HostStatus(state, since=self._started_at), address=host.address)

    def _with_stored(self, view: HostView) -> HostView:
        stored = self._stored.get(view.host)
        # The name may have been given to another machine since.
        if stored is None or stored.address != view.address:
            return view
        return replace(view, snapshot=stored.snapshot, stored=True)

    def status(self) -> FeedStatus:
        """Live, with the database's trouble."""
        found = self._writer.trouble if self._writer is not None else None
        return FeedStatus(FeedMode.LIVE, store_trouble=self._trouble or found)

    async def take_over(self) -> bool:
        """It collects already."""
        return False

    async def retry(self, host: str) -> bool:
        """Try a waiting or blocked host again now."""
        if self._fleet is not None:
            await self._fleet.retry(host)
        return True

    async def close(self) -> None:
        """End every probe, then write what is still waiting."""
        await _end(self._tasks)
        if self._writer is not None:
            await self._writer.close()


class ViewerFeed:
    """Shows what another gpumon collects into the same database.

    Shown are the inventory's hosts and, with ``others``, all that were heard of lately.
    """

    def __init__(self, reader: StoreReader, inventory: Inventory, *, others: bool) -> None:
        self._reader = reader
        self._hosts = inventory.hosts
        self._others = others
        self._views: Sequence[HostView] = ()
        self._is_owned = True
        self._owner: int | None = None
        self._trouble: str | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._read()

    def start(self) -> None:
        """Begin to look, in the background."""
        self._tasks.append(asyncio.create_task(self._look(), name="viewer"))

    async def _look(self) -> None:
        while True:
            # Shielded, for the reader must not be closed under a thread that reads.
            await asyncio.shield(asyncio.to_thread(self._read))
            await asyncio.sleep(_VIEWER_EVERY_S)

    def _read(self) -> None:
        try:
            self._reader.touch_viewer_mark()
            owner = self._reader.lock_owner()
            found = {view.host: view for view in self._reader.latest_views()}
        except StoreError as error:
            self._trouble = _explain(error)
            return
        self._trouble = None
        self._is_owned = owner is not None
        self._owner = owner or self._owner
        views = [found.get(host.name) or self._unheard(host) for host in self._hosts]
        if self._others:
            since = time.time() - _HEARD_OF_S
            others = found.keys() - {host.name for host in self._hosts}
            views += [found[name] for name in sorted(others) if _heard_at(found[name]) >= since]
        self._views = views

    def _unheard(self, host: HostConfig) -> HostView:
        who = f" (pid {self._owner})" if self._owner else ""
        detail = f"the gpumon that collects{who} has recorded nothing of this host yet"
        return HostView(host.name, HostStatus(detail=detail), address=host.address)

    def views(self) -> Sequence[HostView]:
        """The views of the last look."""
        return self._views

    def status(self) -> FeedStatus:
        """Viewing, or orphaned once nobody holds the database's lock."""
        mode = FeedMode.VIEWER if self._is_owned else FeedMode.ORPHANED
        return FeedStatus(mode, self._trouble, self._owner)

    async def take_over(self) -> bool:
        """True where the collector has died and this gpumon may collect."""
        return not self._is_owned

    async def retry(self, host: str) -> bool:
        """Only the gpumon that collects can."""
        return False

    async def close(self) -> None:
        """Stop looking."""
        await _end(self._tasks)
        self._reader.close()


class SwitchingFeed:
    """Live where the database's lock is free, else a viewer that may take over.

    ``named``: the hosts were named on the command line. They are watched here, and not
    recorded, where another gpumon collects and has none of them.
    """

    def __init__(self, inventory: Inventory, database: Path, *, named: bool) -> None:
        self._inventory = inventory
        self._database = database
        self._named = named
        self._feed = self._choose()

    def _choose(self) -> LiveFeed | ViewerFeed:
        if not self._database.exists():
            # Nothing to show from it yet, and making one takes as long as all the rest.
            return LiveFeed(self._inventory, reopen=self._open)
        try:
            writer = self._open()
        except Locked as error:
            return self._watch_other(error)
        except StoreError as error:
            return LiveFeed(self._inventory, trouble=_explain(error), reopen=self._open)
        return LiveFeed(self._inventory, self._read_stored(), writer)

    def _open(self) -> StoreWriter:
        return open_writer(self._database, retention=self._inventory.retention)

    def _read_stored(self) -> list[HostView]:
        with contextlib.suppress(StoreError), contextlib.closing(open_reader(self._database)) as it:
            return it.latest_views()
        return []

    def _watch_other(self, error: Locked) -> LiveFeed | ViewerFeed:
        since = time.time() - _HEARD_OF_S
        heard = {view.host for view in self._read_stored() if _heard_at(view) >= since}
        wanted = {host.name for host in self._inventory.hosts}
        if not self._named or wanted <= heard:
            with contextlib.suppress(StoreError):
                reader = open_reader(self._database)
                return ViewerFeed(reader, self._inventory, others=not self._named)
        return LiveFeed(self._inventory, trouble=f"not recorded: {error}")

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
        before = self._feed
        if not await before.take_over():
            return False
        feed = await asyncio.to_thread(self._choose)
        if self._feed is not before:  # a second press of the key was quicker
            await feed.close()
            return True
        self._feed = feed
        feed.start()
        await before.close()
        _log.info("process %d collects now", os.getpid())
        return isinstance(feed, LiveFeed)

    async def retry(self, host: str) -> bool:
        """Try a blocked or waiting host again now."""
        return await self._feed.retry(host)

    async def close(self) -> None:
        """End what was started; nothing is left behind."""
        await self._feed.close()


def _heard_at(view: HostView) -> float:
    """When its newest sample came, or its state changed."""
    at = view.snapshot.received_at if view.snapshot is not None else 0.0
    return max(at, view.status.since)


def _explain(error: StoreError) -> str:
    fix = f"; next: {error.fix}" if error.fix else ""
    return f"not recording: {error}{fix}"


async def _end(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

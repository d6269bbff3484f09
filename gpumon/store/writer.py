"""The only writer: takes views without ever blocking, writes them once a second."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from gpumon.inventory import Retention
from gpumon.snapshot import HostState, HostView
from gpumon.store.errors import StoreError, explain
from gpumon.store.lock import WriterLock
from gpumon.store.opening import connect_writer
from gpumon.store.retention import trim
from gpumon.store.rows import Batch, Dimensions, insert_statement
from gpumon.store.viewer_mark import is_viewed

__all__ = ["StoreWriter", "open_writer"]

_log = logging.getLogger(__name__)
_TICK_S = 1.0
#: What waits for the database is dropped when it is older than this.
_QUEUE_S = 300.0
_MOST_WAITING = 200_000
#: Processes change slowly and are many.
_PROCESSES_EVERY_S = 10.0
_LATEST_EVERY_S = 10.0
_TRIM_EVERY_S = 1.0
#: A wall clock that moved so far from the monotonic one was set by somebody.
_CLOCK_JUMP_S = 600.0


def open_writer(path: Path, *, retention: Retention) -> StoreWriter:
    """Take the lock and open the database. Raises a ``StoreError``."""
    path = path.absolute()
    if not path.parent.exists():
        # The lock lies beside the database.
        try:
            path.parent.mkdir(mode=0o700, parents=True)
        except OSError as error:
            raise explain(path, error) from None
    lock = WriterLock(path)
    try:
        return StoreWriter(path, connect_writer(path), lock, retention)
    except BaseException:
        lock.release()
        raise


class StoreWriter:
    """Made by ``open_writer``. ``offer`` and ``trouble`` belong to the event loop."""

    def __init__(
        self,
        path: Path,
        connection: sqlite3.Connection,
        lock: WriterLock,
        retention: Retention,
    ) -> None:
        self._path = path
        self._connection = connection
        self._lock = lock
        self._retention = retention
        self._dimensions = Dimensions(connection)
        self._waiting: deque[tuple[float, HostView]] = deque()
        self._seen: dict[str, tuple[float, HostState]] = {}
        self._processes_at: dict[str, float] = {}
        self._latest_at: dict[str, float] = {}
        self._trimmed_at = 0.0
        self._clock_offset_s = time.time() - time.monotonic()
        self._dropped = 0
        self._error: StoreError | None = None
        # sqlite3 calls block; one thread keeps them in order.
        self._thread = ThreadPoolExecutor(1, "store")
        self._closed = False

    @property
    def trouble(self) -> str | None:
        """What keeps samples from being written, in one line; None while all is well."""
        if self._error is None:
            return None
        lost = f"; {self._dropped} samples dropped" if self._dropped else ""
        fix = f"; next: {self._error.fix}" if self._error.fix else ""
        return f"not recording: {self._error}{lost}{fix}"

    def offer(self, view: HostView) -> None:
        """Take a view to be written at the next tick. Never blocks, never raises.

        Views of stored or simulated hosts, and views that say nothing new, are not taken.
        """
        if view.stored or view.simulated or self._closed:
            return
        at = view.snapshot.received_at if view.snapshot else view.status.since
        mark = (at, view.status.state)
        if self._seen.get(view.host) == mark or view.status.state is HostState.CONNECTING:
            return
        self._seen[view.host] = mark
        self._waiting.append((time.monotonic(), view))
        if len(self._waiting) > _MOST_WAITING:
            self._waiting.popleft()
            self._dropped += 1

    async def run(self) -> None:
        """Write once a second until cancelled."""
        while True:
            await asyncio.sleep(_TICK_S)
            await self.flush()

    async def flush(self) -> None:
        """Write all that waits; what can't be written waits on, for five minutes."""
        views = [view for _, view in self._waiting]
        now = time.time()
        loop = asyncio.get_running_loop()
        trimming = abs(now - self._trimmed_at) >= _TRIM_EVERY_S and not self._clock_jumped(now)
        if not views and not trimming:
            return
        try:
            await asyncio.shield(
                loop.run_in_executor(self._thread, self._write, views, now, trimming)
            )
        except (sqlite3.Error, OSError, StoreError) as error:
            found = explain(self._path, error)
            if self._error is None or str(self._error) != str(found):
                _log.warning("%s", found)
            self._error = found
            self._drop_old()
            return
        for _ in views:
            self._waiting.popleft()
        if trimming:
            self._trimmed_at = now
        if self._error is not None:
            _log.warning("%s: recording again", self._path)
        self._error = None
        self._dropped = 0

    def _clock_jumped(self, now: float) -> bool:
        """A clock set ahead would make all that was recorded look old enough to delete."""
        return abs(now - time.monotonic() - self._clock_offset_s) > _CLOCK_JUMP_S

    def _drop_old(self) -> None:
        limit = time.monotonic() - _QUEUE_S
        while self._waiting and self._waiting[0][0] < limit:
            self._waiting.popleft()
            self._dropped += 1

    def _write(self, views: list[HostView], now: float, trimming: bool) -> None:
        """In the store's thread: one transaction, all of it or none."""
        connection = self._connection
        viewed = is_viewed(self._path)
        batch = Batch()
        processes_at, latest_at = dict(self._processes_at), dict(self._latest_at)
        newest = {view.host: view for view in views}
        connection.execute("BEGIN IMMEDIATE")
        try:
            for view in views:
                at = view.snapshot.received_at if view.snapshot else now
                processes = _is_due(processes_at, view.host, at, _PROCESSES_EVERY_S)
                last = newest[view.host] is view
                latest = last and (viewed or _is_due(latest_at, view.host, now, _LATEST_EVERY_S))
                self._dimensions.add_view(view, batch, processes=processes, latest=latest)
            for table, rows in batch.rows.items():
                connection.executemany(insert_statement(table), rows)
            if batch.latest:
                connection.executemany(
                    "INSERT OR REPLACE INTO latest (host, at, view) VALUES (?, ?, ?)", batch.latest
                )
            if trimming:
                trim(connection, self._retention, now)
            connection.execute("COMMIT")
        except BaseException:
            self._dimensions.forget()
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        self._processes_at, self._latest_at = processes_at, latest_at

    async def close(self) -> None:
        """Write what waits, close the file, give the lock back."""
        if self._closed:
            return
        self._closed = True
        self._latest_at.clear()
        if self._seen:
            await self.flush()
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._thread, self._connection.close)
        self._thread.shutdown()
        self._lock.release()


def _is_due(times: dict[str, float], host: str, now: float, every_s: float) -> bool:
    """True at most every so often; a clock that went back does not stop it."""
    before = times.get(host)
    if before is not None and 0 <= now - before < every_s:
        return False
    times[host] = now
    return True

"""The only writer: takes views without ever blocking, writes them once a second."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from operator import itemgetter
from pathlib import Path

from gpumon.inventory import Retention
from gpumon.snapshot import Cause, HostState, HostStatus, HostView
from gpumon.store.errors import StoreError, explain
from gpumon.store.lock import WriterLock
from gpumon.store.opening import connect_writer, make_folder
from gpumon.store.retention import SteadyClock, trim, trim_processes
from gpumon.store.rows import Batch, Dimensions, insert_statement
from gpumon.store.viewer_mark import is_viewed

__all__ = ["StoreWriter", "open_writer"]

_log = logging.getLogger(__name__)
_TICK_S = 1.0
#: What waits for the database is dropped when it is older than this.
_QUEUE_S = 300.0
_MOST_WAITING = 200_000
#: Views in one transaction: while the disk is full, a try must not cost more each second.
_SLICE_VIEWS = 500
#: Processes change slowly and are many.
_PROCESSES_EVERY_S = 10.0
_LATEST_EVERY_S = 10.0
#: Often would write the same pages again and again; what is much goes a step a second.
_TRIM_EVERY_S = 600.0
_TRIM_PROCESSES_EVERY_S = 3600.0
#: A write that takes longer than this is told.
_PATIENCE_S = 10.0
#: A log that grew over what a checkpoint leaves of it: one that reads does not let go.
_LARGE_LOG_BYTES = 64 * 1024 * 1024
#: What SQLite or Python says of a value that no column takes: the view's fault, not the disk's.
_BAD_VIEW = (sqlite3.IntegrityError, ArithmeticError, ValueError, TypeError)


def open_writer(path: Path, *, retention: Retention) -> StoreWriter:
    """Take the lock and open the database. Raises a ``StoreError``."""
    path = path.absolute()
    make_folder(path)
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
        self._file: os.stat_result | None = path.stat()
        self._lock = lock
        self._retention = retention
        self._dimensions = Dimensions(connection)
        self._waiting: deque[tuple[float, HostView]] = deque()
        self._flushing = asyncio.Lock()
        self._seen: dict[str, tuple[float, HostStatus]] = {}
        self._processes_at: dict[str, float] = {}
        self._latest_at: dict[str, float] = {}
        self._newest: dict[str, HostView] = {}
        #: hosts whose newest view is not in the table of the latest yet
        self._unsaved: set[str] = set()
        self._saved_states: dict[str, tuple[HostState, Cause]] = {}
        self._trimmed_at = 0.0
        self._more_to_trim = False
        self._trimmed_processes_at = time.monotonic()
        self._clock = SteadyClock()
        self._dropped = 0
        self._log_bytes = 0
        self._busy_since: float | None = None
        self._error: StoreError | None = None
        # sqlite3 calls block; one thread keeps them in order.
        self._thread = ThreadPoolExecutor(1, "store")
        self._closed = False

    @property
    def trouble(self) -> str | None:
        """What keeps samples from being written, in one line; None while all is well."""
        since = self._busy_since
        if since is not None and time.monotonic() - since > _PATIENCE_S:
            silence_s = time.monotonic() - since
            return f"not recording: {self._path}: the disk does not answer since {silence_s:.0f} s"
        if self._error is None:
            if self._log_bytes > _LARGE_LOG_BYTES:
                return (
                    f"{self._path}-wal has grown to {self._log_bytes / 1e6:.0f} MB, for a program"
                    f" reads the database and does not let go; next: fuser -v {self._path}"
                )
            if refused := len(self._dimensions.refused):
                return f"{self._path}: full of names; {refused} cards or models are not recorded"
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
        mark = (at, view.status)
        if self._seen.get(view.host) == mark or view.status.state is HostState.CONNECTING:
            return
        self._seen[view.host] = mark
        now = time.monotonic()
        self._waiting.append((now, view))
        # Also here, for a write may hang.
        self._drop_older_than(now - _QUEUE_S)
        if len(self._waiting) > _MOST_WAITING:
            self._waiting.popleft()
            self._dropped += 1

    def _drop_older_than(self, limit: float) -> None:
        while self._waiting and self._waiting[0][0] < limit:
            self._waiting.popleft()
            self._dropped += 1

    async def run(self) -> None:
        """Write once a second until cancelled or closed."""
        while not self._closed:
            await asyncio.sleep(_TICK_S)
            await self.flush()

    async def flush(self) -> None:
        """Write all that waits; what can't be written waits on, for five minutes."""
        async with self._flushing:
            size = _SLICE_VIEWS
            while taken := [self._waiting.popleft() for _ in range(min(size, len(self._waiting)))]:
                try:
                    await self._write_slice(taken)
                except _BAD_VIEW as error:
                    size = 1
                    if len(taken) == 1:
                        _log.warning("a sample of %s was left out: %s", taken[0][1].host, error)
                    else:
                        self._waiting.extendleft(reversed(taken))
                except (sqlite3.Error, OSError, StoreError) as error:
                    self._waiting.extendleft(reversed(taken))
                    self._fail(error)
                    return
                except BaseException:
                    # Cancelled: the thread may write them still, and a second time is the same.
                    self._waiting.extendleft(reversed(taken))
                    raise
            try:
                if self._unsaved:
                    await self._write_slice([])
                await self._tidy()
            except (sqlite3.Error, OSError, StoreError) as error:
                self._fail(error)
                return
            self._recover()

    async def _write_slice(self, taken: list[tuple[float, HostView]]) -> None:
        await self._in_thread(self._write, [view for _, view in taken], time.time())

    async def _tidy(self) -> None:
        """Let one step's worth of old samples go."""
        now = time.time()
        due = self._more_to_trim or abs(now - self._trimmed_at) >= _TRIM_EVERY_S
        if due and self._clock.is_steady(now):
            await self._in_thread(self._trim, now)
            self._trimmed_at = now

    async def _in_thread(self, work: Callable[..., None], *given: object) -> None:
        loop = asyncio.get_running_loop()
        self._busy_since = time.monotonic()
        try:
            await asyncio.shield(loop.run_in_executor(self._thread, work, *given))
        finally:
            self._busy_since = None

    def _fail(self, error: Exception) -> None:
        found = explain(self._path, error)
        if self._error is None or str(self._error) != str(found):
            _log.warning("%s", found)
        self._error = found
        self._drop_older_than(time.monotonic() - _QUEUE_S)

    def _recover(self) -> None:
        if self._error is not None:
            _log.warning("%s: recording again; %d samples lost", self._path, self._dropped)
        self._error = None
        self._dropped = 0

    def _write(self, views: list[HostView], now: float) -> None:
        """In the store's thread: one transaction, all of it or none."""
        self._follow_file()
        batch = Batch()
        processes_at, latest_at = dict(self._processes_at), dict(self._latest_at)
        newest = {view.host: view for view in views}
        unsaved = self._unsaved | newest.keys()
        due = self._choose_due(self._newest | newest, unsaved, latest_at, now)
        if not views and not due:
            return
        with self._transaction() as connection:
            for view in views:
                at = view.snapshot.received_at if view.snapshot else now
                processes = _is_due(processes_at, view.host, at, _PROCESSES_EVERY_S)
                self._dimensions.add_view(view, batch, processes=processes)
            for view in due:
                self._add_latest(view, batch)
            for table, rows in batch.rows.items():
                # In the order of keys: else pages are split in their middle and stay half empty.
                rows.sort(key=itemgetter(0))
                connection.executemany(insert_statement(table), rows)
            if batch.latest:
                connection.executemany(
                    "INSERT OR REPLACE INTO latest (host, at, view) VALUES (?, ?, ?)", batch.latest
                )
        self._processes_at, self._latest_at = processes_at, latest_at
        self._newest |= newest
        self._unsaved = unsaved - {view.host for view in due}
        self._saved_states |= {view.host: _state_of(view) for view in due}
        with contextlib.suppress(OSError):
            self._log_bytes = self._path.with_name(f"{self._path.name}-wal").stat().st_size

    def _add_latest(self, view: HostView, batch: Batch) -> None:
        try:
            self._dimensions.add_latest(view, batch)
        except _BAD_VIEW as error:
            _log.warning("the newest view of %s was left out: %s", view.host, error)

    def _choose_due(
        self, newest: dict[str, HostView], hosts: set[str], times: dict[str, float], now: float
    ) -> list[HostView]:
        """The views to be kept as the latest now: all while somebody looks, else now and then.

        A change of state at once: of a host that went down nothing more may be heard.
        """
        viewed = is_viewed(self._path)
        return [
            newest[host]
            for host in hosts
            # In this order: the time is noted in any case.
            if _is_due(times, host, now, _LATEST_EVERY_S)
            or viewed
            or self._saved_states.get(host) != _state_of(newest[host])
        ]

    def _trim(self, now: float) -> None:
        """In the store's thread."""
        self._follow_file()
        hourly = time.monotonic() - self._trimmed_processes_at >= _TRIM_PROCESSES_EVERY_S
        with self._transaction() as connection:
            more = trim(connection, self._retention, now)
            if hourly:
                trim_processes(connection, self._retention, now)
        self._more_to_trim = more
        if hourly:
            self._dimensions.forget()
            self._trimmed_processes_at = time.monotonic()

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
            connection.execute("COMMIT")
        except BaseException:
            self._dimensions.forget()
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    def _follow_file(self) -> None:
        """Open anew where the file was moved away or removed: SQLite would write on into it.

        So a damaged database that is moved aside is followed by a new one by itself.
        """
        with contextlib.suppress(FileNotFoundError):
            if self._file and os.path.samestat(self._file, self._path.stat()):
                return
        # What the log holds goes into the old file, wherever that is: closing alone would not
        # do it for a file that has moved.
        with contextlib.suppress(sqlite3.Error):
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        with contextlib.suppress(sqlite3.Error):
            self._connection.close()
        self._file = None
        make_folder(self._path)
        if not self._lock.is_in_place():
            lock = WriterLock(self._path)
            self._lock.release()
            self._lock = lock
        self._connection = connect_writer(self._path)
        self._dimensions = Dimensions(self._connection)
        self._processes_at.clear()
        self._latest_at.clear()
        self._unsaved = set(self._newest)
        self._file = self._path.stat()
        _log.warning("%s: was moved or removed; a new one was made", self._path)

    async def close(self) -> None:
        """Write what waits, close the file, give the lock back."""
        if self._closed:
            return
        self._closed = True
        self._latest_at.clear()
        if self._seen:
            await self.flush()
        await self._in_thread(self._connection.close)
        self._thread.shutdown()
        self._lock.release()


def _state_of(view: HostView) -> tuple[HostState, Cause]:
    return view.status.state, view.status.cause


def _is_due(times: dict[str, float], host: str, now: float, every_s: float) -> bool:
    """True at most every so often; a clock that went back does not stop it."""
    before = times.get(host)
    if before is not None and 0 <= now - before < every_s:
        return False
    times[host] = now
    return True

"""Old samples leave a few at a time, so that no tick waits for them."""

from __future__ import annotations

import sqlite3
import time

from gpumon.inventory import Retention
from gpumon.metrics import TABLES
from gpumon.store.schema import first_id

__all__ = ["RAW_BATCH_ROWS", "SteadyClock", "trim", "trim_processes"]

#: Rows that one step may delete of a table; more wait for the next step, a second later.
#: 80 GPUs at 2 s add 2400 a minute.
RAW_BATCH_ROWS = 5000
#: Free pages are used again by the next samples; only what is over this goes back to the disk.
_SPARE_PAGES = 2048
_VACUUM_PAGES = 64
#: A wall clock that moved so far from the uptime was set by somebody.
_JUMP_S = 600.0
_SETTLE_S = 3600.0


def trim(connection: sqlite3.Connection, retention: Retention, now: float) -> bool:
    """Delete one step's worth of samples older than ``raw_h``; True where more is left."""
    more = False
    for table in TABLES:
        limit = first_id(max(0, int(now - retention.raw_h * 3600)))
        cursor = connection.execute(
            f"DELETE FROM {table}_sample WHERE id IN "  # noqa: S608
            f"(SELECT id FROM {table}_sample WHERE id < ? ORDER BY id LIMIT ?)",
            (limit, RAW_BATCH_ROWS),
        )
        more = more or cursor.rowcount >= RAW_BATCH_ROWS
    if connection.execute("PRAGMA freelist_count").fetchone()[0] > _SPARE_PAGES:
        for _ in range(_VACUUM_PAGES):
            # A page is freed per step, and Python steps but once where rows have no columns.
            connection.execute("PRAGMA incremental_vacuum(1)")
        more = True
    return more


def trim_processes(connection: sqlite3.Connection, retention: Retention, now: float) -> int:
    """Forget the processes whose last sample has gone; returns how many.

    Reads all process samples: for once an hour. Numbers known to ``Dimensions`` may be gone
    afterwards.
    """
    return connection.execute(
        "DELETE FROM process WHERE first_seen < ?"
        " AND id NOT IN (SELECT process FROM process_sample)",
        (max(0, int(now - retention.raw_h * 3600)),),
    ).rowcount


class SteadyClock:
    """Whether the wall clock may be trusted to say what is old.

    A clock set ahead would make all that was recorded look old enough to delete. One that
    keeps its new time for an hour is believed: it may have been wrong before.
    """

    def __init__(self) -> None:
        self._offset_s = time.time() - _uptime_s()
        self._jumped_at_s: float | None = None

    def is_steady(self, now: float) -> bool:
        """False for an hour after a jump; ``now`` is the wall clock's time."""
        uptime_s = _uptime_s()
        offset_s = now - uptime_s
        if abs(offset_s - self._offset_s) <= _JUMP_S:
            self._jumped_at_s = None
            return True
        if self._jumped_at_s is None:
            self._jumped_at_s = uptime_s
        if uptime_s - self._jumped_at_s < _SETTLE_S:
            return False
        self._offset_s = offset_s
        self._jumped_at_s = None
        return True


def _uptime_s() -> float:
    """Seconds since some start, those of a suspended machine included where that is known."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()

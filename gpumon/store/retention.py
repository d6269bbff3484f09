"""Old samples leave a few at a time, so that no tick waits for them."""

from __future__ import annotations

import sqlite3

from gpumon.inventory import Retention
from gpumon.metrics import TABLES
from gpumon.store.schema import first_id

__all__ = ["RAW_BATCH_ROWS", "trim"]

#: Rows that one step may delete of a table; more wait for the next step. A step a second
#: removes over twenty times what 80 GPUs at 2 s add.
RAW_BATCH_ROWS = 2000


def trim(connection: sqlite3.Connection, retention: Retention, now: float) -> int:
    """Delete one step's worth of samples older than ``raw_h``; returns how many went."""
    deleted = 0
    for table in TABLES:
        limit = first_id(table, max(0, int(now - retention.raw_h * 3600)))
        cursor = connection.execute(
            f"DELETE FROM {table}_sample WHERE id IN "  # noqa: S608
            f"(SELECT id FROM {table}_sample WHERE id < ? ORDER BY id LIMIT ?)",
            (limit, RAW_BATCH_ROWS),
        )
        deleted += cursor.rowcount
    if deleted:
        connection.execute("PRAGMA incremental_vacuum(64)")
    return deleted

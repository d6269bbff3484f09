"""The tables, made from the metrics, and the steps that lead to them.

Samples are keyed by time first: ``id = second << 16 | series``. Keyed by series first, each
commit would dirty one page per series and write thirty times as much. Measures are whole
numbers (see ``Metric.scale``), NULL = unknown. Processes come and go without end, so their
key has only the low bits of their number, and their rows name them beside it.

Means are keyed ``series << 32 | first second``: they are read by series, and written rarely.
Not WITHOUT ROWID, whose rows would not fit into the small pages (see ``opening._PAGE_BYTES``).

A new metric is a new column that every database gets when it is next opened to be written; an
older gpumon leaves it NULL. What a metric's numbers mean (scale, order of states) must not
change. No STRICT and no RETURNING: SQLite 3.34 of RHEL 9 has neither.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import TYPE_CHECKING

from gpumon.metrics import TABLES, Metric, metrics_of

if TYPE_CHECKING:
    from sqlite_utils import Database
    from sqlite_utils.migrations import Migrations

__all__ = [
    "MOST_SERIES",
    "ROLLUPS",
    "ROLLUP_BITS",
    "SERIES_BITS",
    "VERSION",
    "extend_tables",
    "first_id",
    "is_ours",
    "migrations",
    "missing_columns",
    "read_version",
    "rollup_id",
    "sample_columns",
    "second_of",
]

#: a thousand hosts of eight cards, and as many again that came and went
SERIES_BITS = 16
MOST_SERIES = 1 << SERIES_BITS
#: seconds go to the year 2106
ROLLUP_BITS = 32
#: seconds in a bucket of each table of means
ROLLUPS = {"10s": 10, "1m": 60, "10m": 600}
#: the newest schema this gpumon knows
VERSION = 2
#: in the first schema; too few for a thousand hosts
_FIRST_SERIES_BITS = 12

_DIMENSIONS = """
CREATE TABLE host (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, address TEXT, first_seen INTEGER NOT NULL
);
CREATE TABLE gpu (
    id INTEGER PRIMARY KEY, host INTEGER NOT NULL REFERENCES host, uuid TEXT NOT NULL,
    pci TEXT, name TEXT, number INTEGER, parent_uuid TEXT, first_seen INTEGER NOT NULL,
    UNIQUE (host, uuid)
);
CREATE TABLE model (
    id INTEGER PRIMARY KEY, host INTEGER NOT NULL REFERENCES host, engine TEXT NOT NULL,
    port INTEGER NOT NULL, name TEXT NOT NULL, digest TEXT NOT NULL, quantization TEXT,
    first_seen INTEGER NOT NULL, UNIQUE (host, engine, port, name, digest)
);
CREATE TABLE process (
    id INTEGER PRIMARY KEY, host INTEGER NOT NULL REFERENCES host, pid INTEGER NOT NULL,
    start_ticks INTEGER NOT NULL, gpu_uuid TEXT NOT NULL, user TEXT, name TEXT, command TEXT,
    container TEXT, first_seen INTEGER NOT NULL,
    UNIQUE (host, pid, start_ticks, gpu_uuid)
);
CREATE TABLE latest (
    host INTEGER PRIMARY KEY REFERENCES host, at REAL NOT NULL, view BLOB NOT NULL
);
"""


def sample_columns(table: str) -> tuple[str, ...]:
    """The measures of a sample table, in order."""
    return tuple(metric.name for metric in metrics_of(table))


def rollup_id(series: int, bucket: int) -> int:
    """The key of a row of means; ``bucket`` is its first second."""
    return series << ROLLUP_BITS | bucket


def first_id(second: int) -> int:
    """The smallest key of a second."""
    return second << SERIES_BITS


def second_of(key: int) -> int:
    """The second of a key."""
    return key >> SERIES_BITS


def _create_samples(table: str) -> str:
    columns = ", ".join(f"{name} INTEGER" for name in sample_columns(table))
    link = "process INTEGER NOT NULL, " if table == "process" else ""
    return f"CREATE TABLE {table}_sample (id INTEGER PRIMARY KEY, {link}{columns})"


def _rollup_columns(metric: Metric) -> str:
    name = metric.name
    return f"{name}_min INTEGER, {name}_mean REAL, {name}_max INTEGER, {name}_known INTEGER"


def _create_rollup(table: str, step: str) -> str:
    columns = ", ".join(
        _rollup_columns(metric) for metric in metrics_of(table) if metric.kind == "gauge"
    )
    return f"CREATE TABLE {table}_{step} (id INTEGER PRIMARY KEY, {columns})"


def _make_first_schema(db: Database) -> None:
    statements = [part for part in _DIMENSIONS.split(";") if part.strip()]
    statements += [_create_samples(table) for table in ("gpu", "host", "model", "process")]
    statements += [
        _create_rollup(table, step) for table in ("gpu", "host", "model") for step in ROLLUPS
    ]
    for statement in statements:
        db.conn.execute(statement)
    db.conn.execute("PRAGMA user_version = 1")


def _widen_keys(db: Database) -> None:
    """Room for more series. Every new key is larger than every old one, so none collides."""
    low = (1 << _FIRST_SERIES_BITS) - 1
    for table in ("gpu", "host", "model"):
        wider = f"(id >> {_FIRST_SERIES_BITS}) << {SERIES_BITS} | (id & {low})"
        db.conn.execute(f"UPDATE {table}_sample SET id = {wider}")  # noqa: S608
    db.conn.execute("PRAGMA user_version = 2")


_STEPS: tuple[tuple[str, Callable[[Database], None]], ...] = (
    ("m001_first", _make_first_schema),
    ("m002_wider_keys", _widen_keys),
)


def migrations() -> Migrations:
    """Every step, in order; each runs once and in a transaction with its record."""
    from sqlite_utils.migrations import Migrations

    steps = Migrations("gpumon")
    for name, step in _STEPS:
        steps(name=name)(step)
    return steps


def is_ours(connection: sqlite3.Connection) -> bool:
    """True for a database that gpumon made, or began to make, and for an empty file."""
    tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
    if "_sqlite_migrations" not in tables:
        return not tables
    sets = connection.execute("SELECT DISTINCT migration_set FROM _sqlite_migrations").fetchall()
    # Between the table of steps and the first step the process may have been killed.
    return ("gpumon",) in sets or (not sets and all("sqlite_" in name for name in tables))


def missing_columns(connection: sqlite3.Connection, table: str) -> tuple[str, ...]:
    """Measures that a table of samples has no column for: those of metrics newer than it."""
    query = f"PRAGMA table_info({table}_sample)"
    present = {row[1] for row in connection.execute(query).fetchall()}
    return tuple(name for name in sample_columns(table) if name not in present)


def extend_tables(connection: sqlite3.Connection) -> None:
    """Add the columns of metrics that are newer than the database."""
    wanted: list[tuple[str, str]] = []
    for table in TABLES:
        wanted += [(f"{table}_sample", f"{name} INTEGER") for name in sample_columns(table)]
        if table != "process":
            parts = [
                part
                for metric in metrics_of(table)
                if metric.kind == "gauge"
                for part in _rollup_columns(metric).split(", ")
            ]
            wanted += [(f"{table}_{step}", part) for step in ROLLUPS for part in parts]
    present = {
        table: {row[1] for row in connection.execute(f"PRAGMA table_info({table})").fetchall()}
        for table in dict.fromkeys(table for table, _ in wanted)
    }
    missing = [(table, part) for table, part in wanted if part.split()[0] not in present[table]]
    if not missing:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        for table, part in missing:
            connection.execute(f"ALTER TABLE {table} ADD COLUMN {part}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def read_version(connection: sqlite3.Connection) -> int:
    """The schema that a database has; 0 = an empty file."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])

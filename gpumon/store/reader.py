"""Reading what was recorded. Read-only, and no cursor stays open between two calls.

A cursor left open would keep the write-ahead log from being cut back.
"""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpumon.codec import CodecError, decode_view
from gpumon.metrics import metric, metrics_of
from gpumon.snapshot import HostView
from gpumon.store.errors import explain
from gpumon.store.lock import read_owner
from gpumon.store.opening import connect_reader
from gpumon.store.schema import (
    SERIES_BITS,
    first_id,
    missing_columns,
    sample_columns,
    second_of,
)
from gpumon.store.viewer_mark import touch_mark

__all__ = ["Sample", "StoreReader", "open_reader"]

_CHUNK_ROWS = 5000
#: Up to so many series, reading every row of a time is quicker than a look-up for each second.
_FEW_SERIES = 20
#: columns that name a row's subject, by table
SUBJECTS: dict[str, tuple[str, ...]] = {
    "host": ("host", "address"),
    "gpu": ("host", "gpu", "uuid", "parent_uuid", "pci", "name"),
    "model": ("host", "engine", "port", "model", "digest", "quantization"),
    "process": ("host", "pid", "gpu_uuid", "user", "name", "command", "container"),
}
_SUBJECT_QUERIES = {
    "host": "SELECT d.id, d.name, d.address FROM host d",
    "gpu": "SELECT d.id, h.name, d.number, d.uuid, d.parent_uuid, d.pci, d.name"
    " FROM gpu d JOIN host h ON h.id = d.host",
    "model": "SELECT d.id, h.name, d.engine, d.port, d.name, d.digest, d.quantization"
    " FROM model d JOIN host h ON h.id = d.host",
    "process": "SELECT d.id, h.name, d.pid, d.gpu_uuid, d.user, d.name, d.command, d.container"
    " FROM process d JOIN host h ON h.id = d.host",
}


@dataclass(frozen=True, slots=True)
class Sample:
    """One row: its second (UTC), its subject's columns, its values in their units."""

    at: int
    subject: tuple[Any, ...]
    values: tuple[Any, ...]


def open_reader(path: Path) -> StoreReader:
    """Open a database read-only. Raises a ``StoreError``."""
    path = path.absolute()
    return StoreReader(path, connect_reader(path))


class StoreReader:
    """Made by ``open_reader``. Every method may raise a ``StoreError``."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._path = path
        self._connection = connection
        self._missing: dict[str, tuple[str, ...]] = {}

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def _all(self, query: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        try:
            return self._connection.execute(query, tuple(values)).fetchall()
        except sqlite3.Error as error:
            raise explain(self._path, error) from None

    def lock_owner(self) -> int | None:
        """Pid of the gpumon that writes; None where none does."""
        return read_owner(self._path)

    def touch_viewer_mark(self) -> None:
        """Have the writer keep the newest views fresh for the next seconds."""
        touch_mark(self._path)

    def host_names(self) -> list[str]:
        """Every host ever recorded."""
        return [row[0] for row in self._all("SELECT name FROM host ORDER BY name")]

    def latest_views(self) -> list[HostView]:
        """The newest view of every host, marked as stored; a damaged one is left out."""
        rows = self._all("SELECT h.name, l.view FROM latest l JOIN host h ON h.id = l.host")
        views = []
        for _, blob in rows:
            try:
                view = decode_view(json.loads(zlib.decompress(blob)))
            except (CodecError, ValueError, zlib.error):
                continue
            views.append(replace(view, stored=True))
        return views

    def history(
        self, table: str, subject: int, name: str, since: int, until: int
    ) -> list[tuple[int, Any]]:
        """``(second, value)`` of one metric of one subject; None = known to be unknown.

        Seconds without a row are left out: nothing is known of them.
        """
        one = metric(table, name)
        column = self._columns(table)[sample_columns(table).index(name)]
        begin, end = first_id(since), first_id(until)
        if table == "process" or self._count_subjects(table) <= _FEW_SERIES:
            rows = self._all(
                f"SELECT id, {column} FROM {table}_sample"  # noqa: S608
                f" WHERE id >= ? AND id < ? AND {_link(table)} = ? ORDER BY id",
                (begin, end, subject),
            )
        else:
            rows = self._look_up_seconds(table, subject, column, begin, end)
        return [(second_of(key), one.decode(value)) for key, value in rows]

    def _look_up_seconds(
        self, table: str, subject: int, column: str, begin: int, end: int
    ) -> list[tuple[Any, ...]]:
        """A look-up for each second there is: costs the same however many series there are."""
        ((first, last),) = self._all(
            f"SELECT (SELECT min(id) FROM {table}_sample WHERE id >= ?),"  # noqa: S608
            f" (SELECT max(id) FROM {table}_sample WHERE id < ?)",
            (begin, end),
        )
        if first is None or last is None:
            return []
        step = 1 << SERIES_BITS
        return self._all(
            f"WITH RECURSIVE second(id) AS (VALUES (?) UNION ALL"  # noqa: S608
            f" SELECT id + {step} FROM second WHERE id + {step} <= ?)"
            f" SELECT s.id, {column} FROM second CROSS JOIN {table}_sample s ON s.id = second.id",
            (first // step * step + subject, last // step * step + subject),
        )

    def _count_subjects(self, table: str) -> int:
        return int(self._all(f"SELECT count(*) FROM {table}")[0][0])  # noqa: S608

    def _columns(self, table: str) -> tuple[str, ...]:
        """The measures as SQL: NULL for one that this database is too old for."""
        if table not in self._missing:
            try:
                self._missing[table] = missing_columns(self._connection, table)
            except sqlite3.Error as error:
                raise explain(self._path, error) from None
        return tuple(
            "NULL" if name in self._missing[table] else name for name in sample_columns(table)
        )

    def subjects(self, table: str, hosts: Sequence[str] = ()) -> dict[int, tuple[Any, ...]]:
        """Number -> its columns (``SUBJECTS``), of a table's hosts, cards, ..."""
        rows = self._all(_SUBJECT_QUERIES[table])
        wanted = set(hosts)
        return {row[0]: tuple(row[1:]) for row in rows if not wanted or row[1] in wanted}

    def count_rows(self, table: str, since: int, until: int) -> int:
        """Rows of a table in a time, over all hosts; for progress only."""
        bounds = (first_id(since), first_id(until))
        query = f"SELECT count(*) FROM {table}_sample WHERE id >= ? AND id < ?"  # noqa: S608
        return int(self._all(query, bounds)[0][0])

    def export_rows(
        self, table: str, since: int, until: int, hosts: Sequence[str] = ()
    ) -> Iterator[tuple[int, list[Sample]]]:
        """Samples in the order of time, in chunks: rows looked at so far, and a chunk's samples."""
        known = self.subjects(table, hosts)
        readers = metrics_of(table)
        columns = ", ".join(self._columns(table))
        query = (
            f"SELECT id, {_link(table)}, {columns} FROM {table}_sample"  # noqa: S608
            f" WHERE id >= ? AND id < ? ORDER BY id LIMIT {_CHUNK_ROWS}"
        )
        key, end, seen = first_id(since), first_id(until), 0
        while True:
            rows = self._all(query, (key, end))
            if not rows:
                return
            seen += len(rows)
            key = rows[-1][0] + 1
            yield (
                seen,
                [
                    Sample(
                        second_of(row[0]),
                        known[row[1]],
                        tuple(one.decode(v) for one, v in zip(readers, row[2:], strict=True)),
                    )
                    for row in rows
                    if row[1] in known
                ],
            )


def _link(table: str) -> str:
    """The number of a row's subject, as SQL."""
    return "process" if table == "process" else f"id & {(1 << SERIES_BITS) - 1}"

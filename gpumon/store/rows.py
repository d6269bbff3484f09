"""From views to rows. Knows the dimension tables; does no commit of its own."""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from gpumon.codec import encode_view
from gpumon.metrics import metrics_of
from gpumon.snapshot import Engine, Gpu, GpuProcess, HostState, HostView, Model
from gpumon.store.schema import MOST_SERIES, SERIES_BITS, sample_columns

__all__ = ["Batch", "Dimensions", "insert_statement"]

_LOW_BITS = MOST_SERIES - 1
#: Text of a host in a dimension table; a longer one names nothing better.
_LONGEST_TEXT = 1000
_LARGEST = 2**63 - 1


def insert_statement(table: str) -> str:
    """The insert of one sample; a second sample of the same second replaces the first."""
    names = ["id", *(["process"] if table == "process" else []), *sample_columns(table)]
    marks = ", ".join("?" * len(names))
    return f"INSERT OR REPLACE INTO {table}_sample ({', '.join(names)}) VALUES ({marks})"  # noqa: S608


@dataclass(slots=True)
class Batch:
    """The rows of one transaction."""

    rows: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict)
    latest: list[tuple[int, float, bytes]] = field(default_factory=list)

    def add(self, table: str, row: tuple[Any, ...]) -> None:
        """Add one sample."""
        self.rows.setdefault(table, []).append(row)


class Dimensions:
    """Numbers for hosts, cards, models and processes, made as they appear."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._known: dict[tuple[str, tuple[Any, ...]], int] = {}
        #: cards, hosts and models beyond the number that a key has room for
        self.refused: set[tuple[str, int]] = set()

    def forget(self) -> None:
        """Ask the database again: a transaction that made numbers was rolled back."""
        self._known.clear()

    def add_view(self, view: HostView, batch: Batch, *, processes: bool) -> None:
        """Add all rows of a view to a batch.

        Of a host that is not up its state alone, at the second when that began: what it said
        last is recorded already, and nothing is known of it since.
        """
        snapshot = view.snapshot if view.status.state is HostState.UP else None
        second = int(snapshot.received_at if snapshot else view.status.since)
        if snapshot is None and view.snapshot and int(view.snapshot.received_at) == second:
            second += 1  # the sample of this very second stays
        host = self._host(view, second)
        self._add(batch, "host", second, host, replace(view, snapshot=snapshot))
        if snapshot is not None:
            for gpu in snapshot.gpus:
                self._add(batch, "gpu", second, self._gpu(host, gpu, second), gpu)
            for engine in snapshot.engines:
                for model in engine.models:
                    number = self._model(host, engine, model, second)
                    self._add(batch, "model", second, number, model)
            for process in (snapshot.processes or ()) if processes else ():
                self._add_process(batch, second, self._process(host, process, second), process)

    def add_latest(self, view: HostView, batch: Batch) -> None:
        """Add a view as a whole, which takes the place of the one before."""
        at = view.snapshot.received_at if view.snapshot else view.status.since
        document = encode_view(view, sparse=True)
        text = json.dumps(document, separators=(",", ":"), allow_nan=False)
        batch.latest.append((self._host(view, int(at)), at, zlib.compress(text.encode(), 1)))

    def _add(self, batch: Batch, table: str, second: int, number: int, record: object) -> None:
        if number >= MOST_SERIES:
            self.refused.add((table, number))
            return
        values = [metric.encode(record) for metric in metrics_of(table)]
        batch.add(table, (second << SERIES_BITS | number, *values))

    def _add_process(self, batch: Batch, second: int, number: int, process: GpuProcess) -> None:
        values = tuple(metric.encode(process) for metric in metrics_of("process"))
        batch.add("process", (second << SERIES_BITS | number & _LOW_BITS, number, *values))

    def _host(self, view: HostView, second: int) -> int:
        return self._number(
            "host",
            (view.host,),
            lambda: {"name": view.host, "address": view.address, "first_seen": second},
        )

    def _gpu(self, host: int, gpu: Gpu, second: int) -> int:
        return self._number(
            "gpu",
            (host, gpu.uuid),
            lambda: {
                "host": host,
                "uuid": gpu.uuid,
                "pci": gpu.pci_id,
                "name": gpu.name,
                "number": gpu.index,
                "parent_uuid": gpu.parent_uuid,
                "first_seen": second,
            },
        )

    def _model(self, host: int, engine: Engine, model: Model, second: int) -> int:
        return self._number(
            "model",
            (host, engine.kind, engine.port, model.name, model.digest),
            lambda: {
                "host": host,
                "engine": engine.kind,
                "port": engine.port or 0,
                "name": model.name,
                "digest": model.digest or "",
                "quantization": model.quantization,
                "first_seen": second,
            },
        )

    def _process(self, host: int, process: GpuProcess, second: int) -> int:
        return self._number(
            "process",
            (host, process.pid, process.start_ticks, process.gpu_uuid),
            lambda: {
                "host": host,
                "pid": process.pid,
                "start_ticks": process.start_ticks or 0,
                "gpu_uuid": process.gpu_uuid,
                "user": process.user,
                "name": process.name,
                "command": process.command,
                "container": process.container,
                "first_seen": second,
            },
        )

    def _number(
        self, table: str, key: tuple[Any, ...], columns: Callable[[], dict[str, Any]]
    ) -> int:
        """The number of a thing; ``key`` is that of its first ``len(key)`` columns."""
        known = self._known.get((table, key))
        if known is not None:
            return known
        values = {name: _clean(value) for name, value in columns().items()}
        names = list(values)[: len(key)]
        where = " AND ".join(f"{name} = ?" for name in names)
        query = f"SELECT id FROM {table} WHERE {where}"  # noqa: S608
        row = self._connection.execute(query, [values[name] for name in names]).fetchone()
        if row is None:
            marks = ", ".join("?" * len(values))
            insert = f"INSERT INTO {table} ({', '.join(values)}) VALUES ({marks})"  # noqa: S608
            row = (self._connection.execute(insert, tuple(values.values())).lastrowid,)
        self._known[(table, key)] = int(row[0])
        return int(row[0])


def _clean(value: Any) -> Any:
    """What SQLite can hold: its text is UTF-8, its whole numbers have 64 bits."""
    if isinstance(value, str):
        return value[:_LONGEST_TEXT].encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, int):
        return max(-_LARGEST, min(_LARGEST, value))
    return value

"""Databases of an older gpumon, a newer one, and one that was killed while it made its own."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from sqlite_utils import Database

from gpumon import metrics
from gpumon.export import columns_of
from gpumon.inventory import Retention
from gpumon.metrics import METRICS, Metric, metrics_of
from gpumon.store import StoreError, open_reader, open_writer
from gpumon.store.schema import migrations
from tests.gpumon.store.conftest import make_view

T = 1_800_000_000
KEEP = Retention()
NEW = Metric("gpu", "bus_width_bits", "", "a metric of tomorrow", lambda gpu: gpu.memory_bus_bits)

#: What is stored must be read as it was meant: a name keeps its scale and its states' order.
#: New states go to the end; another scale needs another name.
FIRST_SCALES = {
    "gpu": (
        "state:1 util_percent:10 memory_util_percent:10 memory_used_bytes:1 memory_total_bytes:1"
        " power_w:1000 power_limit_w:1000 temperature_c:10 memory_temperature_c:10 fan_percent:10"
        " sm_clock_mhz:1 memory_clock_mhz:1 energy_j:1000 pcie_tx_bytes_per_s:1"
        " pcie_rx_bytes_per_s:1 ecc_corrected:1 ecc_uncorrected:1 xid:1"
    ),
    "host": (
        "state:1 nvml_state:1 cpu_percent:10 load_1:100 memory_used_bytes:1 memory_total_bytes:1"
        " swap_used_bytes:1 network_rx_bytes_per_s:1 network_tx_bytes_per_s:1 uptime_s:1"
        " probe_cpu_percent:1000 probe_rss_bytes:1"
    ),
    "model": (
        "size_bytes:1 vram_bytes:1 context_tokens:1 kv_capacity_tokens:1 kv_used_tokens:1"
        " decode_tokens_per_s:100 prefill_tokens_per_s:100 busy_slots:1 context_shifts:1"
    ),
    "process": "memory_bytes:1 sm_percent:10 cpu_percent:10 rss_bytes:1",
}
FIRST_STATES = {
    ("gpu", "state"): "ok lost reset-required asleep no-driver error",
    ("host", "state"): "connecting up stale down blocked disabled",
    ("host", "nvml_state"): (
        "ok absent no-driver nouveau mismatch library-missing no-permission asleep hung error"
        " starting"
    ),
}


@pytest.mark.parametrize("table", FIRST_SCALES)
def test_what_was_stored_keeps_its_scale(table: str) -> None:
    now = {one.name: one.scale for one in metrics_of(table)}
    first = dict(pair.split(":") for pair in FIRST_SCALES[table].split())
    assert {name: now.get(name) for name in first} == {k: int(v) for k, v in first.items()}


@pytest.mark.parametrize("key", FIRST_STATES, ids=".".join)
def test_what_was_stored_keeps_its_states(key: tuple[str, str]) -> None:
    first = tuple(FIRST_STATES[key].split())
    states = metrics.metric(*key).states
    assert states[: len(first)] == first


async def make_first_schema(database: Path) -> list[tuple[int, ...]]:
    """A database as the first gpumon left it; its samples as (table, second, series)."""
    await record(database, T)
    with sqlite3.connect(database) as connection:
        for table in ("gpu", "host", "model"):
            connection.execute(f"UPDATE {table}_sample SET id = (id >> 16) << 12 | (id & 65535)")
        connection.execute("DELETE FROM _sqlite_migrations WHERE name = 'm002_wider_keys'")
        connection.execute("PRAGMA user_version = 1")
        keys = connection.execute("SELECT id >> 12, id & 4095 FROM gpu_sample").fetchall()
    connection.close()
    return keys


async def test_a_database_of_the_first_schema_is_taken_over_with_all_it_holds(
    database: Path,
) -> None:
    before = await make_first_schema(database)
    assert [second for second, _ in before] == [T] * 3
    with pytest.raises(StoreError, match="older gpumon") as refused:
        open_reader(database)
    assert "gpumon collect" in str(refused.value.fix)
    await record(database, T + 1)
    reader = open_reader(database)
    rows = [row for _, rows in reader.export_rows("gpu", T, T + 9) for row in rows]
    assert [row.at for row in rows] == [T] * 3 + [T + 1] * 3
    assert len({row.subject for row in rows}) == 3
    assert [row.values for row in rows[:3]] == [row.values for row in rows[3:]]
    card = next(iter(reader.subjects("gpu")))
    assert [at for at, _ in reader.history("gpu", card, "util_percent", T, T + 9)] == [T, T + 1]
    reader.close()


def add_metric(monkeypatch: pytest.MonkeyPatch) -> None:
    """Be the gpumon of tomorrow."""
    tables = metrics._BY_TABLE | {"gpu": (*metrics._BY_TABLE["gpu"], NEW)}
    monkeypatch.setattr(metrics, "METRICS", (*METRICS, NEW))
    monkeypatch.setattr(metrics, "_BY_TABLE", tables)
    monkeypatch.setattr(metrics, "_BY_NAME", metrics._BY_NAME | {("gpu", NEW.name): NEW})


async def record(database: Path, second: int) -> None:
    writer = open_writer(database, retention=KEEP)
    writer.offer(make_view(second))
    await writer.close()
    assert writer.trouble is None


async def test_a_new_metric_is_a_new_column_and_old_samples_stay(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await record(database, T)
    with monkeypatch.context() as tomorrow:
        add_metric(tomorrow)
        await record(database, T + 1)
        reader = open_reader(database)
        assert columns_of("gpu")[-1] == NEW.name
        rows = [row for _, rows in reader.export_rows("gpu", T, T + 9) for row in rows]
        assert [row.at for row in rows] == [T] * 3 + [T + 1] * 3
        assert rows[0].values[1] == 12.3
        assert {row.values[-1] for row in rows} == {None}
        reader.close()
    await record(database, T + 2)
    reader = open_reader(database)
    assert reader.count_rows("gpu", T, T + 9) == 9, "the older gpumon goes on with it"
    reader.close()
    with sqlite3.connect(database) as connection:
        for table in ("gpu_sample", "gpu_10s", "gpu_1m", "gpu_10m"):
            names = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
            assert any(name.startswith(NEW.name) for name in names), table
    connection.close()


async def test_a_newer_reader_reads_what_an_older_writer_still_writes(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = open_writer(database, retention=KEEP)
    writer.offer(make_view(T))
    await writer.flush()
    add_metric(monkeypatch)
    reader = open_reader(database)
    ((_, rows),) = reader.export_rows("gpu", T, T + 1)
    assert {row.values[-1] for row in rows} == {None}
    card = next(iter(reader.subjects("gpu")))
    assert reader.history("gpu", card, NEW.name, T, T + 1) == [(T, None)]
    assert reader.history("gpu", card, "util_percent", T, T + 1) == [(T, 12.3)]
    reader.close()
    await writer.close()


@pytest.mark.parametrize("step", ["file", "journal", "steps' table"])
async def test_one_killed_while_it_made_its_database_is_no_obstacle(
    database: Path, step: str
) -> None:
    database.parent.mkdir()
    database.touch()
    connection = sqlite3.connect(database, isolation_level=None)
    if step != "file":
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("PRAGMA journal_mode = WAL")
    if step == "steps' table":
        migrations().ensure_migrations_table(Database(connection))
    connection.close()
    await record(database, T)
    reader = open_reader(database)
    assert reader.count_rows("host", T, T + 1) == 1
    reader.close()


async def test_two_that_make_it_at_once_make_it_once(database: Path) -> None:
    """The lock lets one in; the other may come as soon as it has gone."""
    for second in (T, T + 1):
        await record(database, second)
    connection = sqlite3.connect(database)
    steps = connection.execute("SELECT name FROM _sqlite_migrations").fetchall()
    connection.close()
    assert steps == [("m001_first",), ("m002_wider_keys",)]

"""What months of use bring: odd values, moved files, sleeping machines, endless names."""

from __future__ import annotations

import asyncio
import fcntl
import os
import sqlite3
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from gpumon.inventory import Retention
from gpumon.snapshot import GpuProcess, HostView
from gpumon.store import StoreReader, open_reader, open_writer, retention, writer
from gpumon.store.lock import WriterLock, lock_path, read_owner
from gpumon.store.retention import SteadyClock, trim, trim_processes
from gpumon.store.schema import MOST_SERIES
from tests.gpumon.store.conftest import make_view

T = 1_800_000_000
KEEP = Retention()


def seconds_of(reader: StoreReader, table: str = "host") -> list[int]:
    return [row.at for _, rows in reader.export_rows(table, 0, T + 10**6) for row in rows]


def with_gpu(second: float, **fields: object) -> HostView:
    view = make_view(second)
    assert view.snapshot is not None
    gpu = replace(view.snapshot.gpus[0], **fields)  # type: ignore[arg-type]
    return replace(view, snapshot=replace(view.snapshot, gpus=(gpu,)))


@pytest.mark.parametrize(
    "fields",
    [
        {"memory_used_bytes": 2**64},
        {"power_w": float("inf")},
        {"power_w": float("nan")},
        {"index": 2**70},
        {"name": "half \ud800 of a character"},
    ],
    ids=str,
)
async def test_a_value_out_of_all_bounds_stops_no_other(
    database: Path, fields: dict[str, object]
) -> None:
    store = open_writer(database, retention=KEEP)
    store.offer(with_gpu(T, **fields))
    store.offer(make_view(T + 1))
    await store.flush()
    assert store.trouble is None
    await store.close()
    reader = open_reader(database)
    assert seconds_of(reader) == [T, T + 1]
    reader.close()


async def test_a_view_that_no_table_takes_is_left_out_alone(database: Path) -> None:
    store = open_writer(database, retention=KEEP)
    for step in range(5):
        # A list where text should be: no probe line can bring it, a mistake of ours could.
        store.offer(with_gpu(T + step, **({"uuid": None} if step == 2 else {})))
    await store.flush()
    assert store.trouble is None
    await store.close()
    reader = open_reader(database)
    assert seconds_of(reader) == [T, T + 1, T + 3, T + 4]
    reader.close()


async def test_no_tick_is_half_there(database: Path) -> None:
    store = open_writer(database, retention=KEEP)
    connection = store._connection
    connection.execute(
        "CREATE TRIGGER fail BEFORE INSERT ON latest BEGIN SELECT RAISE(FAIL, 'no'); END"
    )
    store.offer(make_view(T))
    await store.flush()
    for table in ("host", "host_sample", "gpu_sample", "model_sample", "process_sample"):
        assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,), table
    connection.execute("DROP TRIGGER fail")
    store.offer(make_view(T + 1))
    await store.close()
    reader = open_reader(database)
    assert seconds_of(reader) == [T + 1]
    assert len(seconds_of(reader, "process")) == 1
    reader.close()


async def test_flushes_at_once_write_each_view_once(database: Path) -> None:
    store = open_writer(database, retention=KEEP)
    for step in range(50):
        store.offer(make_view(T + step))
        if step % 10 == 0:
            await asyncio.sleep(0)
    await asyncio.gather(*(store.flush() for _ in range(4)))
    store.offer(make_view(T + 50))
    await store.close()
    reader = open_reader(database)
    assert seconds_of(reader) == [T + step for step in range(51)]
    reader.close()


async def test_a_cancelled_flush_loses_nothing(database: Path) -> None:
    store = open_writer(database, retention=KEEP)
    for step in range(20):
        store.offer(make_view(T + step))
        task = asyncio.create_task(store.flush())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    await store.close()
    reader = open_reader(database)
    assert seconds_of(reader) == [T + step for step in range(20)]
    reader.close()


async def test_a_try_on_a_failing_disk_costs_the_same_whatever_waits(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_writer(database, retention=KEEP)
    monkeypatch.setattr(writer, "_SLICE_VIEWS", 10)
    tried: list[int] = []
    real = store._write

    def fail(views: list[HostView], now: float) -> None:
        tried.append(len(views))
        raise sqlite3.OperationalError("disk I/O error")

    for step in range(95):
        store.offer(make_view(T + step))
    store._write = fail  # type: ignore[method-assign]
    await store.flush()
    assert tried == [10]
    assert store.trouble is not None
    store._write = real  # type: ignore[method-assign]
    await store.close()
    reader = open_reader(database)
    assert seconds_of(reader) == [T + step for step in range(95)]
    reader.close()


async def test_a_damaged_file_moved_aside_is_followed_by_a_new_one(database: Path) -> None:
    store = open_writer(database, retention=KEEP)
    store.offer(make_view(T))
    await store.flush()
    aside = database.with_name("aside.db")
    database.rename(aside)
    store.offer(make_view(T + 1))
    await store.flush()
    assert store.trouble is None
    reader = open_reader(database)
    assert seconds_of(reader) == [T + 1]
    assert [view.host for view in reader.latest_views()] == ["a"]
    reader.close()
    await store.close()
    reader = open_reader(aside)
    assert seconds_of(reader) == [T], "what was written before stays in the file that was moved"
    reader.close()


async def test_a_removed_folder_is_made_anew_under_a_lock_of_its_own(database: Path) -> None:
    store = open_writer(database, retention=KEEP)
    store.offer(make_view(T))
    await store.flush()
    for path in database.parent.iterdir():
        path.unlink()
    database.parent.rmdir()
    store.offer(make_view(T + 1))
    await store.flush()
    assert store.trouble is None
    assert read_owner(database) == os.getpid()
    reader = open_reader(database)
    assert seconds_of(reader) == [T + 1]
    reader.close()
    await store.close()


async def test_a_file_that_can_t_be_made_anew_is_told_and_tried_again(database: Path) -> None:
    store = open_writer(database, retention=KEEP)
    store.offer(make_view(T))
    await store.flush()
    aside = database.with_name("aside.db")
    database.rename(aside)
    database.mkdir()
    store.offer(make_view(T + 1))
    await store.flush()
    assert store.trouble is not None
    database.rmdir()
    aside.rename(database)
    await store.flush()
    assert store.trouble is None
    await store.close()
    reader = open_reader(database)
    assert seconds_of(reader) == [T, T + 1]
    reader.close()


def test_asking_who_writes_never_refuses_a_writer(database: Path) -> None:
    database.parent.mkdir()
    WriterLock(database).release()
    descriptor = os.open(lock_path(database), os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    timer = threading.Timer(0.015, os.close, (descriptor,))
    timer.start()
    WriterLock(database).release()
    timer.join()


async def test_space_goes_back_to_the_disk_once_much_is_free(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_writer(database, retention=KEEP)
    for step in range(300):
        store.offer(make_view(T + step, gpus=60))
    await store.flush()
    await store.close()
    connection = sqlite3.connect(database, isolation_level=None)

    def free() -> int:
        return int(connection.execute("PRAGMA freelist_count").fetchone()[0])

    trim(connection, KEEP, T + 10 * 86400)
    while trim(connection, KEEP, T + 10 * 86400):
        pass
    before = free()
    assert before > 200
    monkeypatch.setattr(retention, "_SPARE_PAGES", 100)
    trim(connection, KEEP, T + 10 * 86400)
    assert free() == before - 64
    while free() > 100:
        trim(connection, KEEP, T + 10 * 86400)
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


async def test_processes_are_forgotten_with_their_last_sample(database: Path) -> None:
    store = open_writer(database, retention=KEEP)
    for step, pid in enumerate((11, 12, 13)):
        view = make_view(T + 40 * 3600 * step)
        assert view.snapshot is not None
        both = (GpuProcess(pid, "g", 1), GpuProcess(99, "g", 1))
        store.offer(replace(view, snapshot=replace(view.snapshot, processes=both)))
    await store.flush()
    await store.close()
    connection = sqlite3.connect(database, isolation_level=None)
    now = T + 80 * 3600 + 1
    trim(connection, KEEP, now)
    assert trim_processes(connection, KEEP, now) == 1
    pids = connection.execute("SELECT pid FROM process ORDER BY pid").fetchall()
    assert pids == [(12,), (13,), (99,)]
    connection.close()


async def test_more_names_than_a_key_has_room_for_are_told(database: Path) -> None:
    store = open_writer(database, retention=KEEP)
    store._connection.execute(
        "INSERT INTO gpu (id, host, uuid, first_seen) VALUES (?, 1, 'x', 0)", (MOST_SERIES - 2,)
    )
    store.offer(make_view(T))
    await store.flush()
    assert store.trouble is not None
    assert "2 cards or models are not recorded" in store.trouble
    await store.close()
    reader = open_reader(database)
    assert seconds_of(reader, "gpu") == [T]
    assert seconds_of(reader) == [T]
    reader.close()


def test_a_machine_that_slept_still_has_a_steady_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    wall, uptime = time.time(), 1000.0
    monkeypatch.setattr(retention, "_uptime_s", lambda: uptime)
    monkeypatch.setattr(time, "time", lambda: wall)
    clock = SteadyClock()
    wall, uptime = wall + 8 * 3600, uptime + 8 * 3600
    assert clock.is_steady(wall)
    wall += 400 * 86400
    assert not clock.is_steady(wall), "set ahead"
    wall, uptime = wall + 3000, uptime + 3000
    assert not clock.is_steady(wall)
    wall, uptime = wall + 700, uptime + 700
    assert clock.is_steady(wall), "believed after an hour"
    assert clock.is_steady(wall)


async def test_the_columns_of_the_first_schema_stay(database: Path) -> None:
    """A new metric is a new column, which ``extend_tables`` adds; none may go or be renamed."""
    await open_writer(database, retention=KEEP).close()
    connection = sqlite3.connect(database)
    columns = {
        table: [row[1] for row in connection.execute(f"PRAGMA table_info({table}_sample)")][1:]
        for table in ("gpu", "host", "model", "process")
    }
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    connection.close()
    assert version == 2
    first = {
        "gpu": (
            "state util_percent memory_util_percent memory_used_bytes memory_total_bytes power_w"
            " power_limit_w temperature_c memory_temperature_c fan_percent sm_clock_mhz"
            " memory_clock_mhz energy_j pcie_tx_bytes_per_s pcie_rx_bytes_per_s ecc_corrected"
            " ecc_uncorrected xid"
        ).split(),
        "host": (
            "state nvml_state cpu_percent load_1 memory_used_bytes memory_total_bytes"
            " swap_used_bytes network_rx_bytes_per_s network_tx_bytes_per_s uptime_s"
            " probe_cpu_percent probe_rss_bytes"
        ).split(),
        "model": (
            "size_bytes vram_bytes context_tokens kv_capacity_tokens kv_used_tokens"
            " decode_tokens_per_s prefill_tokens_per_s busy_slots context_shifts"
        ).split(),
        "process": "process memory_bytes sm_percent cpu_percent rss_bytes".split(),
    }
    assert {table: set(first[table]) - set(columns[table]) for table in first} == {
        table: set() for table in first
    }

"""What is offered is written, as it was, once a second, and privately."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
import time
from pathlib import Path

import pytest

from gpumon.inventory import Retention
from gpumon.snapshot import GpuState, HostState, HostStatus, HostView
from gpumon.store import open_reader, open_writer
from gpumon.store.schema import ROLLUPS, rollup_id
from gpumon.store.viewer_mark import touch_mark
from tests.gpumon.store.conftest import HOSTILE, make_view

T = 1_800_000_000


async def store(database: Path, *views: HostView) -> None:
    writer = open_writer(database, retention=Retention())
    for view in views:
        writer.offer(view)
    await writer.flush()
    assert writer.trouble is None
    await writer.close()


async def test_a_view_comes_back_as_it_was(database: Path) -> None:
    await store(database, make_view(T))
    reader = open_reader(database)
    (latest,) = reader.latest_views()
    assert latest == make_view(T, stored=True)
    ((_, gpus),) = reader.export_rows("gpu", T, T + 1)
    assert [sample.subject[1] for sample in gpus] == [0, 1, 2]
    first, _, lost = gpus
    assert first.at == T
    assert first.subject[5] == HOSTILE
    assert first.values[:6] == (GpuState.OK, 12.3, None, 2**33, 2**36, 70.125)
    assert lost.values[0] == GpuState.LOST
    assert set(lost.values[1:]) == {None}, "unknown is NULL, never 0"
    ((_, (model,)),) = reader.export_rows("model", T, T + 1)
    assert model.subject[3] == HOSTILE
    assert model.values == (5_000_000_000, None, None, 4096, 100, 31.5, 0.0, 1, 1)
    ((_, (process,)),) = reader.export_rows("process", T, T + 1)
    assert process.values == (2**32, None, None, None)
    reader.close()


async def test_files_and_folder_are_private(database: Path) -> None:
    writer = open_writer(database, retention=Retention())
    writer.offer(make_view(T))
    await writer.flush()
    os.umask(os.umask(0o022))
    for path in database.parent.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
    assert stat.S_IMODE(database.parent.stat().st_mode) == 0o700
    await writer.close()


async def test_history_of_one_card(database: Path) -> None:
    await store(database, *(make_view(T + 2 * step) for step in range(5)))
    reader = open_reader(database)
    subjects = reader.subjects("gpu")
    card = next(number for number, columns in subjects.items() if columns[1] == 1)
    assert reader.history("gpu", card, "util_percent", T, T + 8) == [
        (T + 2 * step, 13.3) for step in range(4)
    ]
    assert reader.history("gpu", card, "temperature_c", T, T + 1) == [(T, None)]
    with pytest.raises(KeyError):
        reader.history("gpu", card, "id; DROP TABLE gpu", T, T + 1)
    reader.close()


async def test_history_is_the_same_by_look_up_as_by_reading_all(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = (0, 1, 2, 5, 9, 10, 400)
    await store(database, *(make_view(T + step, gpus=3 + step % 3) for step in steps))
    reader = open_reader(database)
    spans = [(T, T + 500), (T + 1, T + 9), (T - 50, T), (T + 500, T + 900), (T + 400, T + 401)]
    for card in reader.subjects("gpu"):
        for since, until in spans:
            monkeypatch.setattr("gpumon.store.reader._FEW_SERIES", 1000)
            read = reader.history("gpu", card, "memory_used_bytes", since, until)
            monkeypatch.setattr("gpumon.store.reader._FEW_SERIES", 0)
            assert reader.history("gpu", card, "memory_used_bytes", since, until) == read
            if (since, until) == (T, T + 500) and card == 1:
                assert [at for at, _ in read] == [T + step for step in steps]
    ((process, _),) = reader.subjects("process").items()
    assert reader.history("process", process, "memory_bytes", T, T + 5) == [(T, 2**32)]
    reader.close()


async def test_the_same_second_twice_keeps_the_newer(database: Path) -> None:
    await store(database, make_view(T), make_view(T + 0.5, gpus=1))
    reader = open_reader(database)
    ((_, hosts),) = reader.export_rows("host", T, T + 1)
    assert len(hosts) == 1
    reader.close()


async def test_a_clock_that_went_back_is_written_under_its_own_time(database: Path) -> None:
    await store(database, make_view(T), make_view(T - 3600), make_view(T + 1))
    reader = open_reader(database)
    seconds = [s.at for _, chunk in reader.export_rows("host", 0, T + 10) for s in chunk]
    assert seconds == [T - 3600, T, T + 1]
    reader.close()


async def test_what_says_nothing_new_is_not_written(database: Path) -> None:
    writer = open_writer(database, retention=Retention())
    view = make_view(T)
    for again in (view, view, make_view(T, stored=True), make_view(T + 5, simulated=True)):
        writer.offer(again)
    writer.offer(HostView("b", HostStatus(HostState.CONNECTING, since=T)))
    await writer.flush()
    await writer.close()
    reader = open_reader(database)
    assert reader.host_names() == ["a"]
    assert reader.count_rows("host", 0, T + 10) == 1
    reader.close()


async def test_a_host_that_never_answered_has_its_state_recorded(database: Path) -> None:
    await store(database, HostView("b", HostStatus(HostState.DOWN, since=T)))
    reader = open_reader(database)
    ((_, (sample,)),) = reader.export_rows("host", T, T + 1)
    assert sample.values[:3] == ("down", None, None)
    reader.close()


async def test_statements_of_a_tick_do_not_grow_with_its_rows(database: Path) -> None:
    writer = open_writer(database, retention=Retention())
    seen: list[str] = []
    writer.offer(make_view(T))
    await writer.flush()
    writer._connection.set_trace_callback(lambda text: seen.append(text.split()[0]))

    async def count(step: int, hosts: int) -> dict[str, int]:
        seen.clear()
        for number in range(hosts):
            writer.offer(make_view(T + step, host=f"h{number}"))
        await writer.flush()
        return {word: seen.count(word) for word in ("BEGIN", "COMMIT", "SELECT")}

    await count(10, 20)
    assert await count(12, 20) == await count(14, 2) == {"BEGIN": 1, "COMMIT": 1, "SELECT": 0}
    await writer.close()


async def test_the_newest_view_is_written_often_only_while_somebody_looks(database: Path) -> None:
    writer = open_writer(database, retention=Retention())
    reader = None
    ages = []
    for step in range(3):
        writer.offer(make_view(T + step))
        if step == 2:
            touch_mark(database)
        await writer.flush()
        reader = reader or open_reader(database)
        (latest,) = reader.latest_views()
        assert latest.snapshot is not None
        ages.append(T + step - latest.snapshot.received_at)
    assert ages == [0, 1, 0]
    assert reader is not None
    reader.close()
    await writer.close()


async def test_old_samples_leave_and_the_rest_stays(database: Path) -> None:
    now = time.time()
    old = [make_view(now - 50 * 3600 + step) for step in range(3)]
    await store(database, *old, make_view(now))
    writer = open_writer(database, retention=Retention())
    await writer.flush()
    await writer.close()
    reader = open_reader(database)
    assert reader.count_rows("gpu", 0, int(now) + 10) == 3
    reader.close()


async def test_a_clock_set_ahead_deletes_nothing(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    writer = open_writer(database, retention=Retention())
    writer.offer(make_view(now))
    await writer.flush()
    monkeypatch.setattr(time, "time", lambda: now + 400 * 86400)
    writer.offer(make_view(now + 400 * 86400))
    await writer.flush()
    await writer.close()
    reader = open_reader(database)
    assert reader.count_rows("host", 0, int(now + 500 * 86400)) == 2
    reader.close()


async def test_the_schema_has_its_tables_of_means_ready(database: Path) -> None:
    await store(database, make_view(T))
    with sqlite3.connect(database) as connection:
        for table in ("gpu", "host", "model"):
            for step in ROLLUPS:
                names = {row[1] for row in connection.execute(f"PRAGMA table_info({table}_{step})")}
                assert {"id"} < names
        assert connection.execute("PRAGMA auto_vacuum").fetchone() == (2,)
        assert connection.execute("PRAGMA page_size").fetchone() == (1024,)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()


async def test_a_row_of_means_fits_its_page_and_lies_beside_its_series(database: Path) -> None:
    await store(database, make_view(T))
    connection = sqlite3.connect(database, isolation_level=None)
    names = [row[1] for row in connection.execute("PRAGMA table_info(gpu_10s)")][1:]
    connection.execute("DELETE FROM gpu_10s")
    large = [0.1 if name.endswith("_mean") else 2**40 for name in names]
    marks = ", ".join("?" * (len(names) + 1))
    for series in (1, 4095):
        for bucket in (T, 2**32 - 10):
            connection.execute(
                f"INSERT INTO gpu_10s VALUES ({marks})", [rollup_id(series, bucket), *large]
            )
    record = sum(1 + (8 if name.endswith("_mean") else 6) for name in names)
    assert record + 20 < 1024 - 35, "else each row of means would take a page of its own beside"
    keys = [row[0] for row in connection.execute("SELECT id FROM gpu_10s ORDER BY id")]
    assert [(key >> 32, key & 2**32 - 1) for key in keys] == [
        (1, T), (1, 2**32 - 10), (4095, T), (4095, 2**32 - 10),
    ]  # fmt: skip
    connection.close()


async def test_readers_and_writer_do_not_hinder_each_other(database: Path) -> None:
    writer = open_writer(database, retention=Retention())
    writer.offer(make_view(T))
    await writer.flush()
    task = asyncio.create_task(asyncio.to_thread(_read_for_a_while, database))
    for step in range(30):
        writer.offer(make_view(T + step, gpus=8))
        await writer.flush()
        assert writer.trouble is None
    assert await task > 5
    await writer.close()


def _read_for_a_while(database: Path) -> int:
    reader, rounds, until = open_reader(database), 0, time.monotonic() + 0.5
    while time.monotonic() < until:
        assert reader.latest_views()
        for _ in reader.export_rows("gpu", T, T + 100):
            pass
        rounds += 1
    reader.close()
    return rounds


async def test_the_log_stays_bounded_beside_a_reader(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpumon.store.opening._CHECKPOINT_BYTES", 512 * 1024)
    writer = open_writer(database, retention=Retention())
    writer.offer(make_view(T))
    await writer.flush()
    reader = open_reader(database)
    chunks = reader.export_rows("gpu", T, T + 10_000)
    for step in range(1, 120):
        writer.offer(make_view(T + step, gpus=60))
        await writer.flush()
        if step == 50:
            next(chunks)  # an export begun and left alone
    log = database.with_name(f"{database.name}-wal")
    assert log.stat().st_size < 2**20
    assert database.stat().st_size > 300_000, "so much has gone through it"
    reader.close()
    await writer.close()

"""A database that is locked, damaged, too new, unwritable or on a full disk."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpumon.inventory import Retention
from gpumon.store import (
    Corrupt,
    Foreign,
    Locked,
    StoreError,
    TooNew,
    Unwritable,
    open_reader,
    open_writer,
)
from gpumon.store.filesystem import is_networked, kind_of
from gpumon.store.lock import read_owner
from tests.gpumon.store.conftest import make_view
from tests.rig.need import need

T = 1_800_000_000
KEEP = Retention()


async def fill(database: Path, rows: int = 20) -> None:
    writer = open_writer(database, retention=KEEP)
    for step in range(rows):
        writer.offer(make_view(T + step, gpus=8))
    await writer.flush()
    await writer.close()


async def test_a_second_writer_is_told_who_writes(database: Path) -> None:
    writer = open_writer(database, retention=KEEP)
    with pytest.raises(Locked, match=f"process {os.getpid()} collects") as caught:
        open_writer(database, retention=KEEP)
    assert (caught.value.pid, caught.value.exit_code) == (os.getpid(), 3)
    assert read_owner(database) == os.getpid()
    await writer.close()
    assert read_owner(database) is None
    await open_writer(database, retention=KEEP).close()


async def test_a_damaged_header_is_told_and_left_alone(database: Path) -> None:
    await fill(database)
    damaged = b"not a database, " + database.read_bytes()[16:]
    database.write_bytes(damaged)
    for opening in (lambda: open_writer(database, retention=KEEP), lambda: open_reader(database)):
        with pytest.raises(Corrupt) as caught:
            opening()
        assert str(database) in str(caught.value)
        assert "mv " in (caught.value.fix or "")
    assert database.read_bytes() == damaged
    assert read_owner(database) is None, "the lock was given back"


async def test_damage_in_the_middle_is_found(database: Path) -> None:
    await fill(database, 200)
    content = bytearray(database.read_bytes())
    for page in range(30, len(content) // 4096, 2):
        content[page * 4096 : page * 4096 + 200] = b"\xff" * 200
    database.write_bytes(content)
    with pytest.raises(Corrupt):
        open_writer(database, retention=KEEP)


async def test_another_programs_database_is_left_alone(database: Path) -> None:
    database.parent.mkdir()
    with sqlite3.connect(database) as other:
        other.execute("CREATE TABLE precious (x)")
        other.execute("PRAGMA user_version = 1")
    other.close()
    for opening in (lambda: open_writer(database, retention=KEEP), lambda: open_reader(database)):
        with pytest.raises(Foreign, match="another program's") as caught:
            opening()
        assert "mv " not in (caught.value.fix or "")


async def test_a_newer_schema_is_left_alone(database: Path) -> None:
    await fill(database)
    with sqlite3.connect(database) as other:
        other.execute("PRAGMA user_version = 99")
    other.close()
    for opening in (lambda: open_writer(database, retention=KEEP), lambda: open_reader(database)):
        with pytest.raises(TooNew, match="schema 99 is of a newer gpumon"):
            opening()


async def test_an_empty_or_missing_file_has_nothing_to_read(database: Path) -> None:
    with pytest.raises(StoreError, match="nothing was recorded"):
        open_reader(database)
    database.parent.mkdir()
    database.touch()
    with pytest.raises(StoreError, match="nothing was recorded"):
        open_reader(database)


async def test_a_folder_that_can_t_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Unwritable):
        open_writer(tmp_path / "file" / "gpumon.db", retention=KEEP)
    with pytest.raises(StoreError):
        open_writer(tmp_path, retention=KEEP)


async def test_a_lock_of_another_program_is_waited_out(database: Path) -> None:
    writer = open_writer(database, retention=KEEP)
    other = sqlite3.connect(database, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    writer._connection.execute("PRAGMA busy_timeout = 50")
    writer.offer(make_view(T))
    await writer.flush()
    assert writer.trouble is not None
    assert "locked by another program" in writer.trouble
    other.execute("ROLLBACK")
    other.close()
    await writer.flush()
    assert writer.trouble is None
    await writer.close()
    reader = open_reader(database)
    assert reader.count_rows("host", T, T + 1) == 1
    reader.close()


async def test_what_waits_too_long_is_dropped_and_counted(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = open_writer(database, retention=KEEP)
    other = sqlite3.connect(database, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    writer._connection.execute("PRAGMA busy_timeout = 1")
    began = time.monotonic()
    for minute in range(10):
        monkeypatch.setattr(time, "monotonic", lambda at=began + 60 * minute: at)
        writer.offer(make_view(T + 60 * minute))
        await writer.flush()
    assert writer.trouble is not None
    assert "4 samples dropped" in writer.trouble
    other.close()
    await writer.close()
    reader = open_reader(database)
    ((_, rows),) = reader.export_rows("host", T, T + 3600)
    assert [row.at for row in rows] == [T + 60 * minute for minute in range(4, 10)]
    reader.close()


@pytest.fixture
def tiny_disk(tmp_path: Path):
    need("root")
    mount = tmp_path / "tiny"
    mount.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", mount], check=True)
    yield mount
    subprocess.run(["umount", mount], check=True)


async def test_a_full_disk_stops_nothing_and_loses_nothing_written(tiny_disk: Path) -> None:
    database = tiny_disk / "gpumon.db"
    writer = open_writer(database, retention=KEEP)
    written = 0
    for step in range(400):
        writer.offer(make_view(T + step, gpus=40))
        await writer.flush()
        if writer.trouble:
            break
        written += 1
    assert writer.trouble is not None
    assert "the disk is full" in writer.trouble
    assert 0 < written < 399
    reader = open_reader(database)
    assert reader.count_rows("host", T, T + 1000) == written, "all that was acknowledged"
    assert reader.latest_views()
    reader.close()
    subprocess.run(["mount", "-o", "remount,size=16m", tiny_disk], check=True)
    await writer.flush()
    assert writer.trouble is None, "it goes on by itself once there is room"
    await writer.close()
    reader = open_reader(database)
    assert reader.count_rows("host", T, T + 1000) == written + 1
    reader.close()


async def test_a_read_only_disk_is_told_and_can_be_read(tiny_disk: Path) -> None:
    database = tiny_disk / "gpumon.db"
    await fill(database, 3)
    subprocess.run(["mount", "-o", "remount,ro", tiny_disk], check=True)
    with pytest.raises(Unwritable, match="Read-only file system"):
        open_writer(database, retention=KEEP)
    reader = open_reader(database)
    assert reader.count_rows("host", T, T + 10) == 3
    assert reader.lock_owner() is None
    reader.touch_viewer_mark()
    reader.close()


WRITE_FOR_EVER = """
import asyncio, sys
from pathlib import Path
from gpumon.inventory import Retention
from gpumon.store import open_writer
from tests.gpumon.store.conftest import make_view

async def main():
    writer = open_writer(Path(sys.argv[1]), retention=Retention())
    second = int(sys.argv[2])
    while True:
        writer.offer(make_view(second, gpus=8))
        await writer.flush()
        if writer.trouble is None:
            print(second, flush=True)
        second += 1

asyncio.run(main())
"""


def test_kill_9_loses_no_acknowledged_tick(database: Path) -> None:
    second = T
    acknowledged: list[int] = []
    for round_number in range(10):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITE_FOR_EVER, str(database), str(second)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        ticks = 5 + 7 * round_number
        acknowledged += [int(process.stdout.readline()) for _ in range(ticks)]
        process.send_signal(signal.SIGKILL)
        rest, _ = process.communicate()
        acknowledged += [int(line) for line in rest.split()]
        second = acknowledged[-1] + 10
    reader = open_reader(database)
    stored = {s.at for _, chunk in reader.export_rows("host", T, T + 10**6) for s in chunk}
    cards = [s.at for _, chunk in reader.export_rows("gpu", T, T + 10**6) for s in chunk]
    reader.close()
    assert not set(acknowledged) - stored
    assert all(cards.count(at) == 9 for at in stored), "no tick is half there"
    with sqlite3.connect(database) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


def test_network_file_systems_are_told_apart(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
        "30 22 0:40 / /home rw shared:2 - nfs4 server:/home rw\n"
        "31 30 8:2 / /home/local\\040disk rw - xfs /dev/sdb rw\n"
        "garbage\n"
    )
    assert kind_of(Path("/home/me/.local/state"), mounts) == "nfs4"
    assert is_networked(Path("/home/me"), mounts)
    assert kind_of(Path("/home/local disk/x"), mounts) == "xfs"
    assert not is_networked(Path("/var/lib"), mounts)
    assert kind_of(Path("/"), tmp_path / "missing") is None


async def test_without_shared_memory_no_log_is_used(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpumon.store.opening.is_networked", lambda path: True)
    await fill(database)
    with sqlite3.connect(database) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    connection.close()
    reader = open_reader(database)
    assert reader.count_rows("host", T, T + 100) == 20
    reader.close()


async def test_closing_twice_is_harmless(database: Path) -> None:
    writer = open_writer(database, retention=KEEP)
    task = asyncio.create_task(writer.run())
    writer.offer(make_view(T))
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await writer.close()
    await writer.close()
    reader = open_reader(database)
    assert reader.count_rows("host", T, T + 1) == 1, "closing writes what waits"
    reader.close()

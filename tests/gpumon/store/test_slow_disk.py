"""Disks that hang, readers that do not let go, folders shared over a network."""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import sqlite3
import threading
import time
from pathlib import Path

import pytest

from gpumon.inventory import Retention
from gpumon.snapshot import HostView
from gpumon.store import Locked, StoreWriter, open_reader, open_writer, writer
from gpumon.store.filesystem import is_networked
from gpumon.store.lock import lock_path, read_owner
from tests.gpumon.store.conftest import make_view

T = 1_800_000_000
KEEP = Retention()


async def test_a_write_that_hangs_is_told_and_offers_never_wait(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_writer(database, retention=KEEP)
    go_on, begun = threading.Event(), threading.Event()
    real = StoreWriter._write

    def hang(self: StoreWriter, views: list[HostView], now: float) -> None:
        begun.set()
        go_on.wait(30)
        real(self, views, now)

    monkeypatch.setattr(StoreWriter, "_write", hang)
    store.offer(make_view(T))
    flushing = asyncio.create_task(store.flush())
    await asyncio.to_thread(begun.wait, 30)
    assert store.trouble is None
    began = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: began + 30)
    assert store.trouble is not None
    assert "the disk does not answer since 30 s" in store.trouble
    for minute in range(10):
        monkeypatch.setattr(time, "monotonic", lambda at=began + 60 * minute: at)
        store.offer(make_view(T + 1 + minute))
    assert len(store._waiting) == 6, "five minutes of it, whatever the disk does"
    monkeypatch.undo()
    go_on.set()
    await flushing
    assert store.trouble is None
    await store.close()
    reader = open_reader(database)
    seconds = [row.at for _, rows in reader.export_rows("host", T, T + 99) for row in rows]
    assert seconds == [T, *range(T + 5, T + 11)]
    reader.close()


async def test_a_program_that_does_not_let_go_of_the_log_is_told(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpumon.store.opening._CHECKPOINT_BYTES", 64 * 1024)
    monkeypatch.setattr("gpumon.store.opening._LOG_BYTES", 64 * 1024)
    monkeypatch.setattr(writer, "_LARGE_LOG_BYTES", 512 * 1024)
    store = open_writer(database, retention=KEEP)
    store.offer(make_view(T))
    await store.flush()
    other = sqlite3.connect(database, isolation_level=None)
    other.execute("BEGIN")
    other.execute("SELECT * FROM host").fetchall()
    step = 0
    while store.trouble is None and step < 2000:
        step += 1
        store.offer(make_view(T + step, gpus=60))
        await store.flush()
    assert store.trouble is not None
    assert "does not let go" in store.trouble
    assert "not recording" not in store.trouble, "it is recorded all the same"
    other.close()
    for _ in range(100):
        step += 1
        store.offer(make_view(T + step, gpus=60))
        await store.flush()
    assert store.trouble is None
    await store.close()
    reader = open_reader(database)
    assert reader.count_rows("host", T, T + step + 1) == step + 1
    reader.close()


@pytest.mark.parametrize(
    ("kind", "networked"),
    [
        ("nfs4", True),
        ("cifs", True),
        ("9p", True),
        ("fuse.sshfs", True),
        ("fuse.unheard-of", True),
        ("fuse", True),
        ("fuseblk", False),
        ("virtiofs", True),
        ("ext4", False),
        ("xfs", False),
        ("btrfs", False),
        ("zfs", False),
        ("overlay", False),
        ("tmpfs", False),
    ],
)
def test_file_systems(tmp_path: Path, kind: str, networked: bool) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"22 1 8:1 / / rw - {kind} source rw\n")
    assert is_networked(Path("/home"), mounts) is networked


async def test_on_a_network_folder_a_viewer_reads_while_it_is_written(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpumon.store.opening.is_networked", lambda path: True)
    store = open_writer(database, retention=KEEP)
    (mode,) = store._connection.execute("PRAGMA journal_mode").fetchone()
    assert mode == "truncate"
    store.offer(make_view(T))
    await store.flush()
    reader = open_reader(database)
    for step in range(1, 20):
        assert len(reader.latest_views()) == 1
        assert reader.count_rows("host", T, T + 99) == step
        store.offer(make_view(T + step))
        await store.flush()
        assert store.trouble is None
    assert not database.with_name(f"{database.name}-shm").exists()
    reader.close()
    await store.close()


async def test_a_writer_on_another_machine_is_named_with_it(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(socket, "gethostname", lambda: "node7")
        store = open_writer(database, retention=KEEP)
    with pytest.raises(Locked, match=f"process {os.getpid()} on node7 collects") as caught:
        open_writer(database, retention=KEEP)
    assert caught.value.pid == read_owner(database) == os.getpid()
    await store.close()


def test_a_lock_file_of_an_older_form_or_an_odd_one_is_no_trouble(database: Path) -> None:
    database.parent.mkdir()
    for content, pid in ((b"42\n", 42), (b"", None), (b"\xff\xfe", None), (b"x\ny\n", None)):
        lock_path(database).write_bytes(content)
        with lock_path(database).open("r+") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            with pytest.raises(Locked) as caught:
                open_writer(database, retention=KEEP)
            assert caught.value.pid == pid
            assert read_owner(database) == (pid or 0)

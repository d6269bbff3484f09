"""A database that is damaged while it is used, and how a person gets on with a new one."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest

from gpumon.inventory import Retention
from gpumon.store import Corrupt, Locked, StoreError, open_reader, open_writer, set_aside
from gpumon.store.lock import read_owner
from tests.gpumon.store.conftest import make_view

T = 1_800_000_000
KEEP = Retention()


async def fill(database: Path, ticks: int = 60) -> None:
    writer = open_writer(database, retention=KEEP)
    for step in range(ticks):
        writer.offer(make_view(T + step, gpus=8))
    await writer.close()


def damage(database: Path) -> None:
    """Write over every page but the first."""
    size = database.stat().st_size
    with database.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (size - 4096))


def hosts_at(database: Path) -> list[int]:
    reader = open_reader(database)
    seconds = [row.at for _, rows in reader.export_rows("host", 0, T + 10**6) for row in rows]
    reader.close()
    return seconds


async def test_damage_while_it_is_used_is_told_and_nothing_is_moved_by_itself(
    database: Path,
) -> None:
    await fill(database)
    writer = open_writer(database, retention=KEEP)
    damage(database)
    # As in weeks of use: what was read at the start is not held in memory for ever.
    writer._connection.execute("PRAGMA shrink_memory")
    for step in (100, 101):
        writer.offer(make_view(T + step))
        await writer.flush()
        assert writer.trouble is not None
        assert str(database) in writer.trouble
        assert "damaged" in writer.trouble
        assert "next: mv " in writer.trouble
    assert [path for path in database.parent.iterdir() if "corrupt" in path.name] == []
    aside = await writer.set_aside()
    assert aside is not None
    assert aside.name.startswith("gpumon.db.corrupt-20")
    assert writer.trouble is None, "it goes on by itself"
    await writer.close()
    assert hosts_at(database) == [T + 100, T + 101], "what waited is in the new file"


async def test_a_damaged_file_is_moved_when_asked_for(database: Path) -> None:
    await fill(database)
    damage(database)
    with pytest.raises(Corrupt):
        open_writer(database, retention=KEEP)
    content = database.read_bytes()
    aside = set_aside(database)
    assert aside is not None
    assert aside.read_bytes() == content
    await open_writer(database, retention=KEEP).close()
    assert hosts_at(database) == []
    damage(database)
    second = set_aside(database)
    assert second not in (None, aside), "an earlier one is never written over"


async def test_the_log_goes_along(database: Path) -> None:
    await fill(database, 3)
    connection = sqlite3.connect(database)
    connection.execute("UPDATE host SET address = 'from the log'")
    connection.commit()
    # As a crash leaves it: a file and a log that belong together.
    copy = database.parent / "crashed.db"
    for ending in ("", "-wal"):
        content = Path(f"{database}{ending}").read_bytes()
        Path(f"{copy}{ending}").write_bytes(content)
    connection.close()
    aside = set_aside(copy)
    assert aside is not None
    assert not Path(f"{copy}-wal").exists()
    with sqlite3.connect(aside) as moved:
        assert moved.execute("SELECT address FROM host").fetchone() == ("from the log",)
    moved.close()


async def test_a_file_in_use_is_not_moved(database: Path) -> None:
    writer = open_writer(database, retention=KEEP)
    with pytest.raises(Locked, match=f"process {os.getpid()}"):
        set_aside(database)
    await writer.close()
    assert database.exists()
    assert read_owner(database) is None
    assert set_aside(database.with_name("none.db")) is None


async def test_a_fix_that_is_pasted_into_a_shell_moves_file_and_log(tmp_path: Path) -> None:
    folder = tmp_path / "a folder; with 'quotes'"
    folder.mkdir()
    for ending in ("", "-wal"):
        (folder / f"g.db{ending}").write_bytes(b"x")
    fix = Corrupt(folder / "g.db", "malformed").fix
    assert fix is not None
    assert os.system(f"set -e; {fix}") == 0  # it is a shell's line
    assert sorted(path.name for path in folder.iterdir()) == ["g.db.damaged", "g.db.damaged-wal"]


async def test_a_folder_that_can_t_be_written_is_told(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(database, 1)

    def refuse(self: Path, target: object) -> Path:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(StoreError, match="Permission denied"):
        set_aside(database)
    assert read_owner(database) is None

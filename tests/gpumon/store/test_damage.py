"""A database that is damaged while it is used, and how a person gets on with a new one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpumon.inventory import Retention
from gpumon.store import Corrupt, open_reader, open_writer
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
    assert [path for path in database.parent.iterdir() if "damaged" in path.name] == []
    assert os.system(writer.trouble.partition("next: ")[2]) == 0
    await writer.flush()
    assert writer.trouble is None, "it goes on by itself"
    assert database.with_name("gpumon.db.damaged").exists()
    await writer.close()
    assert hosts_at(database) == [T + 100, T + 101], "what waited is in the new file"


async def test_a_damaged_file_is_left_as_it_is_until_it_is_moved(database: Path) -> None:
    await fill(database)
    damage(database)
    content = database.read_bytes()
    with pytest.raises(Corrupt) as refused:
        open_writer(database, retention=KEEP)
    assert database.read_bytes() == content
    assert refused.value.fix is not None
    os.system(refused.value.fix)
    assert database.with_name("gpumon.db.damaged").read_bytes() == content
    await open_writer(database, retention=KEEP).close()
    assert hosts_at(database) == []


async def test_a_fix_that_is_pasted_into_a_shell_moves_file_and_log(tmp_path: Path) -> None:
    folder = tmp_path / "a folder; with 'quotes'"
    folder.mkdir()
    for ending in ("", "-wal"):
        (folder / f"g.db{ending}").write_bytes(b"x")
    fix = Corrupt(folder / "g.db", "malformed").fix
    assert fix is not None
    assert os.system(f"set -e; {fix}") == 0  # it is a shell's line
    assert sorted(path.name for path in folder.iterdir()) == ["g.db.damaged", "g.db.damaged-wal"]

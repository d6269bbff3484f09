"""Moving a damaged database away, so that a new one can take its place. Only when asked."""

from __future__ import annotations

import time
from pathlib import Path

from gpumon.store.errors import explain
from gpumon.store.lock import WriterLock

__all__ = ["move_aside", "set_aside"]


def set_aside(path: Path) -> Path | None:
    """Move a database that nobody writes to ``FILE.corrupt-TIME``; its new name.

    None where there is no such file. Raises ``Locked`` where a gpumon writes into it, and
    ``StoreError``.
    """
    path = path.absolute()
    if not path.exists():
        return None
    lock = WriterLock(path)
    try:
        return move_aside(path)
    finally:
        lock.release()


def move_aside(path: Path) -> Path | None:
    """The same, for the holder of the lock. The log goes along: it holds the newest samples."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    aside = path.with_name(f"{path.name}.corrupt-{stamp}")
    number = 1
    while aside.exists():
        number += 1
        aside = path.with_name(f"{path.name}.corrupt-{stamp}-{number}")
    try:
        path.rename(aside)
        for ending in ("-wal", "-shm", "-journal"):
            beside = path.with_name(f"{path.name}{ending}")
            if beside.exists():
                beside.rename(f"{aside}{ending}")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise explain(path, error) from None
    return aside

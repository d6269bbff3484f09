"""What can keep the database from being used, by cause.

::

    StoreError
    ├── Locked      another gpumon writes
    ├── Corrupt     the file is damaged, or no database
    ├── Foreign     another program's database
    ├── TooNew      written by a newer gpumon
    ├── Full        no space left
    └── Unwritable  no permission, read-only, or no folder
"""

from __future__ import annotations

import errno
import shlex
import socket
import sqlite3
from pathlib import Path

from gpumon.errors import GpumonError

__all__ = ["Corrupt", "Foreign", "Full", "Locked", "StoreError", "TooNew", "Unwritable", "explain"]


class StoreError(GpumonError):
    """The database can't be used."""

    exit_code = 3


class Locked(StoreError):
    """Another process holds the lock; ``pid`` is its number where it can be told."""

    def __init__(self, path: Path, pid: int | None, machine: str | None = None) -> None:
        who = f"process {pid}" if pid else "another process"
        if machine and machine != socket.gethostname():
            who += f" on {machine}"
        super().__init__(
            f"{path}: {who} collects into it already",
            "gpumon shows what that one collects; or name another file with --db",
        )
        self.pid = pid


class Corrupt(StoreError):
    """The file is damaged; nothing in it was changed."""

    def __init__(self, path: Path, reason: str) -> None:
        # The log goes with its file: it holds the newest samples, which .recover reads too.
        file, aside = shlex.quote(str(path)), shlex.quote(f"{path}.damaged")
        super().__init__(
            f"{path}: the database is damaged ({reason}); it was left as it is",
            f"mv {file} {aside}; mv {file}-wal {aside}-wal"
            f"  # a new one is made; try: sqlite3 {aside} .recover",
        )


class Foreign(StoreError):
    """It holds something else's tables; it was left as it is."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"{path}: this is another program's database; it was left as it is",
            "name another file with --db",
        )


class TooNew(StoreError):
    """A newer gpumon wrote it; it was left as it is."""

    def __init__(self, path: Path, version: int, known: int) -> None:
        super().__init__(
            f"{path}: schema {version} is of a newer gpumon; this one knows up to {known}",
            "update gpumon, or name another file with --db",
        )


class Full(StoreError):
    """No space is left on the disk."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path}: the disk is full", f"make room: df -h {path.parent}")


class Unwritable(StoreError):
    """The file or its folder can't be made or written."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}", "name another file with --db")


def explain(path: Path, error: Exception) -> StoreError:
    """The cause of an error of SQLite or of the system."""
    if isinstance(error, StoreError):
        return error
    text = str(error)
    code = getattr(error, "sqlite_errorcode", None)
    primary = code & 0xFF if isinstance(code, int) else None
    if primary in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return Corrupt(path, text)
    if primary == sqlite3.SQLITE_FULL:
        return Full(path)
    if primary in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreError(f"{path}: locked by another program", "end the program that holds it")
    if primary == sqlite3.SQLITE_IOERR:
        return StoreError(f"{path}: the disk failed ({text})", "look at its errors: dmesg")
    if primary == sqlite3.SQLITE_PROTOCOL:
        return StoreError(
            f"{path}: its file system can't lock files ({text})",
            "name a file on a local disk: --db",
        )
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Full(path)
    if isinstance(error, OSError):
        return Unwritable(path, error.strerror or text)
    if primary in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
        return Unwritable(path, text)
    return StoreError(f"{path}: {text}")

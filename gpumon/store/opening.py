"""Opening the database file: safely, privately, and by its cause where it can't be."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path
from urllib.parse import quote

from gpumon.store.errors import Corrupt, Foreign, StoreError, TooNew, Unwritable, explain
from gpumon.store.filesystem import is_networked
from gpumon.store.schema import VERSION, extend_tables, is_ours, migrations, read_version

__all__ = ["connect_reader", "connect_writer", "make_folder"]

#: The write-ahead log is cut back to this after a checkpoint.
_LOG_BYTES = 64 * 1024 * 1024
#: The log goes into the database when it has grown so far: a page that changed every second
#: since is then written once.
_CHECKPOINT_BYTES = 16 * 1024 * 1024
#: A commit writes whole pages, and most of its tables gain a row or two a second only: pages
#: of 2048 bytes make 1.5 times as much, of 4096 twice. Smaller ones would not hold a row of
#: means: what a table's leaf keeps of one is a page less 35 bytes (sqlite.org/fileformat2.html,
#: 1.6).
_PAGE_BYTES = 1024
_BUSY_S = 2.0


def make_folder(path: Path) -> None:
    """Make the database's folder, for its owner only. Raises ``Unwritable``."""
    try:
        if not path.parent.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise Unwritable(path, error.strerror or str(error)) from None


def _make_private(path: Path) -> None:
    """Make the file readable by its owner only, before SQLite writes into it."""
    make_folder(path)
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        if path.stat().st_mode & 0o077 and path.stat().st_uid == os.getuid():
            path.chmod(0o600)
    except OSError as error:
        raise Unwritable(path, error.strerror or str(error)) from None


def connect_writer(path: Path) -> sqlite3.Connection:
    """Open for writing, with the newest schema. Raises a ``StoreError``.

    The connection may be used by one thread at a time.
    """
    _make_private(path)
    networked = is_networked(path.parent)
    try:
        connection = sqlite3.connect(
            path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False
        )
    except (sqlite3.Error, OSError) as error:
        raise explain(path, error) from None
    try:
        _prepare(connection, path, networked=networked)
    except (sqlite3.Error, OSError) as error:
        connection.close()
        raise explain(path, error) from None
    except StoreError:
        connection.close()
        raise
    return connection


def _prepare(connection: sqlite3.Connection, path: Path, *, networked: bool) -> None:
    version = read_version(connection)
    if not is_ours(connection):
        raise Foreign(path)
    if version > VERSION:
        raise TooNew(path, version, VERSION)
    if not version:
        connection.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    if networked:
        # No shared memory there: a rollback journal. It is locked for the moment of a commit
        # only, so that viewers can read in between.
        connection.execute("PRAGMA journal_mode = TRUNCATE")
        connection.execute("PRAGMA synchronous = FULL")
    else:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute(f"PRAGMA journal_size_limit = {_LOG_BYTES}")
    page_bytes = connection.execute("PRAGMA page_size").fetchone()[0]
    connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_BYTES // page_bytes}")
    if version:
        problem = (
            connection.execute("PRAGMA quick_check(1)").fetchone()[0] if _is_small(path) else "ok"
        )
        if problem != "ok":
            raise Corrupt(path, str(problem).splitlines()[0][:100])
    if version < VERSION:
        from sqlite_utils import Database

        migrations().apply(Database(connection))
    extend_tables(connection)


def _is_small(path: Path) -> bool:
    """True where a check of the whole file takes a moment only."""
    with contextlib.suppress(OSError):
        return path.stat().st_size < 8 * 1024 * 1024
    return False


def connect_reader(path: Path) -> sqlite3.Connection:
    """Open read-only. Raises a ``StoreError``."""
    if not path.exists():
        raise StoreError(f"{path}: nothing was recorded there yet", "run gpumon or gpumon collect")
    try:
        connection, version = _open_to_read(path, "mode=ro")
    except sqlite3.OperationalError as error:
        if not _is_at_rest(path):
            raise explain(path, error) from None
        try:
            connection, version = _open_to_read(path, "immutable=1")
        except sqlite3.Error as second:
            raise explain(path, second) from None
    except (sqlite3.Error, OSError) as error:
        raise explain(path, error) from None
    if not is_ours(connection):
        connection.close()
        raise Foreign(path)
    if version > VERSION:
        connection.close()
        raise TooNew(path, version, VERSION)
    if version == 0:
        connection.close()
        raise StoreError(f"{path}: nothing was recorded there yet", "run gpumon or gpumon collect")
    if version < VERSION:
        connection.close()
        raise StoreError(
            f"{path}: an older gpumon made it, in schema {version}",
            "run gpumon or gpumon collect on it once, which brings it to this one's",
        )
    return connection


def _open_to_read(path: Path, how: str) -> tuple[sqlite3.Connection, int]:
    """A connection, and the schema it found."""
    connection = sqlite3.connect(
        f"file:{quote(str(path))}?{how}",
        uri=True,
        timeout=_BUSY_S,
        isolation_level=None,
        check_same_thread=False,
    )
    try:
        return connection, read_version(connection)
    except sqlite3.Error:
        connection.close()
        raise


def _is_at_rest(path: Path) -> bool:
    """True where nothing can change the file, and nothing of it lies in a log.

    Where its folder can't be written, SQLite can't make the shared memory beside it, which it
    wants also for reading (sqlite.org/wal.html, "Read-Only Databases").
    """
    log = path.with_name(f"{path.name}-wal")
    has_log = log.exists() and log.stat().st_size > 0
    return not has_log and not os.access(path.parent, os.W_OK)

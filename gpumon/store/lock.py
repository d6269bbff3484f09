"""One writer: an advisory lock beside the database, with the holder's pid in it."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import time
from pathlib import Path

from gpumon.store.errors import Locked, Unwritable

__all__ = ["WriterLock", "lock_path", "read_owner"]


_TRIES = 5
_BETWEEN_TRIES_S = 0.01


def lock_path(database: Path) -> Path:
    """The lock's file."""
    return database.with_name(f"{database.name}.lock")


class WriterLock:
    """Held until ``release`` or the end of the process, also by kill -9."""

    def __init__(self, database: Path) -> None:
        """Take it. Raises ``Locked`` and ``Unwritable``."""
        self._path = path = lock_path(database)
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise Unwritable(path, error.strerror or str(error)) from None
        if not self._take():
            os.close(self._descriptor)
            raise Locked(database, *_read_holder(path))
        # The machine's name too: a home folder may be shared by many.
        text = f"{os.getpid()}\n{socket.gethostname()}\n".encode()
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, text, 0)

    def _take(self) -> bool:
        """Try a few times: ``read_owner`` of another process holds it for microseconds."""
        for _ in range(_TRIES):
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                    os.close(self._descriptor)
                    raise Unwritable(self._path, f"can't be locked: {error.strerror}") from None
                time.sleep(_BETWEEN_TRIES_S)
            else:
                return True
        return False

    def is_in_place(self) -> bool:
        """False where its file was removed: then another process could take a new one."""
        try:
            return os.path.samestat(os.fstat(self._descriptor), self._path.stat())
        except OSError:
            return False

    def release(self) -> None:
        """Give it back. The file stays: removing it would race with another's taking."""
        os.close(self._descriptor)


def _read_holder(path: Path) -> tuple[int | None, str | None]:
    """Pid and machine of who holds it, None where that can't be told."""
    try:
        pid, _, machine = path.read_text(encoding="ascii").strip().partition("\n")
    except (OSError, UnicodeDecodeError):
        return None, None
    return (int(pid) if pid.isdecimal() else None), machine or None


def read_owner(database: Path) -> int | None:
    """Pid of the process that holds the lock; None where nobody does.

    The lock itself is asked, not the pid, which may be another process's by now.
    """
    path = lock_path(database)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return _read_holder(path)[0] or 0
    else:
        return None
    finally:
        os.close(descriptor)

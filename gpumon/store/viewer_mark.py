"""A file that says that somebody looks: then the writer keeps the newest views fresh."""

from __future__ import annotations

import os
import time
from pathlib import Path

__all__ = ["is_viewed", "touch_mark"]

_FRESH_S = 5.0


def _path(database: Path) -> Path:
    return database.with_name(f"{database.name}.viewed")


def touch_mark(database: Path) -> None:
    """Say that somebody looks now; where that can't be written, views come every 10 s."""
    path = _path(database)
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
        os.utime(path)
    except OSError:
        return


def is_viewed(database: Path) -> bool:
    """True while somebody looks."""
    try:
        return abs(time.time() - _path(database).stat().st_mtime) < _FRESH_S
    except OSError:
        return False

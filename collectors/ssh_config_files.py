"""Which files ssh's configuration is made of, and whether they changed."""

from __future__ import annotations

import glob
import os
import shlex
import time
from dataclasses import dataclass, field
from pathlib import Path

from gpumon.collectors.ssh_tokens import home_directory

__all__ = ["ConfigFiles", "Stamp"]

#: path, mtime in ns, size; None for a file that is not there
Stamp = tuple[tuple[str, int, int] | tuple[str, None, None], ...]

_DEPTH = 16
_SYSTEM = Path("/etc/ssh/ssh_config")
#: looking again more often than this would cost more than it tells
_FRESH_S = 1.0


@dataclass(slots=True)
class _Parsed:
    """What one file says that matters here."""

    mtime_ns: int
    size: int
    includes: tuple[str, ...] = ()
    volatile: bool = False
    keywords: frozenset[str] = frozenset()


@dataclass(slots=True)
class ConfigFiles:
    """The config files in use: ``-F FILE`` alone, or the user's and the system's."""

    explicit: Path | None = None
    _parsed: dict[Path, _Parsed] = field(default_factory=dict)
    _stamp: Stamp = ()
    _volatile: bool = False
    _keywords: frozenset[str] = frozenset()
    _looked_at: float = -_FRESH_S

    def stamp(self) -> Stamp | None:
        """Changes when any of the files does; None where an answer must not be kept.

        That is where a ``Match exec`` or ``localnetwork`` decides: the same files may
        then say something else in a minute.
        """
        now = time.monotonic()
        if now - self._looked_at >= _FRESH_S:
            self._look()
            self._looked_at = now
        return None if self._volatile else self._stamp

    @property
    def keywords(self) -> frozenset[str]:
        """Every keyword that stands anywhere in the files, in lower case."""
        self.stamp()
        return self._keywords

    def _look(self) -> None:
        self._volatile = False
        self._keywords = frozenset()
        entries: dict[str, tuple[str, int, int] | tuple[str, None, None]] = {}
        if self.explicit is not None:
            self._walk(self.explicit, home_directory() / ".ssh", entries, 0)
        else:
            self._walk(home_directory() / ".ssh" / "config", home_directory() / ".ssh", entries, 0)
            self._walk(_SYSTEM, _SYSTEM.parent, entries, 0)
        self._stamp = tuple(entries.values())

    def _walk(
        self,
        path: Path,
        base: Path,
        entries: dict[str, tuple[str, int, int] | tuple[str, None, None]],
        depth: int,
    ) -> None:
        if str(path) in entries or depth > _DEPTH:
            return
        try:
            stat = path.stat()
        except OSError:
            entries[str(path)] = (str(path), None, None)
            return
        entries[str(path)] = (str(path), stat.st_mtime_ns, stat.st_size)
        parsed = self._parsed.get(path)
        if parsed is None or (parsed.mtime_ns, parsed.size) != (stat.st_mtime_ns, stat.st_size):
            parsed = _read(path, stat)
            self._parsed[path] = parsed
        self._volatile = self._volatile or parsed.volatile
        self._keywords |= parsed.keywords
        for pattern in parsed.includes:
            full = str(base / Path(pattern).expanduser())
            names = sorted(glob.glob(full))  # noqa: PTH207 - the pattern may be absolute
            # a plain name whose file is yet to be made counts as well
            for name in names or [full]:
                self._walk(Path(name), base, entries, depth + 1)


def _read(path: Path, stat: os.stat_result) -> _Parsed:
    """Find Include and Match lines; a file that can't be read has none."""
    parsed = _Parsed(stat.st_mtime_ns, stat.st_size)
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return parsed
    includes: list[str] = []
    keywords: set[str] = set()
    for line in text.splitlines():
        keyword, _, rest = line.strip().replace("=", " ", 1).partition(" ")
        if keyword and not keyword.startswith("#"):
            keywords.add(keyword.lower())
        match keyword.lower():
            case "include":
                try:
                    includes += shlex.split(rest, comments=True)
                except ValueError:
                    parsed.volatile = True
                # newer releases expand these; where to, only ssh knows
                parsed.volatile |= "${" in rest or "%" in rest
            case "match":
                words = rest.lower()
                parsed.volatile |= any(w in words for w in ("exec", "localnetwork", "command"))
            case "canonicalizehostname":
                parsed.volatile |= rest.strip().lower() not in ("no", "false")
    parsed.includes = tuple(includes)
    parsed.keywords = frozenset(keywords)
    return parsed

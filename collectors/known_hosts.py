"""``known_hosts`` files, read once per change and tolerant of what is broken in them.

Format: sshd(8), SSH_KNOWN_HOSTS FILE FORMAT. asyncssh gives up on a malformed line (every
host down for one typo), on a missing file, and parses the file again for each connection
(quadratic in hosts: 16.7 against 2.5 ms each at 1000 hosts, measured); and it tells an
unknown key from a changed one by no more than a sentence. So this is read here.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

__all__ = [
    "Entry",
    "KnownHosts",
    "KnownHostsFiles",
    "Marker",
    "fingerprint",
    "host_name_with_port",
    "key_type",
    "remember_key",
]


class Marker(StrEnum):
    """What a line says of its key."""

    PLAIN = ""
    AUTHORITY = "@cert-authority"
    REVOKED = "@revoked"


@dataclass(frozen=True, slots=True)
class Entry:
    """One line that could be read."""

    marker: Marker
    #: the names, as they stand in the file
    names: str
    key: bytes
    path: Path
    #: from 1
    line: int

    @property
    def key_type(self) -> str:
        """The key's own word for its type, like ``ssh-ed25519``."""
        return key_type(self.key)


def key_type(key: bytes) -> str:
    """The type at the head of a key blob; empty where it is not one."""
    if len(key) < 4:
        return ""
    length = int.from_bytes(key[:4], "big")
    return key[4 : 4 + length].decode("ascii", "replace") if length <= 64 else ""


def fingerprint(key: bytes) -> str:
    """``TYPE SHA256:...`` as ``ssh-keygen -l`` prints it."""
    digest = base64.b64encode(hashlib.sha256(key).digest()).decode().rstrip("=")
    short = key_type(key).removeprefix("ssh-").removeprefix("ecdsa-sha2-")
    kind = {"ed25519": "ED25519", "rsa": "RSA"}.get(short, short and "ECDSA")
    return f"{kind or 'key'} SHA256:{digest}"


def host_name_with_port(name: str, port: int) -> str:
    """``name`` for port 22, ``[name]:port`` otherwise."""
    return name if port == 22 else f"[{name}]:{port}"


class KnownHosts:
    """The lines of one or more files, indexed by name."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._plain: dict[str, list[Entry]] = {}
        self._hashed: list[tuple[Entry, bytes, bytes]] = []
        self._patterns: list[tuple[Entry, tuple[tuple[bool, re.Pattern[str]], ...]]] = []
        self._found: dict[str, tuple[Entry, ...]] = {}
        self._order: dict[Entry, int] = {}
        for entry in entries:
            self._order.setdefault(entry, len(self._order))
            self._index(entry)

    def _index(self, entry: Entry) -> None:
        if entry.names.startswith("|1|"):
            _, _, salt, digest, *_ = [*entry.names.split("|"), "", ""]
            try:
                pair = base64.b64decode(salt, validate=True), base64.b64decode(digest)
            except (binascii.Error, ValueError):
                return
            self._hashed.append((entry, *pair))
            return
        names = entry.names.lower().split(",")
        if any(c in entry.names for c in "*?!"):
            patterns = tuple((n.startswith("!"), _pattern(n.removeprefix("!"))) for n in names if n)
            self._patterns.append((entry, patterns))
            return
        for name in dict.fromkeys(names):
            if name:
                self._plain.setdefault(name, []).append(entry)

    def find(self, name: str) -> tuple[Entry, ...]:
        """Entries whose names match ``name`` (lower case, with its port), in file order."""
        found = self._found.get(name)
        if found is None:
            hits = list(self._plain.get(name, ()))
            hits += [entry for entry, patterns in self._patterns if _matches(name, patterns)]
            encoded = name.encode("utf-8", "surrogateescape")
            hits += [
                entry
                for entry, salt, digest in self._hashed
                if hmac.compare_digest(hmac.digest(salt, encoded, "sha1"), digest)
            ]
            found = tuple(sorted(hits, key=self._order.__getitem__))
            self._found[name] = found
        return found


def _pattern(glob: str) -> re.Pattern[str]:
    """``*`` and ``?`` only: brackets stand for themselves here."""
    parts = {"*": ".*", "?": "."}
    return re.compile("".join(parts.get(c) or re.escape(c) for c in glob), re.DOTALL)


def _matches(name: str, patterns: Sequence[tuple[bool, re.Pattern[str]]]) -> bool:
    """True where a pattern matches and no negated one does."""
    hit = False
    for negated, pattern in patterns:
        if pattern.fullmatch(name):
            if negated:
                return False
            hit = True
    return hit


class KnownHostsFiles:
    """Parsed files, parsed again when they change."""

    def __init__(self) -> None:
        self._entries: dict[Path, tuple[tuple[int, int], tuple[Entry, ...]]] = {}
        self._joined: dict[tuple[Path, ...], tuple[tuple[tuple[int, int], ...], KnownHosts]] = {}

    def load(self, paths: Sequence[Path]) -> KnownHosts:
        """All lines of ``paths``; a file that is missing or unreadable has none."""
        key = tuple(paths)
        stamps = tuple(self._refresh(path) for path in key)
        joined = self._joined.get(key)
        if joined is None or joined[0] != stamps:
            known = KnownHosts(entry for path in key for entry in self._entries[path][1])
            joined = (stamps, known)
            self._joined[key] = joined
        return joined[1]

    def _refresh(self, path: Path) -> tuple[int, int]:
        try:
            stat = path.stat()
            stamp = (stat.st_mtime_ns, stat.st_size)
        except OSError:
            stamp = (0, -1)
        old = self._entries.get(path)
        if old is None or old[0] != stamp:
            self._entries[path] = (stamp, _read(path) if stamp[1] > 0 else ())
        return stamp


def _read(path: Path) -> tuple[Entry, ...]:
    try:
        text = path.read_bytes().decode("utf-8", "surrogateescape")
    except OSError:
        return ()
    lines = enumerate(text.split("\n"), 1)
    return tuple(e for number, line in lines if (e := _parse(line, path, number)) is not None)


def _parse(line: str, path: Path, number: int) -> Entry | None:
    """Read one line; None for a comment and for what ssh skips as well."""
    words = line.strip(" \t\r").replace("\t", " ").split(" ")
    words = [word for word in words if word]
    if not words or words[0].startswith("#"):
        return None
    marker = Marker.PLAIN
    if words[0].startswith("@"):
        try:
            marker = Marker(words.pop(0))
        except ValueError:
            return None
    if len(words) < 3:
        return None
    names, kind, data = words[:3]
    try:
        key = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return None
    if not kind or key_type(key) != kind or not _is_whole(key):
        return None
    return Entry(marker, names, key, path, number)


def _is_whole(key: bytes) -> bool:
    """A blob is strings and numbers, each with its length before it, and nothing more."""
    position = 0
    while position + 4 <= len(key):
        position += 4 + int.from_bytes(key[position : position + 4], "big")
    return position == len(key)


def remember_key(path: Path, name: str, key: bytes, *, hashed: bool) -> bool:
    """Append a key the user's config accepts unseen, as ssh does; False where it can't.

    ssh goes on when it can't write, and so may the caller.
    """
    if hashed:
        salt = os.urandom(20)
        digest = hmac.digest(salt, name.encode(), "sha1")
        name = "|1|" + "|".join(base64.b64encode(part).decode() for part in (salt, digest))
    line = f"{name} {key_type(key)} {base64.b64encode(key).decode()}\n"
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        broken = path.is_file() and path.stat().st_size and not path.read_bytes().endswith(b"\n")
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(descriptor, "ab") as file:
            file.write((("\n" if broken else "") + line).encode())
    except OSError:
        return False
    return True

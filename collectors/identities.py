"""The keys to log in with, in the order in which ssh would offer them.

ssh (sshconnect2.c, ``pubkey_prepare``): agent keys that the config names, the agent's other
keys unless IdentitiesOnly, then the config's files that no agent holds. The order matters:
asyncssh offers an agent's keys as they come, and a server with MaxAuthTries 6 has then
hung up before the eighth, the right one. Nothing here asks for a passphrase.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import asyncssh

from gpumon.collectors.known_hosts import fingerprint
from gpumon.collectors.resolved_host import ResolvedHost
from gpumon.collectors.ssh_tokens import home_directory

__all__ = ["Identities", "KeyFiles", "gather_identities"]

_AGENT_TIMEOUT_S = 5.0
_OPENSSH_MAGIC = b"openssh-key-v1\0"


@dataclass(frozen=True, slots=True)
class _KeyFile:
    """What one IdentityFile turned out to be."""

    path: Path
    #: None where it can't be used without the agent
    private: asyncssh.SSHKey | None = None
    #: public blob; None where unknown
    public: bytes | None = None
    certificates: tuple[asyncssh.SSHCertificate, ...] = ()
    encrypted: bool = False
    #: why it can't be used; None for a file that is fine, or is not there
    trouble: str | None = None


@dataclass(slots=True)
class Identities:
    """Keys ready to be offered, and what there is to say of those that are not."""

    #: words for a person, and the key
    offers: list[tuple[str, asyncssh.SSHKeyPair]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    #: encrypted files that no agent holds
    encrypted: list[str] = field(default_factory=list)
    #: offered so far
    tried: list[str] = field(default_factory=list)
    #: where the agent was looked for; None = none configured
    agent_path: str | None = None
    agent: asyncssh.SSHAgentClient | None = None

    def take_next(self) -> asyncssh.SSHKeyPair | None:
        """The next key to offer; None when there are no more."""
        if not self.offers:
            return None
        words, pair = self.offers.pop(0)
        self.tried.append(words)
        return pair

    def close(self) -> None:
        """Hang up on the agent."""
        if self.agent is not None:
            self.agent.close()


class KeyFiles:
    """Key files, read once per change: a fleet mostly shares one."""

    def __init__(self) -> None:
        self._read: dict[Path, tuple[tuple[int, int, int], _KeyFile]] = {}

    def load(self, path: Path) -> _KeyFile:
        """Read ``path``; a missing file gives a record without keys, as ssh skips it."""
        stamp = _stamp(path)
        old = self._read.get(path)
        if old is None or old[0] != stamp:
            old = (stamp, _read_key_file(path))
            self._read[path] = old
        return old[1]


def _stamp(path: Path) -> tuple[int, int, int]:
    total = 0
    mode = 0
    size = 0
    for name in (path, _beside(path, ".pub"), _beside(path, "-cert.pub")):
        with contextlib.suppress(OSError):
            stat = name.stat()
            total += stat.st_mtime_ns
            size += stat.st_size
            mode = mode or stat.st_mode
    return total, size, mode


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _read_key_file(path: Path) -> _KeyFile:
    certificates = tuple(_read_certificates(_beside(path, "-cert.pub")))
    public = _read_public(_beside(path, ".pub"))
    try:
        data = path.read_bytes()
        stat = path.stat()
    except FileNotFoundError:
        # only the public half here: the agent may hold the other
        return _KeyFile(path, public=public, certificates=certificates)
    except OSError as error:
        return _KeyFile(path, public=public, trouble=f"can't be read ({error.strerror})")
    if b"PRIVATE KEY" not in data:
        named = _read_public(path)
        return _KeyFile(
            path,
            public=named,
            certificates=certificates,
            trouble=None if named else "is no key",
        )
    if public is None:
        public = _public_of_openssh(data)
    if stat.st_uid == os.getuid() and stat.st_mode & 0o077:
        # ssh ignores such a file as well ("UNPROTECTED PRIVATE KEY FILE")
        trouble = f"has permissions {stat.st_mode & 0o777:04o}, too open: chmod 600"
        return _KeyFile(path, public=public, certificates=certificates, trouble=trouble)
    try:
        private = asyncssh.import_private_key(data)
    except asyncssh.KeyEncryptionError:
        return _KeyFile(path, public=public, certificates=certificates, encrypted=True)
    except (asyncssh.KeyImportError, ValueError) as error:
        if "assphrase" in str(error):
            return _KeyFile(path, public=public, certificates=certificates, encrypted=True)
        return _KeyFile(path, public=public, trouble=f"can't be used ({error})")
    return _KeyFile(path, private, private.public_data, certificates)


def _read_public(path: Path) -> bytes | None:
    """The blob of a ``.pub`` file."""
    try:
        words = path.read_text("utf-8", "replace").split()
        return base64.b64decode(words[1], validate=True)
    except (OSError, IndexError, binascii.Error, ValueError):
        return None


def _read_certificates(path: Path) -> list[asyncssh.SSHCertificate]:
    try:
        return [asyncssh.read_certificate(path)]
    except (OSError, asyncssh.KeyImportError, ValueError):
        return []


def _public_of_openssh(data: bytes) -> bytes | None:
    """The public half, which OpenSSH's own format keeps in the clear (PROTOCOL.key)."""
    body = b"".join(data.partition(b"-----BEGIN OPENSSH PRIVATE KEY-----")[2].splitlines())
    try:
        blob = base64.b64decode(body.partition(b"-")[0])
    except (binascii.Error, ValueError):
        return None
    if not blob.startswith(_OPENSSH_MAGIC):
        return None
    rest = blob[len(_OPENSSH_MAGIC) :]
    for _ in range(3):  # cipher, kdf, kdf options
        rest = rest[4 + int.from_bytes(rest[:4], "big") :]
    rest = rest[4:]  # number of keys
    length = int.from_bytes(rest[:4], "big")
    return rest[4 : 4 + length] or None


async def gather_identities(resolved: ResolvedHost, files: KeyFiles) -> Identities:
    """Collect what can be offered to this host; asks the agent, never a person."""
    result = Identities(agent_path=resolved.agent_path)
    if not resolved.public_key_auth:
        result.notes.append("the config turns public keys off")
        return result
    named = [files.load(path) for path in resolved.identity_files]
    extra = [c for path in resolved.certificate_files for c in _read_certificates(path)]
    held = await _ask_agent(resolved.agent_path, result)
    by_public = {key.public: key for key in named if key.public is not None}
    offered: set[bytes] = set()
    for key in named:
        if key.public is not None and key.public in held and key.public not in offered:
            offered.add(key.public)
            words = f"{_tilde(key.path)} (agent)"
            _offer_held(result, held[key.public], words, (*key.certificates, *extra))
    if not resolved.identities_only:
        for public, pair in held.items():
            if public not in by_public:
                comment = pair.get_comment() or fingerprint(public)
                _offer_held(result, pair, f"{comment} (agent)", tuple(extra))
    for key in named:
        if key.public is not None and key.public in offered:
            continue
        if key.private is not None and key.private.algorithm.startswith(b"sk-"):
            result.notes.append(f'{_tilde(key.path)} is a security key: set transport = "ssh"')
        elif key.private is not None:
            offered.add(key.private.public_data)
            words = _tilde(key.path)
            for pair in _pairs(key.private, (*key.certificates, *extra)):
                result.offers.append((words + _certified(pair), pair))
        elif key.encrypted:
            result.encrypted.append(_tilde(key.path))
            result.notes.append(f"{_tilde(key.path)} is encrypted and not in the agent")
        elif key.trouble:
            result.notes.append(f"{_tilde(key.path)} {key.trouble}")
    return result


async def _ask_agent(path: str | None, result: Identities) -> dict[bytes, asyncssh.SSHKeyPair]:
    if path is None:
        return {}
    agent = asyncssh.SSHAgentClient(path)
    try:
        async with asyncio.timeout(_AGENT_TIMEOUT_S):
            pairs = await agent.get_keys()
    except (OSError, ValueError, TimeoutError) as error:
        agent.close()
        result.notes.append(f"no agent at {path} ({error or 'no answer'})")
        return {}
    except BaseException:
        agent.close()
        raise
    result.agent = agent
    return {pair.public_data: pair for pair in pairs}


def _offer_held(
    result: Identities,
    pair: asyncssh.SSHKeyPair,
    words: str,
    certificates: tuple[asyncssh.SSHCertificate, ...],
) -> None:
    """Offer a key of the agent, first with the certificate a file has for it."""
    agent = result.agent
    assert agent is not None
    for certificate in certificates:
        if certificate.key.public_data == pair.public_data:
            certified = asyncssh.SSHAgentKeyPair(
                agent, pair.algorithm, pair.public_data, (pair.get_comment() or "").encode()
            )
            certified.set_certificate(certificate)
            result.offers.append((f"{words} with certificate", certified))
    result.offers.append((words, pair))


def _pairs(
    key: asyncssh.SSHKey, certificates: tuple[asyncssh.SSHCertificate, ...]
) -> Iterator[asyncssh.SSHKeyPair]:
    """Fresh pairs for one connection (they carry its choice of algorithm)."""
    fitting = [c for c in certificates if c.key.public_data == key.public_data]
    if fitting:
        yield from asyncssh.load_keypairs([(key, fitting[0])])
    else:
        yield from asyncssh.load_keypairs([key])


def _certified(pair: asyncssh.SSHKeyPair) -> str:
    return " with certificate" if pair.has_cert else ""


def _tilde(path: Path) -> str:
    home = home_directory()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)

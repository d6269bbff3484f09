"""What ssh's configuration says of one host, as typed values."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

__all__ = ["JumpSpec", "ResolvedHost", "StrictChecking", "parse_jumps"]


class StrictChecking(StrEnum):
    """``StrictHostKeyChecking``; ASK refuses here, for there is nobody to ask."""

    YES = "yes"
    ASK = "ask"
    ACCEPT_NEW = "accept-new"
    NO = "no"

    @property
    def takes_unknown(self) -> bool:
        """True where the user's config itself says yes to a host never seen."""
        return self in (StrictChecking.ACCEPT_NEW, StrictChecking.NO)


@dataclass(frozen=True, slots=True)
class JumpSpec:
    """One hop as ``ProxyJump`` names it."""

    host: str
    user: str | None = None
    port: int | None = None

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        text = f"{self.user}@{host}" if self.user else host
        return f"{text}:{self.port}" if self.port else text


def parse_jumps(text: str) -> tuple[JumpSpec, ...]:
    """Parse ``[user@]host[:port]`` or ``ssh://`` forms, joined by commas; ValueError if none."""
    return tuple(_parse_jump(part.strip()) for part in text.split(","))


def _parse_jump(text: str) -> JumpSpec:
    rest = text.removeprefix("ssh://").rstrip("/")
    user, at, rest = rest.rpartition("@")
    port: str | None = None
    if rest.startswith("["):
        host, bracket, tail = rest[1:].partition("]")
        if not bracket:
            raise ValueError(text)
        if tail.startswith(":"):
            port = tail[1:]
        elif tail:
            raise ValueError(text)
    elif rest.count(":") == 1:
        host, _, port = rest.partition(":")
    else:
        host = rest
    if not host or (at and not user) or (port is not None and not port.isdecimal()):
        raise ValueError(text)
    return JumpSpec(host, user or None, int(port) if port else None)


@dataclass(frozen=True, slots=True)
class ResolvedHost:
    """One host, as ``ssh`` itself would go about it."""

    #: what the user typed
    alias: str
    hostname: str
    port: int = 22
    user: str = ""
    #: looked up in known_hosts instead of the name, and then without the port
    host_key_alias: str | None = None
    #: user's files first, then the global ones
    user_known_hosts: tuple[Path, ...] = ()
    global_known_hosts: tuple[Path, ...] = ()
    strict: StrictChecking = StrictChecking.ASK
    check_host_ip: bool = False
    hash_known_hosts: bool = False
    identity_files: tuple[Path, ...] = ()
    certificate_files: tuple[Path, ...] = ()
    identities_only: bool = False
    #: socket of the agent; None = none to be used
    agent_path: str | None = None
    public_key_auth: bool = True
    #: first hop first
    jumps: tuple[JumpSpec, ...] = ()
    #: ready for the shell, tokens expanded
    proxy_command: str | None = None
    #: None = the config says nothing
    connect_timeout_s: float | None = None
    family: int = socket.AF_UNSPEC
    bind_address: str | None = None
    required_rsa_bits: int = 1024
    environment: Mapping[str, str] = field(default_factory=dict)
    #: as ssh would offer them, in its order; empty = not known
    kex_algorithms: tuple[str, ...] = ()
    ciphers: tuple[str, ...] = ()
    macs: tuple[str, ...] = ()
    host_key_algorithms: tuple[str, ...] = ()
    ca_signature_algorithms: tuple[str, ...] = ()
    public_key_algorithms: tuple[str, ...] = ()
    #: True where the user or the system chose the order of the ciphers
    ciphers_chosen: bool = False
    #: why only the system's ssh can do what the config asks; None = asyncssh can
    needs_ssh: str | None = None

    @property
    def key_name(self) -> str:
        """The name the server's key is known by, without a port."""
        return (self.host_key_alias or self.hostname).lower()

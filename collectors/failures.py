"""What can go wrong on the way to a host, as exceptions that carry facts, not prose.

``causes.explain`` turns each of them into the words and the command a person needs.
Every class here is raised by a transport, by ``connect.open_transport`` or by
``ProbeProcess.lines``; nothing of asyncssh or of the system's ``ssh`` leaks through.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = [
    "AuthenticationRefused",
    "ConfigRejected",
    "ConnectionBroken",
    "Exit",
    "ForwardRefused",
    "HandshakeFailed",
    "HostKeyRejected",
    "JumpFailed",
    "KeyTrouble",
    "LoginRefused",
    "NeedsSsh",
    "Reach",
    "ReachFailed",
    "SshExited",
    "TransportError",
]


class TransportError(Exception):
    """Anything that keeps a host from being reached or read."""


class Reach(StrEnum):
    """How a connection attempt ended before SSH could speak."""

    REFUSED = "refused"
    TIMED_OUT = "timed-out"
    UNREACHABLE = "unreachable"
    NAME_NOT_FOUND = "name-not-found"


class ReachFailed(TransportError):
    """No TCP connection, or no SSH greeting in time."""

    def __init__(self, reach: Reach, address: str, port: int, reason: str = "") -> None:
        super().__init__(f"{address} port {port}: {reason or reach.value}")
        self.reach = reach
        self.address = address
        self.port = port
        self.reason = reason


class KeyTrouble(StrEnum):
    """The three ways a host key is not acceptable."""

    UNKNOWN = "unknown"
    CHANGED = "changed"
    REVOKED = "revoked"


class HostKeyRejected(TransportError):
    """The server's key is not one the user has accepted for this name."""

    def __init__(
        self,
        trouble: KeyTrouble,
        *,
        name: str,
        address: str,
        port: int,
        offered: str | None = None,
        expected: str | None = None,
        path: str | None = None,
        line: int | None = None,
        reason: str = "",
    ) -> None:
        """Say which key was ``offered`` and which ``expected``, as ``TYPE SHA256:...``.

        ``name`` is the name looked up in known_hosts (like ``[gpu1]:2222``), ``path``
        and ``line`` (from 1) the entry that speaks against the key.
        """
        super().__init__(reason or f"host key of {name} is {trouble.value}")
        self.trouble = trouble
        self.name = name
        self.address = address
        self.port = port
        self.offered = offered
        self.expected = expected
        self.path = path
        self.line = line
        self.reason = reason


class AuthenticationRefused(TransportError):
    """The server accepted none of the keys offered."""

    def __init__(
        self,
        user: str,
        address: str,
        *,
        tried: tuple[str, ...] = (),
        notes: tuple[str, ...] = (),
        encrypted: tuple[str, ...] = (),
        agent: str | None = None,
        reason: str = "",
    ) -> None:
        """``tried``: keys offered; ``notes``: keys that could not be, and why."""
        super().__init__(reason or f"permission denied for {user} on {address}")
        self.user = user
        self.address = address
        self.tried = tried
        self.notes = notes
        self.encrypted = encrypted
        self.agent = agent
        self.reason = reason


class JumpFailed(TransportError):
    """A hop on the way failed; ``__cause__``/``inner`` says how."""

    def __init__(self, hop: str, inner: BaseException) -> None:
        super().__init__(f"jump host {hop}: {inner}")
        self.hop = hop
        self.inner = inner


class ConfigRejected(TransportError):
    """The ssh configuration itself is wrong, or asks for what cannot be done safely."""


class NeedsSsh(ConfigRejected):
    """Only the system's ``ssh`` can do what the configuration asks."""


class HandshakeFailed(TransportError):
    """Something answered, but no SSH session came of it."""


class ConnectionBroken(TransportError):
    """The connection was there and is gone."""


class LoginRefused(TransportError):
    """The server let us in but would not run a command (no session, too many sessions)."""


class ForwardRefused(TransportError):
    """A channel to a port on the host was not opened.

    ``forbidden`` is True where the server's rules say no (AllowTcpForwarding,
    PermitOpen), False where nothing listens on that port.
    """

    def __init__(self, host: str, port: int, *, forbidden: bool, reason: str = "") -> None:
        super().__init__(f"port {port} on {host}: {reason or 'not opened'}")
        self.host = host
        self.port = port
        self.forbidden = forbidden
        self.reason = reason


class SshExited(TransportError):
    """The system's ``ssh`` ended with its own error status (255)."""

    def __init__(self, status: int, stderr: str, hops: tuple[str, ...] = ()) -> None:
        super().__init__(stderr.strip().splitlines()[-1] if stderr.strip() else f"status {status}")
        self.status = status
        self.stderr = stderr
        self.hops = hops


@dataclass(frozen=True, slots=True)
class Exit:
    """How the remote command ended, for ``causes.explain``.

    ``status`` None: by a signal, or not known. ``output``: what came on stdout before
    the nonce line (a ForceCommand's text), ``hello`` True once the probe had spoken.
    """

    status: int | None
    stderr: str = ""
    output: str = ""
    hello: bool = False

"""One asyncssh connection, with arguments of our own and nothing from a config file.

Everything asyncssh would look up for itself is given explicitly (``config=None``), so
that no default can make a host more trusted than ``ssh`` would, give a probe a terminal,
forward an agent to a GPU host, or spend CPU on compression.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Iterable, Sequence
from typing import Any

import asyncssh
from asyncssh.encryption import get_encryption_algs
from asyncssh.kex import get_kex_algs
from asyncssh.mac import get_mac_algs
from asyncssh.public_key import get_certificate_algs, get_public_key_algs

from gpumon.collectors.failures import (
    AuthenticationRefused,
    ConnectionBroken,
    ForwardRefused,
    HandshakeFailed,
    HostKeyRejected,
    JumpFailed,
    KeyTrouble,
    NeedsSsh,
    Reach,
    ReachFailed,
    TransportError,
)
from gpumon.collectors.host_key import HostKeyJudge
from gpumon.collectors.identities import Identities, KeyFiles, gather_identities
from gpumon.collectors.known_hosts import KnownHostsFiles, remember_key
from gpumon.collectors.resolved_host import ResolvedHost
from gpumon.collectors.shielded import finish_or_discard
from gpumon.collectors.socket_process import SocketProcess, start_proxy
from gpumon.collectors.tcp import connect_tcp

__all__ = ["WINDOW_BYTES", "SshLink", "connect_link"]

#: about twenty samples: a client that stalled gets no backlog of minutes
WINDOW_BYTES = 65536
_LOGIN_TIMEOUT_S = 10.0
_KEEPALIVE_S = 5
_KEEPALIVE_TRIES = 2
#: per 3.2 kB packet: aes128-gcm 3.8 us, chacha20-poly1305 16.5 us (measured)
_FAST_CIPHERS = (
    "aes128-gcm@openssh.com",
    "aes256-gcm@openssh.com",
    "aes256-ctr",
    "aes128-ctr",
    "chacha20-poly1305@openssh.com",
)
_FORBIDDEN = 1  # RFC 4254 5.1: administratively prohibited

# Without a handler of its own its warnings would be written over the screen.
logging.getLogger("asyncssh").addHandler(logging.NullHandler())


class SshLink:
    """A connection logged in to one server."""

    def __init__(
        self,
        connection: asyncssh.SSHClientConnection,
        resolved: ResolvedHost,
        proxy: SocketProcess | None,
    ) -> None:
        self.connection = connection
        self.resolved = resolved
        self._proxy = proxy

    def is_closed(self) -> bool:
        """True once the connection is gone."""
        return self.connection.is_closed()

    def abort(self) -> None:
        """Drop it without a word."""
        with contextlib.suppress(OSError):
            self.connection.abort()
        if self._proxy is not None:
            self._proxy.kill()


class _Client(asyncssh.SSHClient):
    """asyncssh's questions during the handshake, answered."""

    def __init__(self, judge: HostKeyJudge, identities: Identities) -> None:
        self.judge = judge
        self.identities = identities
        self.connected = False

    def connection_made(self, conn: asyncssh.SSHClientConnection) -> None:
        self.connected = True

    def validate_host_public_key(
        self, host: str, addr: str, port: int, key: asyncssh.SSHKey
    ) -> bool:
        return self.judge.accepts_key(key.public_data)

    def validate_host_ca_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        return self.judge.accepts_authority(key.public_data)

    def public_key_auth_requested(self) -> asyncssh.SSHKeyPair | None:
        return self.identities.take_next()


async def connect_link(
    resolved: ResolvedHost,
    *,
    known_hosts: KnownHostsFiles,
    key_files: KeyFiles,
    via: SshLink | None = None,
) -> SshLink:
    """Connect and log in, over TCP, a ProxyCommand, or a channel of ``via``.

    Raises a ``TransportError``. May be cancelled at any point; nothing stays behind.
    """
    if resolved.needs_ssh is not None:
        raise NeedsSsh(f"{resolved.needs_ssh} is set for {resolved.alias}")
    try:
        return await _attempt(resolved, known_hosts, key_files, via, certificates=True)
    except HostKeyRejected as rejection:
        # ssh falls back to the plain key where a certificate has no known authority
        if "authority" not in rejection.reason:
            raise
    return await _attempt(resolved, known_hosts, key_files, via, certificates=False)


async def _attempt(
    resolved: ResolvedHost,
    known_hosts: KnownHostsFiles,
    key_files: KeyFiles,
    via: SshLink | None,
    *,
    certificates: bool,
) -> SshLink:
    timeout_s = resolved.connect_timeout_s or _LOGIN_TIMEOUT_S
    known = known_hosts.load((*resolved.user_known_hosts, *resolved.global_known_hosts))
    sock: socket.socket | None = None
    proxy: SocketProcess | None = None
    identities: Identities | None = None
    client: _Client | None = None
    try:
        identities = await gather_identities(resolved, key_files)
        peer_ip: str | None = None
        if via is None and resolved.proxy_command is not None:
            sock, proxy = await start_proxy(resolved.proxy_command)
            timeout_s *= 2  # it connects first
        elif via is None:
            sock = await connect_tcp(resolved, timeout_s)
            peer_ip = str(sock.getpeername()[0])
        judge = HostKeyJudge(resolved, known, peer_ip)
        client = _Client(judge, identities)
        arguments = _arguments(resolved, client, timeout_s, certificates=certificates)
        try:
            connection = await _log_in(resolved, arguments, sock, via, timeout_s)
        except TimeoutError:
            place = resolved.proxy_command or resolved.hostname
            reason = f"no SSH login in {timeout_s:g} s"
            raise ReachFailed(Reach.TIMED_OUT, place, resolved.port, reason) from None
        except (asyncssh.Error, OSError, ValueError) as error:
            raise _translate(error, resolved, client, via) from error
    except BaseException as error:
        if sock is not None and not (client is not None and client.connected):
            sock.close()
        if proxy is not None:
            words = await proxy.last_words() if isinstance(error, ConnectionBroken) else ""
            proxy.kill()
            if words:
                raise JumpFailed("ProxyCommand", ConnectionBroken(words)) from error
        raise
    finally:
        if identities is not None:
            identities.close()
    if judge.taken_unknown is not None and resolved.user_known_hosts:
        remember_key(
            resolved.user_known_hosts[0],
            judge.name,
            judge.taken_unknown,
            hashed=resolved.hash_known_hosts,
        )
    return SshLink(connection, resolved, proxy)


async def _log_in(
    resolved: ResolvedHost,
    arguments: dict[str, Any],
    sock: socket.socket | None,
    via: SshLink | None,
    timeout_s: float,
) -> asyncssh.SSHClientConnection:
    if via is None:
        async with asyncio.timeout(timeout_s):
            return await asyncssh.connect(resolved.hostname, resolved.port, sock=sock, **arguments)

    async def through_channel() -> asyncssh.SSHClientConnection:
        async with asyncio.timeout(2 * timeout_s):
            return await asyncssh.connect(
                resolved.hostname, resolved.port, tunnel=via.connection, **arguments
            )

    return await finish_or_discard(through_channel(), lambda connection: connection.abort())


def _arguments(
    resolved: ResolvedHost, client: _Client, timeout_s: float, *, certificates: bool
) -> dict[str, Any]:
    """Every setting that asyncssh would otherwise find for itself."""
    if client.judge.weak_authority:
        raise NeedsSsh("an RSA certificate authority is known for the host")
    host_keys = client.judge.order_algorithms(
        _offered(
            resolved.host_key_algorithms, (*get_certificate_algs(), *get_public_key_algs()), ()
        )
    )
    if not certificates:
        host_keys = tuple(name for name in host_keys if "-cert-" not in name)
    order = () if resolved.ciphers_chosen else _FAST_CIPHERS
    revoked = _import_keys(client.judge.revoked_keys)
    arguments: dict[str, Any] = {
        "config": None,
        "client_factory": lambda: client,
        # None would accept any key: here none is known to asyncssh, and it asks the judge
        "known_hosts": ([], [], revoked),
        "host_key_alias": resolved.key_name,
        "x509_trusted_certs": None,
        "server_host_key_algs": list(host_keys),
        "kex_algs": list(_offered(resolved.kex_algorithms, get_kex_algs(), ())),
        "encryption_algs": list(_offered(resolved.ciphers, get_encryption_algs(), order)),
        "mac_algs": list(_offered(resolved.macs, get_mac_algs(), ())),
        "compression_algs": None,
        "signature_algs": list(_offered(resolved.public_key_algorithms, get_public_key_algs(), ())),
        "username": resolved.user,
        "client_keys": None,
        "agent_path": None,
        "pkcs11_provider": None,
        "preferred_auth": "publickey",
        "password_auth": False,
        "kbdint_auth": False,
        "host_based_auth": False,
        "gss_host": None,
        "gss_kex": False,
        "gss_auth": False,
        "agent_forwarding": False,
        "x11_forwarding": False,
        "request_pty": False,
        "login_timeout": 2 * timeout_s + 1,
        "keepalive_interval": _KEEPALIVE_S,
        "keepalive_count_max": _KEEPALIVE_TRIES,
        "canonicalize_hostname": False,
        "window": WINDOW_BYTES,
    }
    for name in (
        name for name in arguments if name.endswith("_algs") and arguments[name] is not None
    ):
        if not arguments[name]:
            raise NeedsSsh(f"the config allows no {name} that asyncssh has")
    return arguments


def _offered(
    allowed: Sequence[str], able: Iterable[bytes], first: Sequence[str]
) -> tuple[str, ...]:
    """What ssh would offer and asyncssh can, ``first`` ones first.

    Where ssh's list is not known (no ssh here), asyncssh's is cut to what OpenSSH
    offers by default: no SHA-1 signatures, no DSA.
    """
    names = [name.decode("ascii") for name in able]
    if allowed:
        both = [name for name in allowed if name in set(names)]
    else:
        both = [n for n in names if not n.startswith(("ssh-rsa", "ssh-dss")) and "sha1" not in n]
    return (*(n for n in first if n in both), *(n for n in both if n not in first))


def _import_keys(blobs: Iterable[bytes]) -> list[asyncssh.SSHKey]:
    keys = []
    for blob in blobs:
        # asyncssh can't meet a key of a type it does not know
        with contextlib.suppress(asyncssh.KeyImportError, ValueError):
            keys.append(asyncssh.public_key.decode_ssh_public_key(blob))
    return keys


def _translate(
    error: Exception, resolved: ResolvedHost, client: _Client, via: SshLink | None
) -> TransportError:
    """asyncssh's exception as one of ours."""
    words = str(error).strip()
    match error:
        case asyncssh.HostKeyNotVerifiable():
            if client.judge.rejection is not None:
                return client.judge.rejection
            if "revoked" in words:
                return client.judge.revocation_of_any()
            return HostKeyRejected(
                KeyTrouble.UNKNOWN,
                name=client.judge.name,
                address=resolved.hostname,
                port=resolved.port,
                reason=words,
            )
        case asyncssh.PermissionDenied():
            return _refusal(resolved, client, "")
        case asyncssh.DisconnectError() if "authentication failures" in words:
            return _refusal(resolved, client, words)
        case asyncssh.ChannelOpenError():
            hop = via.resolved.alias if via is not None else resolved.alias
            return _tunnel_failure(error, hop, resolved)
        case asyncssh.ConnectionLost() | ConnectionError():
            if client.identities.tried and "reset" not in words.lower():
                return ConnectionBroken(f"the server hung up during the login ({words})")
            return ConnectionBroken(f"the server hung up during the handshake ({words})")
        case asyncssh.KeyExchangeFailed():
            return HandshakeFailed(f"no common algorithm: {words}")
        case _:
            return HandshakeFailed(words or type(error).__name__)


def _refusal(resolved: ResolvedHost, client: _Client, reason: str) -> AuthenticationRefused:
    identities = client.identities
    return AuthenticationRefused(
        resolved.user,
        resolved.hostname,
        tried=tuple(identities.tried),
        notes=tuple(identities.notes),
        encrypted=tuple(identities.encrypted),
        agent=identities.agent_path,
        reason=reason,
    )


def _tunnel_failure(
    error: asyncssh.ChannelOpenError, hop: str, resolved: ResolvedHost
) -> TransportError:
    """The bastion would not, or could not, connect us to the host."""
    host, port = resolved.hostname, resolved.port
    if error.code == _FORBIDDEN:
        return JumpFailed(hop, ForwardRefused(host, port, forbidden=True, reason=error.reason))
    words = error.reason.lower()
    for reach, sign in (
        (Reach.REFUSED, "refused"),
        (Reach.TIMED_OUT, "timed out"),
        (Reach.NAME_NOT_FOUND, "not known"),
        (Reach.NAME_NOT_FOUND, "resolution"),
        (Reach.UNREACHABLE, "route"),
        (Reach.UNREACHABLE, "unreachable"),
    ):
        if sign in words:
            return ReachFailed(reach, host, port, f"{error.reason}, as {hop} sees it")
    return ReachFailed(Reach.UNREACHABLE, host, port, f"{hop} could not connect: {error.reason}")

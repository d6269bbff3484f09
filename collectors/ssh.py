"""A host over asyncssh: one connection for its life, a channel per command or port."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

import asyncssh

from gpumon.collectors.failures import ConnectionBroken, ForwardRefused, LoginRefused
from gpumon.collectors.line_queue import LineQueue
from gpumon.collectors.reach import Reached
from gpumon.collectors.shielded import finish_or_discard
from gpumon.collectors.ssh_link import WINDOW_BYTES
from gpumon.collectors.stderr_tail import StderrTail
from gpumon.collectors.transport import ByteReader, ByteWriter, ProbeProcess

__all__ = ["AsyncsshTransport"]

_FORBIDDEN = 1  # RFC 4254 5.1: administratively prohibited
_CLOSE_TIMEOUT_S = 1.0


class _Session(asyncssh.SSHClientSession[bytes]):
    """One running command, told of by callbacks."""

    def __init__(self) -> None:
        self.queue = LineQueue()
        self.errors = StderrTail()
        self.ended = asyncio.Event()
        self.writable = asyncio.Event()
        self.writable.set()
        self.status: int | None = None
        self.killed = False
        self.channel: asyncssh.SSHClientChannel[bytes]

    def connection_made(self, chan: asyncssh.SSHClientChannel[bytes]) -> None:
        self.channel = chan
        self.queue.control_flow(chan.pause_reading, chan.resume_reading)

    def data_received(self, data: bytes, datatype: int | None) -> None:
        if datatype is None:
            self.queue.feed(data)
        else:
            self.errors.feed(data)

    def eof_received(self) -> bool:
        return True  # its exit status may yet come

    def exit_status_received(self, status: int) -> None:
        self.status = status

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        error = None if exc is None or self.killed else ConnectionBroken(str(exc) or "lost")
        self.queue.end(error)
        self.writable.set()
        self.ended.set()


class _SshProcess:
    """A ``ProbeProcess`` over a session channel."""

    def __init__(self, session: _Session) -> None:
        self._session = session

    async def write(self, data: bytes) -> None:
        try:
            self._session.channel.write(data)
        except OSError as error:
            raise ConnectionBroken("the channel is closed") from error
        await self._session.writable.wait()
        if self._session.ended.is_set():
            raise ConnectionBroken("the channel is closed")

    def lines(self) -> AsyncIterator[bytes]:
        return self._session.queue.iterate()

    def stderr_tail(self) -> str:
        return self._session.errors.text()

    async def wait(self) -> int | None:
        await self._session.ended.wait()
        return self._session.status

    def kill(self) -> None:
        session = self._session
        session.killed = True
        session.queue.drop()
        _abort_channel(session.channel)


def _abort_channel(channel: asyncssh.SSHClientChannel[Any]) -> None:
    """A signal for what would not notice its closed stdin, then the close itself."""
    with contextlib.suppress(OSError, asyncssh.Error):
        channel.kill()
    with contextlib.suppress(OSError, asyncssh.Error):
        channel.abort()


def _is_gone(error: asyncssh.ChannelOpenError) -> bool:
    """asyncssh's own words, not the server's, for a connection that is closed."""
    return error.reason == "SSH connection closed"


class AsyncsshTransport:
    """A host reached by asyncssh."""

    def __init__(self, reached: Reached) -> None:
        self._reached = reached

    @property
    def description(self) -> str:
        """``user@host:port via hop``."""
        resolved = self._reached.link.resolved
        hops = self._reached.hops
        via = f" via {', '.join(hops)}" if hops else ""
        via = " via ProxyCommand" if resolved.proxy_command and not hops else via
        return f"{resolved.user}@{resolved.hostname}:{resolved.port}{via}"

    async def start(self, command: str) -> ProbeProcess:
        """Run ``command`` in a session of its own, without a terminal."""
        environment: Mapping[bytes | str, bytes | str] = dict(
            self._reached.link.resolved.environment.items()
        )
        opening = self._reached.link.connection.create_session(
            _Session,
            command,
            env=environment,
            send_env=None,
            request_pty=False,
            x11_forwarding=False,
            encoding=None,
            window=WINDOW_BYTES,
        )
        try:
            _, session = await finish_or_discard(opening, lambda made: _abort_channel(made[0]))
        except asyncssh.ChannelOpenError as error:
            if _is_gone(error):
                raise ConnectionBroken(error.reason) from error
            raise LoginRefused(error.reason or str(error)) from error
        except (asyncssh.Error, OSError) as error:
            raise ConnectionBroken(str(error) or "lost") from error
        assert isinstance(session, _Session)
        return _SshProcess(session)

    async def open_connection(self, host: str, port: int) -> tuple[ByteReader, ByteWriter]:
        """A direct-tcpip channel: no port is opened on this machine."""
        opening = self._reached.link.connection.open_connection(host, port, encoding=None)
        try:
            return await finish_or_discard(opening, lambda made: made[1].channel.abort())
        except asyncssh.ChannelOpenError as error:
            if _is_gone(error):
                raise ConnectionBroken(error.reason) from error
            forbidden = error.code == _FORBIDDEN
            raise ForwardRefused(host, port, forbidden=forbidden, reason=error.reason) from error
        except (asyncssh.Error, OSError) as error:
            raise ConnectionBroken(str(error) or "lost") from error

    def abort(self) -> None:
        """Drop the connection now; the bastion's share goes back."""
        self._reached.abort()

    async def close(self) -> None:
        """Drop the connection and wait, briefly, until it is gone."""
        self._reached.abort()
        with contextlib.suppress(TimeoutError, OSError, asyncssh.Error):
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                await self._reached.link.connection.wait_closed()

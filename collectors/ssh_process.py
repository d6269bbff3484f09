"""A host over the system's own ``ssh``: about twice the CPU, and exactly its behaviour.

For Kerberos, FIDO keys, ControlMaster habits and settings that asyncssh has not got.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

from gpumon.collectors.failures import ConnectionBroken, ForwardRefused, SshExited
from gpumon.collectors.piped_process import PipedProcess, start_piped
from gpumon.collectors.pool import ConnectionPool
from gpumon.collectors.resolved_host import ResolvedHost
from gpumon.collectors.socket_process import SocketProcess, start_socket_process
from gpumon.collectors.transport import ByteReader, ByteWriter, ProbeProcess

__all__ = ["SshProcessTransport"]

_SSH_FAILED = 255
#: less than a caller waits for the first line, so that ssh can say itself what is wrong
_CONNECT_TIMEOUT_S = 8.0
_CONNECT_PLACE_S = 12.0
#: What a user's config could otherwise do to a probe. ControlMaster, ControlPath and
#: ControlPersist are left as they are: a master that is open is used.
_OPTIONS = {
    "BatchMode": "yes",
    "RequestTTY": "no",
    "RemoteCommand": "none",
    "ForwardAgent": "no",
    "ForwardX11": "no",
    "ClearAllForwardings": "yes",
    "PermitLocalCommand": "no",
    "Compression": "no",
    "EscapeChar": "none",
    "VisualHostKey": "no",
    # its words tell one failure from another
    "LogLevel": "INFO",
    "ServerAliveInterval": "5",
    "ServerAliveCountMax": "2",
}


#: places held for connects in progress; the loop itself holds tasks only weakly
_holding: set[asyncio.Task[None]] = set()


class SshProcessTransport:
    """Runs one ``ssh`` per command; connects only when a command is started."""

    def __init__(
        self, ssh: str, target: Sequence[str], resolved: ResolvedHost, pool: ConnectionPool
    ) -> None:
        """``target``: the arguments that name the host (``SshConfig.command``)."""
        timeout = resolved.connect_timeout_s or _CONNECT_TIMEOUT_S
        options = [f"-o{key}={value}" for key, value in _OPTIONS.items()]
        self._argv = [ssh, "-T", *options, f"-oConnectTimeout={timeout:.0f}"]
        self._target = list(target)
        self._resolved = resolved
        self._pool = pool
        self._running: list[PipedProcess] = []
        self._forwards: list[SocketProcess] = []

    @property
    def description(self) -> str:
        """``ssh`` and where it goes."""
        resolved = self._resolved
        hops = f" via {', '.join(map(str, resolved.jumps))}" if resolved.jumps else ""
        return f"ssh {resolved.user}@{resolved.hostname}:{resolved.port}{hops}"

    async def start(self, command: str) -> ProbeProcess:
        """Run ``command`` by a new ``ssh``; its failure to connect ends ``lines``."""
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(self._pool.connecting(self._server()))
            process = await start_piped(
                [*self._argv, *self._target, command], verdict=self._judge_end
            )
            held = asyncio.ensure_future(_hold_place(stack.pop_all(), process.first_output))
        _holding.add(held)
        held.add_done_callback(_holding.discard)
        self._running = [p for p in self._running if p.exit_status is None]
        self._running.append(process)
        return process

    async def open_connection(self, host: str, port: int) -> tuple[ByteReader, ByteWriter]:
        """``ssh -W``: a refusal shows at the first read, for ssh tells it by ending."""
        name = f"[{host}]" if ":" in host else host
        argv = [*self._argv, "-W", f"{name}:{port}", *self._target]
        sock, process = await start_socket_process(argv)
        try:
            reader, writer = await asyncio.open_connection(sock=sock)
        except BaseException:
            sock.close()
            process.kill()
            raise
        self._forwards.append(process)
        return _ForwardReader(reader, process, host, port), writer

    def abort(self) -> None:
        """Kill every ``ssh`` of this host."""
        for process in self._running:
            process.kill()
        for forward in self._forwards:
            forward.kill()
        self._running.clear()
        self._forwards.clear()

    async def close(self) -> None:
        """Kill every ``ssh`` of this host."""
        self.abort()

    def _judge_end(self, process: PipedProcess) -> Exception | None:
        """ssh's own errors have status 255; any other status is the remote command's."""
        if process.exit_status == _SSH_FAILED:
            hops = tuple(map(str, self._resolved.jumps))
            return SshExited(_SSH_FAILED, process.stderr_tail(), hops)
        return None

    def _server(self) -> str:
        resolved = self._resolved
        if resolved.jumps:
            return ",".join(map(str, resolved.jumps))
        return f"{resolved.hostname}:{resolved.port}"


async def _hold_place(place: contextlib.AsyncExitStack, spoken: asyncio.Event) -> None:
    """It counts as a connect until it has said something, or ended."""
    async with place:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CONNECT_PLACE_S):
                await spoken.wait()


class _ForwardReader:
    """Reads what comes through ``ssh -W``; an end before the first byte is explained."""

    def __init__(
        self, reader: asyncio.StreamReader, process: SocketProcess, host: str, port: int
    ) -> None:
        self._reader = reader
        self._process = process
        self._host = host
        self._port = port
        self._heard = False

    async def read(self, n: int = -1, /) -> bytes:
        try:
            data = await self._reader.read(n)
        except OSError as error:
            raise ConnectionBroken(str(error)) from error
        if data:
            self._heard = True
        elif not self._heard:
            words = await self._process.last_words()
            if "open failed" in words or "stdio forwarding failed" in words:
                forbidden = "prohibited" in words
                raise ForwardRefused(self._host, self._port, forbidden=forbidden, reason=words)
            if words:
                raise SshExited(_SSH_FAILED, words)
        return data

    def at_eof(self) -> bool:
        return self._reader.at_eof()

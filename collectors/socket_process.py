"""A child process that is spoken to over one socket: a ProxyCommand, or ``ssh -W``.

Its stderr is kept: asyncssh's own way to run a ProxyCommand lets it through to the
terminal, over the screen.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Sequence

from gpumon.collectors.failures import ConfigRejected
from gpumon.collectors.stderr_tail import StderrTail

__all__ = ["SocketProcess", "start_proxy", "start_socket_process"]


class SocketProcess:
    """The running command."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._errors = StderrTail()
        self._reading = asyncio.ensure_future(self._read_errors())

    async def _read_errors(self) -> None:
        stderr = self._process.stderr
        assert stderr is not None
        while data := await stderr.read(1024):
            self._errors.feed(data)

    async def last_words(self, timeout_s: float = 0.5) -> str:
        """What it said on stderr, once it has ended or the time is up; may be empty."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await asyncio.shield(self._reading)
        return self._errors.text().strip()

    def kill(self) -> None:
        """End it and what it started."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._reading.cancel()


async def start_socket_process(argv: Sequence[str]) -> tuple[socket.socket, SocketProcess]:
    """Run ``argv`` with its stdin and stdout on a socket; the other end is returned."""
    ours, theirs = socket.socketpair()
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=theirs.fileno(),
            stdout=theirs.fileno(),
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        ours.close()
        raise ConfigRejected(f"{argv[0]} can't be run: {error.strerror}") from error
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    ours.setblocking(False)
    return ours, SocketProcess(process)


async def start_proxy(command: str) -> tuple[socket.socket, SocketProcess]:
    """Run a ProxyCommand by the user's shell, as ssh does (``exec COMMAND``)."""
    shell = os.environ.get("SHELL") or "/bin/sh"
    return await start_socket_process([shell, "-c", f"exec {command}"])

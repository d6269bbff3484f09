"""A child process of gpumon, read by lines: a local probe, or the system's ``ssh``."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

from gpumon.collectors.failures import ConnectionBroken
from gpumon.collectors.line_queue import LineQueue
from gpumon.collectors.stderr_tail import StderrTail

__all__ = ["PipedProcess", "start_piped"]

_STDIN, _STDOUT, _STDERR = 0, 1, 2


class _Pipes(asyncio.SubprocessProtocol):
    """Carries what the pipes say to the queue."""

    def __init__(self) -> None:
        self.queue = LineQueue()
        self.errors = StderrTail()
        self.exited = asyncio.Event()
        self.first_output = asyncio.Event()
        #: asked once, when the process is gone: the error ``lines`` ends with
        self.verdict: Callable[[], Exception | None] = lambda: None
        self.writable = asyncio.Event()
        self.writable.set()
        self.stdin_lost = False
        self._stdout_ended = False

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == _STDOUT:
            self.first_output.set()
            self.queue.feed(data)
        else:
            self.errors.feed(data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd == _STDIN:
            self.stdin_lost = True
            self.writable.set()
        elif fd == _STDOUT:
            self._stdout_ended = True
            self._end_when_done()

    def process_exited(self) -> None:
        self.exited.set()
        self.first_output.set()
        self._end_when_done()

    def connection_lost(self, exc: Exception | None) -> None:
        # Every pipe is closed and the process is reaped: stderr is complete.
        self.queue.end(self.verdict())

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()

    def _end_when_done(self) -> None:
        """End on exit plus end of stdout, although a grandchild may hold stderr open."""
        if self._stdout_ended and self.exited.is_set() and not self.queue.ended:
            loop = asyncio.get_running_loop()
            # one turn of the loop for stderr that is already in the pipe
            loop.call_later(0.05, lambda: self.queue.end(self.verdict()))


class PipedProcess:
    """A ``ProbeProcess`` over a child process in a process group of its own."""

    def __init__(self, transport: asyncio.SubprocessTransport, pipes: _Pipes) -> None:
        """Use ``start_piped``."""
        self._transport = transport
        self._pipes = pipes
        self._killed = False
        self._cut_short = False
        stdin = transport.get_pipe_transport(_STDIN)
        stdout = transport.get_pipe_transport(_STDOUT)
        assert isinstance(stdin, asyncio.WriteTransport)
        assert isinstance(stdout, asyncio.ReadTransport)
        self._stdin = stdin
        pipes.queue.control_flow(stdout.pause_reading, stdout.resume_reading)

    @property
    def pid(self) -> int:
        """Process id, which is also its group's."""
        return self._transport.get_pid()

    @property
    def first_output(self) -> asyncio.Event:
        """Set when it has written to stdout, or ended."""
        return self._pipes.first_output

    @property
    def exit_status(self) -> int | None:
        """Its status; negative for a signal; None while it runs."""
        return self._transport.get_returncode()

    async def write(self, data: bytes) -> None:
        """Send to its stdin."""
        if self._pipes.stdin_lost or self._stdin.is_closing():
            raise ConnectionBroken("its stdin is closed")
        self._stdin.write(data)
        await self._pipes.writable.wait()

    def lines(self) -> AsyncIterator[bytes]:
        """Its stdout, line by line."""
        return self._pipes.queue.iterate()

    def stderr_tail(self) -> str:
        """The end of what it wrote to stderr."""
        return self._pipes.errors.text()

    async def wait(self) -> int | None:
        """Its exit status; None where a signal ended it."""
        await self._pipes.exited.wait()
        if self._cut_short:
            # Closing the transport may reap the child before asyncio does, which then
            # reports 255 for what it could not see.
            return None
        status = self._transport.get_returncode()
        return None if status is None or status < 0 else status

    def kill(self) -> None:
        """Kill the whole group: a probe's helpers must not outlive it."""
        if self._killed:
            return
        self._killed = True
        self._pipes.queue.drop()
        # The leader is not reaped before asyncio says so, so its id can't be another's.
        if self._transport.get_returncode() is None:
            self._cut_short = True
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
        self._transport.close()


async def start_piped(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    verdict: Callable[[PipedProcess], Exception | None] | None = None,
) -> PipedProcess:
    """Start ``argv`` with three pipes; ``verdict`` names the error its end means."""
    loop = asyncio.get_running_loop()
    transport, pipes = await loop.subprocess_exec(
        _Pipes, *argv, env=env, start_new_session=True, close_fds=True
    )
    process = PipedProcess(transport, pipes)
    if verdict is not None:
        judge = verdict
        pipes.verdict = lambda: judge(process)
    return process

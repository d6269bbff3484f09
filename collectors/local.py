"""This machine, through the same interface as any other."""

from __future__ import annotations

import asyncio

from gpumon.collectors.failures import ForwardRefused
from gpumon.collectors.piped_process import PipedProcess, start_piped
from gpumon.collectors.transport import ByteReader, ByteWriter, ProbeProcess

__all__ = ["LocalTransport"]


class LocalTransport:
    """Runs commands by ``/bin/sh`` as children of gpumon."""

    def __init__(self) -> None:
        self._running: list[PipedProcess] = []

    @property
    def description(self) -> str:
        """How the host is reached."""
        return "this machine"

    async def start(self, command: str) -> ProbeProcess:
        """Run ``command`` in a process group of its own."""
        process = await start_piped(["/bin/sh", "-c", command])
        self._running = [p for p in self._running if p.exit_status is None]
        self._running.append(process)
        return process

    async def open_connection(self, host: str, port: int) -> tuple[ByteReader, ByteWriter]:
        """Open a plain TCP connection."""
        try:
            return await asyncio.open_connection(host, port)
        except OSError as error:
            raise ForwardRefused(host, port, forbidden=False, reason=str(error)) from error

    def abort(self) -> None:
        """Kill what still runs."""
        for process in self._running:
            process.kill()
        self._running.clear()

    async def close(self) -> None:
        """Kill what still runs."""
        self.abort()

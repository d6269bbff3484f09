"""A host reached: the one interface behind which local, asyncssh and ``ssh`` stand."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from gpumon.collectors.failures import TransportError

__all__ = [
    "MAX_LINE_BYTES",
    "ByteReader",
    "ByteWriter",
    "LineTooLong",
    "ProbeProcess",
    "Transport",
]

#: A longer line is no sample: the stream is dropped rather than memory filled.
MAX_LINE_BYTES = 8 * 1024 * 1024


class LineTooLong(TransportError):
    """The other side sent more than ``limit_bytes`` without a newline."""

    def __init__(self, limit_bytes: int = MAX_LINE_BYTES) -> None:
        super().__init__(f"a line of more than {limit_bytes} bytes")
        self.limit_bytes = limit_bytes


class ByteReader(Protocol):
    """The reading half of a channel; ``asyncio.StreamReader`` is one."""

    async def read(self, n: int = -1, /) -> bytes:
        """At most ``n`` bytes, ``b""`` at the end."""
        ...

    def at_eof(self) -> bool:
        """True once the other side has ended and all was read."""
        ...


class ByteWriter(Protocol):
    """The writing half of a channel; ``asyncio.StreamWriter`` is one."""

    def write(self, data: bytes, /) -> None:
        """Queue ``data``."""
        ...

    async def drain(self) -> None:
        """Wait until the queue is short again."""
        ...

    def close(self) -> None:
        """Close both halves."""
        ...

    def is_closing(self) -> bool:
        """True after ``close`` or the loss of the connection."""
        ...


class ProbeProcess(Protocol):
    """A command running on the host, spoken to by lines."""

    async def write(self, data: bytes) -> None:
        """Send to its stdin; raises ``ConnectionBroken`` where that has ended."""
        ...

    def lines(self) -> AsyncIterator[bytes]:
        """Its stdout line by line, without the newline, until it ends.

        An unfinished last line is yielded too. Raises ``LineTooLong``,
        ``ConnectionBroken`` where the connection beneath died, and ``SshExited``
        where the system's ssh gave up.
        """
        ...

    def stderr_tail(self) -> str:
        """The last few KiB of its stderr, undecodable bytes replaced."""
        ...

    async def wait(self) -> int | None:
        """Its exit status; None where it ended by a signal or was lost."""
        ...

    def kill(self) -> None:
        """End it without waiting: its stdin closes, its output is dropped."""
        ...


class Transport(Protocol):
    """One host, reached."""

    @property
    def description(self) -> str:
        """How the host is reached, for a person: ``root@gpu1:22 via bastion``."""
        ...

    async def start(self, command: str) -> ProbeProcess:
        """Run ``command`` by the host's shell, without a terminal.

        Safe to cancel: no session is left behind.
        """
        ...

    async def open_connection(self, host: str, port: int) -> tuple[ByteReader, ByteWriter]:
        """A byte stream to ``host:port`` as seen from the host itself.

        Raises ``ForwardRefused`` and ``ConnectionBroken``. Safe to cancel.
        """
        ...

    def abort(self) -> None:
        """Drop the connection now, without a word to the other side."""
        ...

    async def close(self) -> None:
        """Drop the connection and give back what it held (its share of a bastion)."""
        ...

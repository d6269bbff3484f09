"""Connections shared and counted: bastions, and how many connects run at once.

An sshd drops connects beyond MaxStartups (10:30:100 by default): of 100 at once 48 were
dropped, of 8 at once none (measured). And a bastion that is asked once per target sees as
many logins as there are targets; here it sees one.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from gpumon.collectors.known_hosts import KnownHostsFiles
from gpumon.collectors.ssh_config import SshConfig

if TYPE_CHECKING:  # asyncssh is not loaded for a fleet of this machine alone
    from gpumon.collectors.identities import KeyFiles

__all__ = ["Borrowed", "ConnectionPool", "Link"]

_PER_SERVER = 8
_IN_TOTAL = 48
#: an unused bastion is kept this long, for its targets come back together
_LINGER_S = 30.0
#: a bastion that just failed is not asked again at once by the next target
_FAILURE_LASTS_S = 2.0


class Link(Protocol):
    """A connection that can be shared."""

    def is_closed(self) -> bool:
        """True once it is of no more use."""
        ...

    def abort(self) -> None:
        """Drop it now."""
        ...


L = TypeVar("L", bound=Link)


@dataclass(slots=True)
class _Shared:
    """One bastion and who uses it."""

    users: int = 0
    link: Link | None = None
    making: asyncio.Task[Any] | None = None
    closing: asyncio.TimerHandle | None = None
    failed_at: float = float("-inf")
    error: Exception | None = None


@dataclass(slots=True)
class Borrowed(Generic[L]):
    """A share of a connection; give it back once, by ``release``."""

    link: L
    give_back: Callable[[], None]
    _returned: bool = field(default=False)

    def release(self) -> None:
        """Give the share back; a second call does nothing."""
        if not self._returned:
            self._returned = True
            self.give_back()


class ConnectionPool:
    """Shared by all hosts of a fleet: their limits, bastions and parsed files."""

    def __init__(
        self,
        *,
        ssh_config: SshConfig | None = None,
        per_server: int = _PER_SERVER,
        in_total: int = _IN_TOTAL,
        linger_s: float = _LINGER_S,
    ) -> None:
        self.ssh_config = ssh_config or SshConfig()
        self.known_hosts = KnownHostsFiles()
        self._key_files: KeyFiles | None = None
        self._per_server = per_server
        self._total = asyncio.Semaphore(in_total)
        self._servers: dict[str, asyncio.Semaphore] = {}
        self._linger_s = linger_s
        self._shared: dict[str, _Shared] = {}
        self._closed = False

    @property
    def key_files(self) -> KeyFiles:
        """The users' key files, parsed."""
        if self._key_files is None:
            from gpumon.collectors.identities import KeyFiles

            self._key_files = KeyFiles()
        return self._key_files

    @contextlib.asynccontextmanager
    async def connecting(self, server: str) -> AsyncIterator[None]:
        """Hold one of the places for connects, to ``server`` and in total."""
        own = self._servers.setdefault(server, asyncio.Semaphore(self._per_server))
        # The server's place first: who waits for a slow bastion holds up nobody else.
        async with own, self._total:
            yield

    async def borrow(self, key: str, make: Callable[[], Awaitable[L]]) -> Borrowed[L]:
        """A share of the connection called ``key``; ``make`` builds it where none lives.

        All who ask while it is built wait for the one attempt, and get its error; a
        waiter's cancellation does not end it for the others.
        """
        shared = self._shared.setdefault(key, _Shared())
        shared.users += 1
        if shared.closing is not None:
            shared.closing.cancel()
            shared.closing = None
        try:
            link = await self._live_link(shared, make)
        except BaseException:
            self._leave(key, shared)
            raise
        return Borrowed(link, lambda: self._leave(key, shared))

    async def _live_link(self, shared: _Shared, make: Callable[[], Awaitable[L]]) -> L:
        if shared.link is not None and shared.link.is_closed():
            shared.link.abort()
            shared.link = None
        if shared.link is None:
            recent = time.monotonic() - shared.failed_at < _FAILURE_LASTS_S
            if shared.making is None and recent and shared.error is not None:
                raise shared.error
            if shared.making is None:
                shared.making = asyncio.ensure_future(self._make(shared, make))
                shared.making.add_done_callback(_note_outcome)
            await asyncio.shield(shared.making)
        link: Any = shared.link
        if link is None:
            raise asyncio.CancelledError
        return link  # type: ignore[no-any-return]  # one key, one type of link

    async def _make(self, shared: _Shared, make: Callable[[], Awaitable[L]]) -> None:
        try:
            link = await make()
        except Exception as error:
            shared.failed_at = time.monotonic()
            shared.error = error
            raise
        finally:
            shared.making = None
        if self._closed:
            link.abort()
            return
        shared.link = link
        shared.error = None

    def _leave(self, key: str, shared: _Shared) -> None:
        shared.users -= 1
        if shared.users > 0 or self._closed:
            return
        with contextlib.suppress(RuntimeError):  # the loop may be gone at exit
            loop = asyncio.get_running_loop()
            shared.closing = loop.call_later(self._linger_s, self._end, key, shared)

    def _end(self, key: str, shared: _Shared) -> None:
        """Nobody came back: hang up."""
        if shared.users > 0 or shared.making is not None:
            return
        if shared.link is not None:
            shared.link.abort()
            shared.link = None
        if self._shared.get(key) is shared:
            del self._shared[key]

    async def close(self) -> None:
        """Drop every bastion."""
        self._closed = True
        for shared in list(self._shared.values()):
            if shared.closing is not None:
                shared.closing.cancel()
            if shared.making is not None:
                making = shared.making
                making.cancel()
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await making
            if shared.link is not None:
                shared.link.abort()
        self._shared.clear()


def _note_outcome(task: asyncio.Task[Any]) -> None:
    """Read the error, which nobody else may: every waiter can have been cancelled."""
    if not task.cancelled():
        task.exception()

"""All hosts side by side. There is no barrier: no host ever waits for another."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from gpumon.collectors.host import HostCollector
from gpumon.collectors.pool import ConnectionPool
from gpumon.collectors.transport import Transport
from gpumon.inventory import HostConfig
from gpumon.snapshot import HostView

__all__ = ["Fleet"]

_log = logging.getLogger(__name__)


class Fleet:
    """Collects from every enabled host until it is cancelled.

    ``on_view`` is called in the event loop with the new view of a host at every
    sample and every change of its state. It must return quickly.
    """

    def __init__(
        self,
        hosts: Sequence[HostConfig],
        *,
        on_view: Callable[[HostView], None] | None = None,
    ) -> None:
        names = [host.name for host in hosts]
        if len(set(names)) != len(names):
            raise ValueError("two hosts have the same name")
        self._pool = ConnectionPool()
        self._on_view = on_view
        self._collectors = {host.name: HostCollector(host, self._pool, on_view) for host in hosts}

    def views(self) -> list[HostView]:
        """The newest view of every host, in inventory order."""
        return [collector.view for collector in self._collectors.values()]

    def connection(self, host: str) -> Transport | None:
        """The open transport of a host, for calls a person asks for; None while it is down."""
        return self._collectors[host].transport

    async def retry(self, host: str) -> None:
        """Try a waiting or blocked host again now."""
        self._collectors[host].retry_now()

    async def run(self) -> None:
        """Collect until cancelled; then end every probe and close every connection."""
        tasks = [
            asyncio.create_task(collector.run(), name=f"host {name}")
            for name, collector in self._collectors.items()
        ]
        try:
            # A collector only ends by a bug of ours; it must not take the others along.
            for outcome in asyncio.as_completed(tasks):
                try:
                    await outcome
                except asyncio.CancelledError:
                    raise
                except Exception:
                    _log.exception("a host's collector ended")
            await asyncio.Event().wait()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._pool.close()

"""One host's life: connect, stream its samples, back off, report its state."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable

from gpumon.collectors.causes import Explanation, explain
from gpumon.collectors.connect import open_transport
from gpumon.collectors.engines.registry import ENGINES
from gpumon.collectors.engines.tracking import EngineTracker
from gpumon.collectors.failures import TransportError
from gpumon.collectors.host_state import HostLife
from gpumon.collectors.pool import ConnectionPool
from gpumon.collectors.stream import Listener, stream_host
from gpumon.collectors.transport import Transport
from gpumon.inventory import HostConfig
from gpumon.snapshot import HostSnapshot, HostState, HostStatus, HostView

__all__ = ["HostCollector"]

_log = logging.getLogger(__name__)


class HostCollector:
    """Keeps one host's view fresh for as long as ``run`` runs."""

    def __init__(
        self,
        config: HostConfig,
        pool: ConnectionPool,
        on_view: Callable[[HostView], None] | None,
    ) -> None:
        self._config = config
        self._pool = pool
        self._on_view = on_view
        self._life = HostLife(time.time())
        self._retry = asyncio.Event()
        self._snapshot: HostSnapshot | None = None
        self._tracker = EngineTracker(ENGINES, config.engines)
        self._listener = Listener(self._hear, self._miss)
        self.transport: Transport | None = None
        status = self._life.status
        if not config.enabled:
            status = HostStatus(HostState.DISABLED, detail="disabled in the config")
        self.view = HostView(config.name, status, address=config.address)

    def retry_now(self) -> None:
        """End the wait for the next try, also of a blocked host."""
        self._retry.set()

    async def run(self) -> None:
        """Connect, stream, and begin again, until cancelled."""
        if not self._config.enabled:
            self._publish(self.view.status)
            return
        while True:
            self._publish(self._life.connecting())
            try:
                trouble = await self._connect_and_stream()
            except Exception as error:
                if not isinstance(error, TransportError | OSError):
                    _log.exception("host %s", self._config.name)
                trouble = explain(self._config, error)
            status = self._life.failed(trouble, time.time(), random.random())  # noqa: S311
            _log.info("%s", status.detail)
            self._publish(status)
            await self._wait_for_retry(status)

    async def _connect_and_stream(self) -> Explanation:
        """Stream until something ends it, and say what did."""
        transport = await open_transport(self._config, self._pool)
        self.transport = transport
        try:
            return await stream_host(self._config, transport, self._tracker, self._listener)
        finally:
            self.transport = None
            transport.abort()
            with contextlib.suppress(TransportError, OSError):
                await transport.close()

    async def _wait_for_retry(self, status: HostStatus) -> None:
        self._retry.clear()
        wait_s = None if status.retry_at is None else max(0.0, status.retry_at - time.time())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._retry.wait()

    def _hear(self, snapshot: HostSnapshot) -> None:
        self._snapshot = snapshot
        self._publish(self._life.sampled(snapshot.received_at))

    def _miss(self, silence_s: float) -> None:
        self._publish(self._life.silent(silence_s, time.time()))

    def _publish(self, status: HostStatus) -> None:
        self.view = HostView(
            self._config.name, status, self._snapshot, address=self._config.address
        )
        if self._on_view is not None:
            self._on_view(self.view)

"""One connection's stream of samples: start a reader there, hear it, notice its silence.

Three readers are tried in turn: the probe by the usual command, the probe by the plain
command (restricted shells), and, where the host has no Python, a loop around
``nvidia-smi``. Whatever ends the stream comes back as one ``Explanation``.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from gpumon.collectors.bootstrap import NO_PYTHON_EXIT, bootstrap_command, plain_command
from gpumon.collectors.causes import Explanation, explain, wants_plain_command
from gpumon.collectors.engines.registry import ENGINES
from gpumon.collectors.engines.tracking import EngineTracker
from gpumon.collectors.failures import ConnectionBroken, Exit, TransportError
from gpumon.collectors.host_state import reopen_after_s, stale_after_s
from gpumon.collectors.nvidia_smi import SmiReader, fallback_command
from gpumon.collectors.payload import HEARTBEAT, ProbeConfig, Request, build_payload, set_line
from gpumon.collectors.transport import ProbeProcess, Transport
from gpumon.collectors.wire import (
    WireError,
    read_answers,
    read_bye,
    read_hello,
    read_line,
    read_sample,
    read_watched,
)
from gpumon.inventory import HostConfig
from gpumon.snapshot import Cause, HostFacts, HostSnapshot

__all__ = ["Listener", "stream_host"]

#: A login shell's greeting longer than this is no greeting.
_MOST_NOISE_BYTES = 64 * 1024
_HELLO_WAIT_S = 10.0
_HEARTBEAT_EVERY_S = 5.0
#: So many lines in a row that are none end the stream.
_MOST_NONSENSE = 3


@dataclass(frozen=True, slots=True)
class Listener:
    """Who hears what a stream brings. Both are called in the event loop."""

    on_snapshot: Callable[[HostSnapshot], None]
    #: called with the seconds of silence when samples stop coming
    on_silent: Callable[[float], None]


async def stream_host(
    config: HostConfig, transport: Transport, tracker: EngineTracker, listener: Listener
) -> Explanation:
    """Stream until something ends it, and say what did.

    Raises the ``TransportError`` of a connection that broke.
    """
    stream = _Stream(config, transport, tracker, listener)
    ended = await stream.run_probe(bootstrap_command())
    if isinstance(ended, Exit) and wants_plain_command(ended):
        ended = await stream.run_probe(plain_command())
    if isinstance(ended, Exit) and ended.status == NO_PYTHON_EXIT and not ended.hello:
        ended = await stream.run_fallback()
    return explain(config, ended) if isinstance(ended, Exit) else ended


class _Stream:
    def __init__(
        self,
        config: HostConfig,
        transport: Transport,
        tracker: EngineTracker,
        listener: Listener,
    ) -> None:
        self._config = config
        self._transport = transport
        self._tracker = tracker
        self._listener = listener
        self._facts: HostFacts | None = None
        self._asked: tuple[Request, ...] = ()
        self._greeted = False
        self._noise = bytearray()
        self._bye: str | None = None
        self._stale: asyncio.TimerHandle | None = None

    async def run_probe(self, command: str) -> Exit | Explanation:
        """Load the probe by ``command`` and hear it to its end."""
        nonce = secrets.token_hex(8)
        probe = ProbeConfig(
            nonce=nonce,
            interval_s=self._config.interval_s,
            watch=tuple(pattern for engine in ENGINES for pattern in engine.watch),
            env_names=tuple(name for engine in ENGINES for name in engine.env_names),
            disks=self._config.disks,
        )

        def load() -> bytes:
            payload = build_payload(probe)
            return b"%d\n" % len(payload) + payload

        return await self._run(command, load, nonce, read_line)

    async def run_fallback(self) -> Exit | Explanation:
        """Read a host without Python through its shell and ``nvidia-smi``."""
        nonce = f"n{secrets.token_hex(8)}"
        command = fallback_command(self._config.interval_s, nonce=nonce)
        return await self._run(command, bytes, nonce, SmiReader().read)

    async def _run(
        self,
        command: str,
        make_start: Callable[[], bytes],
        nonce: str,
        parse: Callable[[bytes], dict[str, Any] | None],
    ) -> Exit | Explanation:
        self._greeted = False
        self._noise.clear()
        process = await self._transport.start(command)
        beat = asyncio.create_task(self._keep_alive(process))
        greeting = b"\x1e" + nonce.encode()
        nonsense = 0
        try:
            async with asyncio.timeout(_HELLO_WAIT_S) as limit:
                with contextlib.suppress(TransportError):
                    # A reader that ended at once is better explained by its exit.
                    # Made here, so that 100 KB are not kept for as long as the host is up.
                    await process.write(make_start())
                async for line in process.lines():
                    if not self._greeted:
                        self._listen_for(greeting, line)
                        continue
                    try:
                        record = parse(line)
                        if record is not None and await self._take(record, process):
                            limit.reschedule(self._wind_up())
                        record, nonsense = None, 0
                    except WireError as error:
                        nonsense += 1
                        if nonsense >= _MOST_NONSENSE:
                            return self._say_nonsense(str(error))
                    if self._bye is not None:
                        break
                status = await process.wait()
        except TimeoutError:
            return self._say_silent()
        except ConnectionResetError as error:
            raise ConnectionBroken(str(error)) from error
        finally:
            beat.cancel()
            if self._stale is not None:
                self._stale.cancel()
            process.kill()
        stderr = f"it said: {self._bye}" if self._bye is not None else process.stderr_tail()
        output = self._noise.decode("utf-8", "replace")
        return Exit(status, stderr=stderr, output=output, hello=self._facts is not None)

    def _listen_for(self, greeting: bytes, line: bytes) -> None:
        """Drop what a login shell says before the reader's greeting."""
        if line.endswith(greeting):
            self._greeted = True
            return
        self._noise += line + b"\n"
        if len(self._noise) > _MOST_NOISE_BYTES:
            del self._noise[:-1024]

    async def _take(self, record: dict[str, Any], process: ProbeProcess) -> bool:
        """Take one record in; True where it was a sample."""
        kind = record.get("t")
        if kind == "hello":
            self._facts = read_hello(record)
            return False
        if kind == "bye":
            self._bye = read_bye(record)
            return False
        received_at = time.time()
        snapshot = read_sample(
            record,
            host=self._config.name,
            received_at=received_at,
            facts=self._facts or HostFacts(),
            interval_s=self._config.interval_s,
        )
        engines, requests = self._tracker.update(
            read_watched(record), read_answers(record), snapshot.monotonic_s
        )
        snapshot = replace(snapshot, engines=engines)
        if requests != self._asked and snapshot.source == "python":
            self._asked = requests
            await process.write(set_line(requests=requests))
        self._listener.on_snapshot(snapshot)
        return True

    def _wind_up(self) -> float:
        """A sample came: set both clocks anew; returns when to give the stream up."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        if self._stale is not None:
            self._stale.cancel()
        after_s = stale_after_s(self._config.interval_s)
        self._stale = loop.call_at(now + after_s, self._listener.on_silent, after_s)
        return now + reopen_after_s(self._config.interval_s)

    async def _keep_alive(self, process: ProbeProcess) -> None:
        """The reader ends by itself when these stop coming."""
        with contextlib.suppress(TransportError, OSError):
            while True:
                await asyncio.sleep(_HEARTBEAT_EVERY_S)
                await process.write(HEARTBEAT)

    def _say_silent(self) -> Explanation:
        name = self._config.name
        if self._facts is None:
            noise = " ".join(self._noise.decode("utf-8", "replace").split())[:200]
            said = f'; it said "{noise}"' if noise else ""
            detail = f"{name}: logged in, but the probe did not speak within {_HELLO_WAIT_S:.0f} s"
            fix = "see whether its login shell waits for input or runs another program"
            return Explanation(Cause.SILENT, detail + said, fix, False)
        waited_s = reopen_after_s(self._config.interval_s)
        detail = f"{name}: no sample for {waited_s:.0f} s although the connection stood"
        fix = "the host may be frozen, overloaded, or its network cut; it is tried again"
        return Explanation(Cause.SILENT, detail, fix, False)

    def _say_nonsense(self, error: str) -> Explanation:
        detail = f"{self._config.name}: its probe sent what can't be read: {error}"
        fix = "see whether something on the host writes into the probe's output"
        return Explanation(Cause.PROTOCOL, detail, fix, False)

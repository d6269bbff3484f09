"""HTTP to a port of a host, over the connection that stands: no port is opened here.

httpx asks httpcore's pool, whose network is ``Transport.open_connection``: a direct-tcpip
channel for SSH hosts, a plain socket for this machine. A TCP forward would do as well, but
any local user could use it, and Ollama has no accounts.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from typing import Any

import httpcore
import httpx

from gpumon.collectors.failures import TransportError
from gpumon.collectors.transport import ByteReader, ByteWriter, Transport

__all__ = ["BodyTooLong", "ChannelTransport", "transport_error_in"]

_READ_BYTES = 65536
_MOST_CONNECTIONS = 4
_KEEP_ALIVE_S = 30.0


class BodyTooLong(httpx.ReadError):
    """A body of more than ``limit_bytes`` was not read to its end."""

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(f"a body of more than {limit_bytes} bytes")
        self.limit_bytes = limit_bytes


def transport_error_in(error: BaseException) -> TransportError | None:
    """What the connection to the host itself died of, where that is beneath an error."""
    seen: set[int] = set()
    beneath: BaseException | None = error
    while beneath is not None and id(beneath) not in seen:
        if isinstance(beneath, TransportError):
            return beneath
        seen.add(id(beneath))
        beneath = beneath.__cause__ or beneath.__context__
    return None


class _Stream(httpcore.AsyncNetworkStream):
    """One channel. Always reads one chunk ahead.

    So it is known at once when the server has closed a connection that waits for its next
    request (``is_readable``); and a read that timed out loses nothing.
    """

    def __init__(self, reader: ByteReader, writer: ByteWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._rest = b""
        self._ahead = self._read_ahead()

    def _read_ahead(self) -> asyncio.Task[bytes]:
        task = asyncio.ensure_future(self._reader.read(_READ_BYTES))
        # An error nobody asks for any more must not be complained of by asyncio.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return task

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109
        if not self._rest:
            done, _ = await asyncio.wait({self._ahead}, timeout=timeout)
            if not done:
                raise httpcore.ReadTimeout(f"no data within {timeout:g} s")
            try:
                self._rest = self._ahead.result()
            except asyncio.CancelledError:
                raise httpcore.ReadError("the channel is closed") from None
            except Exception as error:
                # Whatever a kind of connection raises here, to HTTP it is a broken one.
                raise httpcore.ReadError(str(error) or type(error).__name__) from error
            if self._rest:  # after the end it stays at the end
                self._ahead = self._read_ahead()
        data, self._rest = self._rest[:max_bytes], self._rest[max_bytes:]
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109
        if not buffer:
            return
        try:
            async with asyncio.timeout(timeout):
                self._writer.write(buffer)
                await self._writer.drain()
        except TimeoutError as error:
            raise httpcore.WriteTimeout(f"not taken within {timeout:g} s") from error
        except Exception as error:
            raise httpcore.WriteError(str(error) or type(error).__name__) from error

    async def aclose(self) -> None:
        self._ahead.cancel()
        with contextlib.suppress(Exception):
            self._writer.close()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> httpcore.AsyncNetworkStream:
        await self.aclose()
        raise httpcore.ConnectError("https is not spoken over a channel; use http")

    def get_extra_info(self, info: str) -> Any:
        return self._ahead.done() or bool(self._rest) if info == "is_readable" else None


class _Backend(httpcore.AsyncNetworkBackend):
    """httpcore's network: channels of one host."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        try:
            async with asyncio.timeout(timeout):
                reader, writer = await self._transport.open_connection(host, port)
        except TimeoutError as error:
            raise httpcore.ConnectTimeout(f"no connection within {timeout:g} s") from error
        except (TransportError, OSError) as error:
            raise httpcore.ConnectError(str(error)) from error
        return _Stream(reader, writer)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


@contextlib.contextmanager
def _as_httpx() -> Iterator[None]:
    """httpcore's exceptions as httpx's of the same names; the cause stays beneath."""
    try:
        yield
    except Exception as error:
        for kind in type(error).__mro__:
            same = getattr(httpx, kind.__name__, None)
            if kind.__module__.startswith("httpcore") and same is not None:
                raise same(str(error)) from error
        raise


class _Body(httpx.AsyncByteStream):
    """A response's body that stops at a limit."""

    def __init__(
        self,
        parts: AsyncIterator[bytes],
        close: Callable[[], Awaitable[None]],
        limit_bytes: int | None,
    ) -> None:
        self._parts = parts
        self._close = close
        self._limit_bytes = limit_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        got = 0
        with _as_httpx():
            async for part in self._parts:
                got += len(part)
                if self._limit_bytes is not None and got > self._limit_bytes:
                    raise BodyTooLong(self._limit_bytes)
                yield part

    async def aclose(self) -> None:
        with _as_httpx():
            await self._close()


class ChannelTransport(httpx.AsyncBaseTransport):
    """For ``httpx.AsyncClient(transport=...)`` and all that is built on it.

    ``bearer`` is the only key that is ever sent: one that a client library takes from this
    machine's environment (``OLLAMA_API_KEY``) is not for the host. Longer bodies than
    ``limit_bytes`` raise ``BodyTooLong``.
    """

    def __init__(
        self, transport: Transport, *, bearer: str | None = None, limit_bytes: int | None = None
    ) -> None:
        self._bearer = bearer
        self._limit_bytes = limit_bytes
        self._pool = httpcore.AsyncConnectionPool(
            max_connections=_MOST_CONNECTIONS,
            keepalive_expiry=_KEEP_ALIVE_S,
            network_backend=_Backend(transport),
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send one request; see ``httpx.AsyncBaseTransport``."""
        own = (b"authorization", b"accept-encoding")
        headers = [pair for pair in request.headers.raw if pair[0].lower() not in own]
        headers.append((b"Accept-Encoding", b"identity"))
        if self._bearer is not None:
            headers.append((b"Authorization", f"Bearer {self._bearer}".encode()))
        url = httpcore.URL(
            scheme=request.url.raw_scheme,
            host=request.url.raw_host,
            port=request.url.port,
            target=request.url.raw_path,
        )
        asked = httpcore.Request(
            request.method,
            url,
            headers=headers,
            content=request.stream,
            extensions=request.extensions,
        )
        with _as_httpx():
            answer = await self._pool.handle_async_request(asked)
            if any(name.lower() == b"content-encoding" for name, _ in answer.headers):
                # A few bytes could unpack to more than any limit.
                await answer.aclose()
                raise httpcore.RemoteProtocolError("a compressed body that nobody asked for")
        return httpx.Response(
            answer.status,
            headers=answer.headers,
            stream=_Body(answer.aiter_stream(), answer.aclose, self._limit_bytes),
            extensions=answer.extensions,
        )

    async def aclose(self) -> None:
        """Close the channels."""
        with _as_httpx():
            await self._pool.aclose()

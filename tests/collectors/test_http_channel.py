"""HTTP over a host's connection: this machine's, asyncssh's and the system ssh's."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable

import httpx
import pytest

from gpumon.collectors.connect import open_transport
from gpumon.collectors.failures import ConnectionBroken, ForwardRefused
from gpumon.collectors.http_channel import BodyTooLong, ChannelTransport, transport_error_in
from gpumon.collectors.local import LocalTransport
from gpumon.collectors.transport import ByteReader, ByteWriter, Transport
from gpumon.inventory import HostConfig
from tests.collectors.real_sshd import Client, Sshd
from tests.rig.replay import Asked, Replay, Reply

Speak = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Counting(LocalTransport):
    """This machine, counting how often a channel was opened."""

    def __init__(self) -> None:
        super().__init__()
        self.opened = 0

    async def open_connection(self, host: str, port: int) -> tuple[ByteReader, ByteWriter]:
        self.opened += 1
        return await super().open_connection(host, port)


@pytest.fixture
async def serve() -> AsyncIterator[Callable[[Speak], Awaitable[int]]]:
    """Start a server that speaks raw bytes; returns its port."""
    servers: list[asyncio.Server] = []

    async def start(speak: Speak) -> int:
        server = await asyncio.start_server(speak, "127.0.0.1", 0)
        servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    yield start
    for server in servers:
        server.close()


def http_to(
    transport: Transport, port: int, *, limit_bytes: int | None = None
) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{port}",
        transport=ChannelTransport(transport, limit_bytes=limit_bytes),
        timeout=httpx.Timeout(5.0),
    )


async def read_head(reader: asyncio.StreamReader) -> None:
    while (await reader.readline()).strip():
        pass


async def test_requests_share_a_channel_and_a_big_body_comes_whole() -> None:
    transport = Counting()
    body = bytes(range(256)) * 20_000
    with Replay({"GET /big": Reply(body), "POST /echo": lambda asked: Reply(asked.body)}) as server:
        async with http_to(transport, server.port) as http:
            assert (await http.get("/big")).content == body
            answer = await http.post("/echo", content=body)
            assert answer.content == body
            assert (await http.get("/nothing")).status_code == 404
    assert transport.opened == 1


async def test_answers_may_stream() -> None:
    with Replay({"/lines": Reply("a\nb\nc\n")}) as server:
        async with (
            http_to(LocalTransport(), server.port) as http,
            http.stream("GET", "/lines") as answer,
        ):
            assert [line async for line in answer.aiter_lines()] == ["a", "b", "c"]


async def test_a_connection_that_the_server_closed_meanwhile_is_not_used_again(
    serve: Callable[[Speak], Awaitable[int]],
) -> None:
    closed = asyncio.Event()

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Promises to keep the connection, and closes it after the answer.
        await read_head(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        await writer.drain()
        writer.close()
        closed.set()

    transport = Counting()
    async with http_to(transport, await serve(speak)) as http:
        for number in range(1, 4):
            assert (await http.get("/")).text == "ok"
            await closed.wait()
            closed.clear()
            # The end of the stream arrives with the next turns of the loop.
            for _ in range(5):
                await asyncio.sleep(0)
            assert transport.opened == number


async def test_timeouts_are_those_of_httpx(serve: Callable[[Speak], Awaitable[int]]) -> None:
    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with http_to(LocalTransport(), await serve(hang)) as http:
        with pytest.raises(httpx.ReadTimeout):
            await http.get("/", timeout=0.05)
        body = b"x" * 50_000_000
        with pytest.raises((httpx.WriteTimeout, httpx.ReadTimeout)):
            await http.post("/", content=body, timeout=0.2)

    class Slow(LocalTransport):
        async def open_connection(self, host: str, port: int) -> tuple[ByteReader, ByteWriter]:
            await asyncio.Event().wait()
            raise AssertionError

    async with http_to(Slow(), 1) as http:
        with pytest.raises(httpx.ConnectTimeout):
            await http.get("/", timeout=0.05)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nha", httpx.RemoteProtocolError),
        (b"", httpx.RemoteProtocolError),
        (b"SSH-2.0-OpenSSH_9.2\r\n", httpx.RemoteProtocolError),
        (
            b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\nha",
            httpx.RemoteProtocolError,
        ),
    ],
    ids=["half", "nothing", "another-protocol", "compressed"],
)
async def test_what_is_no_whole_answer(
    serve: Callable[[Speak], Awaitable[int]], words: bytes, error: type[Exception]
) -> None:
    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_head(reader)
        writer.write(words)
        await writer.drain()
        writer.close()

    async with http_to(LocalTransport(), await serve(speak)) as http:
        with pytest.raises(error):
            await http.get("/")


async def test_a_body_without_end_has_a_limit() -> None:
    with Replay({"/": Reply(b"x" * 100_001)}) as server:
        async with http_to(LocalTransport(), server.port, limit_bytes=100_000) as http:
            with pytest.raises(BodyTooLong):
                await http.get("/")
            server.routes["/"] = Reply(b"x" * 100_000)
            assert len((await http.get("/")).content) == 100_000


async def test_only_the_key_that_is_meant_for_the_host_is_sent() -> None:
    def tell(asked: Asked) -> Reply:
        return Reply(asked.headers.get("Authorization", "none"))

    with Replay({"/": tell}) as server:
        for bearer, seen in ((None, "none"), ("meant", "Bearer meant")):
            channel = ChannelTransport(LocalTransport(), bearer=bearer)
            async with httpx.AsyncClient(transport=channel) as http:
                answer = await http.get(server.url, headers={"Authorization": "Bearer other"})
                assert answer.text == seen


async def test_https_is_refused_in_words() -> None:
    with Replay({}) as server:
        async with httpx.AsyncClient(transport=ChannelTransport(LocalTransport())) as http:
            with pytest.raises(httpx.ConnectError, match="use http"):
                await http.get(f"https://127.0.0.1:{server.port}/")


async def test_nothing_is_left_behind(recwarn: pytest.WarningsRecorder) -> None:
    before = asyncio.all_tasks()
    with Replay({"/": Reply("x"), "/hang": Reply(hang=True)}) as server:
        async with http_to(LocalTransport(), server.port) as http:
            await http.get("/")
            asking = asyncio.create_task(http.get("/hang"))
            while not any(asked.path == "/hang" for asked in server.asked):
                await asyncio.sleep(0.01)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
    await asyncio.sleep(0)
    gc.collect()
    assert asyncio.all_tasks() == before
    assert not recwarn.list


# --- over ssh ----------------------------------------------------------------------------


def host(server: Sshd, transport: str) -> HostConfig:
    return HostConfig("gpu1", address=server.address, port=server.port, transport=transport)


@pytest.mark.parametrize("kind", ["asyncssh", "ssh"])
async def test_over_a_real_sshd(sshd: Sshd, client: Client, kind: str) -> None:
    client.trust(sshd)
    pool = client.pool()
    transport = await open_transport(host(sshd, kind), pool)
    body = b"x" * 1_000_000
    with Replay({"GET /": Reply(body), "POST /": lambda asked: Reply(asked.body)}) as server:
        async with httpx.AsyncClient(transport=ChannelTransport(transport)) as http:
            assert (await http.get(server.url)).content == body
            assert (await http.post(server.url, content=body)).content == body
    await transport.close()
    await pool.close()


async def test_what_went_wrong_beneath_stays_known(
    start_sshd: Callable[..., Sshd], client: Client, unused_tcp_port: int
) -> None:
    sshd = start_sshd()
    client.trust(sshd)
    pool = client.pool()
    transport = await open_transport(host(sshd, "asyncssh"), pool)
    async with httpx.AsyncClient(transport=ChannelTransport(transport)) as http:
        with pytest.raises(httpx.ConnectError) as raised:
            await http.get(f"http://127.0.0.1:{unused_tcp_port}/")
        beneath = transport_error_in(raised.value)
        assert isinstance(beneath, ForwardRefused)
        assert not beneath.forbidden
        with Replay({"/hang": Reply(hang=True)}) as server:
            asking = asyncio.create_task(http.get(f"{server.url}/hang", timeout=20))
            while not server.asked:
                await asyncio.sleep(0.01)
            transport.abort()
            with pytest.raises((httpx.ReadError, httpx.RemoteProtocolError)):
                await asking
        with pytest.raises(httpx.ConnectError) as raised:
            await http.get(server.url)
        assert isinstance(transport_error_in(raised.value), ConnectionBroken)
    await transport.close()
    await pool.close()


async def test_forbidden_forwarding(start_sshd: Callable[..., Sshd], client: Client) -> None:
    sshd = start_sshd(extra="AllowTcpForwarding no")
    client.trust(sshd)
    pool = client.pool()
    transport = await open_transport(host(sshd, "asyncssh"), pool)
    async with httpx.AsyncClient(transport=ChannelTransport(transport)) as http:
        with pytest.raises(httpx.ConnectError) as raised:
            await http.get("http://127.0.0.1:1/")
    beneath = transport_error_in(raised.value)
    assert isinstance(beneath, ForwardRefused)
    assert beneath.forbidden
    await transport.close()
    await pool.close()

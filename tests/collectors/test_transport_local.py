"""This machine as a host, and the reading by lines that all transports share."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.collectors.connect import open_transport
from gpumon.collectors.failures import ConnectionBroken, ForwardRefused
from gpumon.collectors.line_queue import LineQueue
from gpumon.collectors.local import LocalTransport
from gpumon.collectors.pool import ConnectionPool
from gpumon.collectors.transport import LineTooLong
from gpumon.inventory import HostConfig


async def test_speaks_by_lines_both_ways() -> None:
    transport = await open_transport(HostConfig("here"), ConnectionPool())
    process = await transport.start('read a; echo "<$a>"; printf end; echo e >&2; exit 3')
    await process.write(b"one\n")
    assert [line async for line in process.lines()] == [b"<one>", b"end"]
    assert await process.wait() == 3
    assert process.stderr_tail() == "e\n"
    with pytest.raises(ConnectionBroken):
        await process.write(b"late\n")
    await transport.close()


async def test_kill_takes_the_whole_group(tmp_path: Path) -> None:
    transport = LocalTransport()
    process = await transport.start(f"sleep 300 & echo $! > {tmp_path}/pid; echo up; wait")
    lines = process.lines()
    assert await anext(lines) == b"up"
    transport.abort()
    assert [line async for line in lines] == []
    assert await process.wait() is None
    pid = (tmp_path / "pid").read_text().strip()
    async with asyncio.timeout(5):
        while Path(f"/proc/{pid}/cmdline").exists() and Path(f"/proc/{pid}/cmdline").read_bytes():
            await asyncio.sleep(0.02)
    await transport.close()


async def test_a_helper_that_holds_the_pipes_open_does_not_hold_up_the_end() -> None:
    transport = LocalTransport()
    process = await transport.start("sleep 30 > /dev/null & echo gone")
    async with asyncio.timeout(5):
        assert [line async for line in process.lines()] == [b"gone"]
        assert await process.wait() == 0
    await transport.close()


async def test_cancelled_starts_leave_no_process(tmp_path: Path) -> None:
    transport = LocalTransport()
    for step in range(12):
        task = asyncio.ensure_future(transport.start(f"exec sleep 77.{step}"))
        for _ in range(step):
            await asyncio.sleep(0)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            (await task).kill()

    def left() -> list[str]:
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = path.read_bytes().split(b"\0")
            except OSError:
                continue
            if words[:1] == [b"sleep"] and words[1].startswith(b"77."):
                found.append(path.parent.name)
        return found

    async with asyncio.timeout(5):
        while left():
            await asyncio.sleep(0.02)
    await transport.close()


async def test_a_line_without_end_is_refused() -> None:
    transport = LocalTransport()
    process = await transport.start("echo first; head -c 10000000 /dev/zero; sleep 60")
    lines = process.lines()
    assert await anext(lines) == b"first"
    with pytest.raises(LineTooLong):
        await anext(lines)
    process.kill()
    await transport.close()


async def test_opens_ports(unused_tcp_port: int) -> None:
    transport = LocalTransport()
    with pytest.raises(ForwardRefused) as raised:
        await transport.open_connection("127.0.0.1", unused_tcp_port)
    assert not raised.value.forbidden


def test_a_fleet_of_this_machine_alone_does_not_load_asyncssh() -> None:
    code = (
        "import asyncio, sys\n"
        "from gpumon.collectors.connect import open_transport\n"
        "from gpumon.collectors.pool import ConnectionPool\n"
        "from gpumon.collectors import causes\n"
        "from gpumon.inventory import HostConfig\n"
        "asyncio.run(open_transport(HostConfig('here'), ConnectionPool()))\n"
        "assert 'asyncssh' not in sys.modules, 'loaded'\n"
        "assert 'cryptography' not in sys.modules, 'loaded'\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


async def drain(queue: LineQueue) -> list[bytes]:
    return [line async for line in queue.iterate()]


@given(st.binary(max_size=200), st.lists(st.integers(1, 20)))
def test_lines_do_not_depend_on_how_the_bytes_arrive(data: bytes, cuts: list[int]) -> None:
    queue = LineQueue()
    rest = data
    for cut in cuts:
        queue.feed(rest[:cut])
        rest = rest[cut:]
    if rest:
        queue.feed(rest)
    queue.end()
    expected = data.split(b"\n")
    if not expected[-1]:
        expected.pop()
    assert asyncio.run(drain(queue)) == expected


@pytest.mark.parametrize("size", [1, 7, 100])
async def test_the_limit_holds_however_the_bytes_arrive(size: int) -> None:
    queue = LineQueue(limit_bytes=50)
    data = b"a" * 50 + b"\n" + b"b" * 51 + b"\nnever\n"
    for start in range(0, len(data), size):
        queue.feed(data[start : start + size])
    lines = queue.iterate()
    assert await anext(lines) == b"a" * 50
    with pytest.raises(LineTooLong):
        await anext(lines)


async def test_a_queue_that_nobody_reads_stops_its_source() -> None:
    calls: list[str] = []
    queue = LineQueue()
    queue.control_flow(lambda: calls.append("pause"), lambda: calls.append("resume"))
    for _ in range(400):
        queue.feed(b"x" * 1000 + b"\n")
    assert calls == ["pause"]
    lines = queue.iterate()
    for _ in range(399):
        await anext(lines)
    assert calls == ["pause", "resume"]


async def test_an_error_comes_after_the_whole_lines_before_it() -> None:
    queue = LineQueue()
    queue.feed(b"one\ntw")
    queue.end(ConnectionBroken("gone"))
    lines = queue.iterate()
    assert await anext(lines) == b"one"
    with pytest.raises(ConnectionBroken):
        await anext(lines)

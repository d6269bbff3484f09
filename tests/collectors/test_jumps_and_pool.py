"""Bastions shared and counted, and how many connects run at once."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from gpumon.collectors import pool as pool_module
from gpumon.collectors.causes import explain
from gpumon.collectors.connect import open_transport
from gpumon.collectors.failures import ConfigRejected, ConnectionBroken, TransportError
from gpumon.collectors.pool import ConnectionPool
from gpumon.collectors.transport import Transport
from gpumon.inventory import HostConfig
from gpumon.snapshot import Cause
from tests.collectors.real_sshd import Client, Sshd, make_key, public_line

TARGET = HostConfig("gpu1", address="gpu1")


def behind(bastion: Sshd, target: Sshd, count: int = 1, *, hop: str = "hop") -> str:
    """Hosts gpu1, gpu2, ... that are all reached through the bastion."""
    hosts = "".join(
        f"Host gpu{n}\n HostName {target.address}\n Port {target.port}\n ProxyJump {hop}\n"
        for n in range(1, count + 1)
    )
    return f"{hosts}Host hop\n HostName {bastion.address}\n Port {bastion.port}\n"


async def echo(transport: Transport, word: str) -> list[bytes]:
    process = await transport.start(f"echo {word}")
    return [line async for line in process.lines()]


async def refused(config: HostConfig, pool: ConnectionPool) -> TransportError:
    with pytest.raises(TransportError) as raised:
        await open_transport(config, pool)
    return raised.value


async def test_many_targets_share_one_connection_to_the_bastion(
    start_sshd: Callable[..., Sshd], sshd: Sshd, client: Client
) -> None:
    bastion = start_sshd("bastion")
    client.trust(bastion, sshd)
    client.write(behind(bastion, sshd, 20))
    pool = client.pool()
    hosts = [HostConfig(f"gpu{n}", address=f"gpu{n}") for n in range(1, 21)]
    transports = await asyncio.gather(*(open_transport(host, pool) for host in hosts))
    assert await asyncio.gather(*(echo(t, h.name) for t, h in zip(transports, hosts, strict=True)))
    assert transports[0].description.endswith(" via hop")
    assert bastion.logged("Accepted publickey") == 1
    # it stays for those who come back, and is not there for nobody for ever
    for transport in transports:
        await transport.close()
    again = await open_transport(TARGET, pool)
    assert bastion.logged("Accepted publickey") == 1
    await again.close()
    await pool.close()
    async with asyncio.timeout(10):
        while bastion.children():
            await asyncio.sleep(0.02)


async def test_an_unused_bastion_is_hung_up_on(
    start_sshd: Callable[..., Sshd], sshd: Sshd, client: Client
) -> None:
    bastion = start_sshd("bastion")
    client.trust(bastion, sshd)
    client.write(behind(bastion, sshd, 2))
    pool = client.pool(linger_s=0.2)
    first = await open_transport(TARGET, pool)
    second = await open_transport(HostConfig("gpu2", address="gpu2"), pool)
    await first.close()
    await first.close()  # giving back twice counts once
    await asyncio.sleep(0.4)
    assert len(bastion.children()) == 1
    assert await echo(second, "still") == [b"still"]
    await second.close()
    async with asyncio.timeout(10):
        while bastion.children():
            await asyncio.sleep(0.02)
    await pool.close()


async def test_a_dead_bastion_is_built_anew(
    start_sshd: Callable[..., Sshd], sshd: Sshd, client: Client
) -> None:
    bastion = start_sshd("bastion")
    client.trust(bastion, sshd)
    client.write(behind(bastion, sshd))
    pool = client.pool()
    transport = await open_transport(TARGET, pool)
    process = await transport.start("echo up; cat")
    lines = process.lines()
    assert await anext(lines) == b"up"
    bastion.signal_sessions(signal.SIGKILL)
    with pytest.raises(ConnectionBroken):
        async with asyncio.timeout(5):
            await anext(lines)
    again = await open_transport(TARGET, pool)
    assert await echo(again, "again") == [b"again"]
    assert bastion.logged("Accepted publickey") == 2
    await transport.close()  # a late close of the old one harms nobody
    assert await echo(again, "again") == [b"again"]
    await again.close()
    await pool.close()


async def test_a_bastions_failure_names_the_hop_and_its_own_fix(
    start_sshd: Callable[..., Sshd], sshd: Sshd, client: Client, tmp_path: Path
) -> None:
    bastion = start_sshd("bastion")
    client.write(behind(bastion, sshd, 3))
    client.trust(sshd)
    pool = client.pool()
    told = explain(TARGET, await refused(TARGET, pool))
    assert told.cause is Cause.JUMP_FAILED
    assert "gpu1: jump host hop: the host key of [127.0.0.1]" in told.detail
    assert told.fix is not None
    assert told.fix.startswith("ssh hop ")
    assert told.blocked

    client.trust(bastion)
    wrong = make_key(tmp_path / "wrong")
    (bastion.directory / "authorized_keys").write_text(public_line(wrong) + "\n")
    pool = client.pool()
    others = [HostConfig(f"gpu{n}", address=f"gpu{n}") for n in (1, 2, 3)]
    for error in await asyncio.gather(*(refused(host, pool) for host in others)):
        told = explain(TARGET, error)
        assert told.cause is Cause.JUMP_FAILED
        assert "jump host hop: permission denied" in told.detail
        assert told.fix == "ssh-copy-id hop"
        assert told.blocked
    # three hosts, one login: fail2ban counts
    assert bastion.logged("Failed publickey") + bastion.logged("Connection closed by auth") <= 2
    assert bastion.logged("Connection from") == 2

    bastion.stop()
    pool = client.pool()
    told = explain(TARGET, await refused(TARGET, pool))
    assert told.cause is Cause.JUMP_FAILED
    assert "refused" in told.detail
    assert not told.blocked


async def test_a_bastion_that_forbids_the_way_on(
    start_sshd: Callable[..., Sshd], sshd: Sshd, client: Client
) -> None:
    bastion = start_sshd("bastion", extra="AllowTcpForwarding no")
    client.trust(bastion, sshd)
    client.write(behind(bastion, sshd))
    pool = client.pool()
    told = explain(TARGET, await refused(TARGET, pool))
    assert told.cause is Cause.JUMP_FAILED
    assert "hop forbids" in told.detail
    assert "AllowTcpForwarding" in (told.fix or "")
    await pool.close()


async def test_a_target_that_its_bastion_cannot_reach_is_not_the_bastions_fault(
    start_sshd: Callable[..., Sshd], client: Client
) -> None:
    bastion, target = start_sshd("bastion"), start_sshd("target")
    client.trust(bastion, target)
    client.write(behind(bastion, target))
    target.stop()
    pool = client.pool()
    told = explain(TARGET, await refused(TARGET, pool))
    assert told.cause is Cause.REFUSED
    assert "as hop sees it" in told.detail
    await pool.close()


async def test_two_hops(start_sshd: Callable[..., Sshd], sshd: Sshd, client: Client) -> None:
    outer, inner = start_sshd("outer"), start_sshd("inner", address="127.0.0.2")
    client.trust(outer, inner, sshd)
    client.write(
        behind(inner, sshd)
        + f" ProxyJump outer\nHost outer\n HostName {outer.address}\n Port {outer.port}\n"
    )
    pool = client.pool()
    transport = await open_transport(TARGET, pool)
    assert transport.description.endswith(" via outer, hop")
    assert await echo(transport, "deep") == [b"deep"]
    outer.stop()
    told = explain(TARGET, await refused(TARGET, client.pool()))
    assert told.cause is Cause.JUMP_FAILED
    assert "jump host outer" in told.detail
    await transport.close()
    await pool.close()


@pytest.mark.parametrize("transport", ["asyncssh", "ssh"])
async def test_a_circle_of_jumps_is_refused(client: Client, transport: str) -> None:
    """ssh itself would start itself again and again, without end."""
    client.write("Host *\n ProxyJump hop\n")
    pool = client.pool()
    config = HostConfig("gpu1", address="gpu1", transport=transport)
    error = await refused(config, pool)
    assert isinstance(error, ConfigRejected)
    assert explain(config, error).cause is Cause.CONFIG
    client.write("Host a\n ProxyJump b\nHost b\n ProxyJump c\nHost c\n ProxyJump b\n")
    error = await refused(HostConfig("a", address="a", transport=transport), client.pool())
    assert "b -> c -> b" in str(error)


async def test_cancelled_connects_leave_no_channel_on_the_bastion(
    start_sshd: Callable[..., Sshd], sshd: Sshd, client: Client
) -> None:
    bastion = start_sshd("bastion")
    client.trust(bastion, sshd)
    client.write(behind(bastion, sshd))
    pool = client.pool()
    keep = await open_transport(TARGET, pool)
    for step in range(25):
        task = asyncio.ensure_future(open_transport(TARGET, pool))
        for _ in range(step):
            await asyncio.sleep(0)
        if step % 2:
            await asyncio.sleep(0.002 * step)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await (await task).close()
    opened = "server_request_direct_tcpip"
    async with asyncio.timeout(15):
        # every channel that the bastion opened is closed again, but the one in use
        while bastion.logged(opened) - bastion.logged(": free: direct-tcpip") != 1:
            await asyncio.sleep(0.05)
    assert bastion.logged(opened) > 3
    assert bastion.logged("Accepted publickey") == 1
    await keep.close()
    await pool.close()


async def test_places_for_connects_are_counted_per_server_and_in_total(client: Client) -> None:
    now: dict[int, int] = {}
    peaks: dict[int, int] = {}
    peak_in_total = 0

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal peak_in_total
        port = writer.get_extra_info("sockname")[1]
        now[port] = now.get(port, 0) + 1
        peaks[port] = max(peaks.get(port, 0), now[port])
        peak_in_total = max(peak_in_total, sum(now.values()))
        await asyncio.sleep(0.15)
        now[port] -= 1
        writer.close()

    servers = [await asyncio.start_server(hold, "127.0.0.1", 0) for _ in range(3)]
    ports = [server.sockets[0].getsockname()[1] for server in servers]
    pool = client.pool(in_total=20)
    configs = [HostConfig("x", address="127.0.0.1", port=port) for port in ports for _ in range(16)]
    await asyncio.gather(*(refused(config, pool) for config in configs))
    assert set(peaks.values()) == {8}
    assert peak_in_total == 20
    for server in servers:
        server.close()
    await pool.close()


async def test_one_waiter_cancelled_does_not_end_the_attempt_of_the_others() -> None:
    class Link:
        def is_closed(self) -> bool:
            return False

        def abort(self) -> None:
            aborted.append(self)

    aborted: list[Link] = []
    made = 0
    go_on = asyncio.Event()

    async def make() -> Link:
        nonlocal made
        made += 1
        await go_on.wait()
        return Link()

    pool = ConnectionPool(linger_s=0.05)
    first = asyncio.ensure_future(pool.borrow("hop", make))
    second = asyncio.ensure_future(pool.borrow("hop", make))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    first.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await first
    go_on.set()
    borrowed = await second
    assert made == 1
    assert aborted == []
    borrowed.release()
    borrowed.release()
    async with asyncio.timeout(2):
        while not aborted:
            await asyncio.sleep(0.01)
    await pool.close()


async def test_a_failed_bastion_is_not_asked_again_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    attempts = 0

    async def fail() -> pool_module.Link:
        nonlocal attempts
        attempts += 1
        raise ConnectionBroken("no")

    pool = ConnectionPool()
    for _ in range(3):
        with pytest.raises(ConnectionBroken):
            await pool.borrow("hop", fail)
    assert attempts == 1
    monkeypatch.setattr(pool_module, "_FAILURE_LASTS_S", 0.0)
    with pytest.raises(ConnectionBroken):
        await pool.borrow("hop", fail)
    assert attempts == 2
    await pool.close()

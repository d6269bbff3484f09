"""The transport over the system's own ``ssh``."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from gpumon.collectors.causes import explain
from gpumon.collectors.connect import open_transport
from gpumon.collectors.failures import ConnectionBroken, ForwardRefused, SshExited
from gpumon.collectors.pool import ConnectionPool
from gpumon.collectors.transport import Transport
from gpumon.inventory import HostConfig
from gpumon.snapshot import Cause
from tests.collectors.real_sshd import Client, Sshd, make_key, public_line


def host(server: Sshd) -> HostConfig:
    return HostConfig("gpu1", address=server.address, port=server.port, transport="ssh")


async def run(transport: Transport, command: str) -> list[bytes]:
    process = await transport.start(command)
    return [line async for line in process.lines()]


async def test_speaks_by_lines_both_ways(sshd: Sshd, client: Client) -> None:
    client.trust(sshd)
    pool = client.pool()
    transport = await open_transport(host(sshd), pool)
    assert transport.description.startswith("ssh ")
    process = await transport.start('read a; echo "<$a>"; echo e >&2; exit 3')
    await process.write(b"one\n")
    assert [line async for line in process.lines()] == [b"<one>"]
    assert await process.wait() == 3
    assert process.stderr_tail() == "e\n"
    with pytest.raises(ConnectionBroken):
        await process.write(b"late\n")
    await transport.close()
    await pool.close()


async def test_config_gives_no_terminal_command_or_port(
    sshd: Sshd, client: Client, unused_tcp_port: int
) -> None:
    client.trust(sshd)
    client.write(
        "Host *\n RequestTTY force\n ForwardAgent yes\n RemoteCommand echo remote\n"
        f" LocalForward {unused_tcp_port} 127.0.0.1:1\n PermitLocalCommand yes\n"
        " LocalCommand echo local\n"
    )
    pool = client.pool()
    transport = await open_transport(host(sshd), pool)
    process = await transport.start('test -t 0 && echo tty; echo "$SSH_AUTH_SOCK,"; cat')
    lines = process.lines()
    assert await anext(lines) == b","
    with pytest.raises(OSError):
        await asyncio.open_connection("127.0.0.1", unused_tcp_port)
    process.kill()
    assert await process.wait() is None
    await transport.close()
    await pool.close()


async def test_kill_ends_ssh_and_the_remote_process(
    sshd: Sshd, client: Client, tmp_path: Path
) -> None:
    client.trust(sshd)
    pool = client.pool()
    transport = await open_transport(host(sshd), pool)
    process = await transport.start(f"echo $$ > {tmp_path}/pid; echo up; cat > /dev/null")
    lines = process.lines()
    assert await anext(lines) == b"up"
    transport.abort()
    assert [line async for line in lines] == []
    pid = (tmp_path / "pid").read_text().strip()
    async with asyncio.timeout(10):
        while Path(f"/proc/{pid}").exists():
            await asyncio.sleep(0.02)
    await transport.close()
    await pool.close()


async def test_opens_ports_as_the_host_sees_them(
    start_sshd: Callable[..., Sshd], sshd: Sshd, client: Client
) -> None:
    strict = start_sshd(extra="AllowTcpForwarding no")
    client.trust(sshd, strict)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readline())
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    pool = client.pool()
    transport = await open_transport(host(sshd), pool)
    reader, writer = await transport.open_connection("127.0.0.1", port)
    writer.write(b"hello\n")
    assert await reader.read(100) == b"hello\n"
    assert await reader.read(100) == b""
    writer.close()
    reader, writer = await transport.open_connection("127.0.0.1", 1)
    with pytest.raises(ForwardRefused) as raised:
        await reader.read(1)
    assert not raised.value.forbidden
    writer.close()
    await transport.close()
    transport = await open_transport(host(strict), pool)
    reader, writer = await transport.open_connection("127.0.0.1", port)
    with pytest.raises(ForwardRefused) as raised:
        await reader.read(1)
    assert raised.value.forbidden
    writer.close()
    await transport.close()
    server.close()
    await pool.close()


async def test_a_control_master_of_the_users_is_used(
    start_sshd: Callable[..., Sshd], client: Client, tmp_path: Path
) -> None:
    server = start_sshd()
    client.trust(server)
    client.write(f"Host *\n ControlMaster auto\n ControlPersist 60\n ControlPath {tmp_path}/cm\n")
    pool = client.pool()
    transport = await open_transport(host(server), pool)
    try:
        assert await run(transport, "echo one") == [b"one"]
        # the master that ssh left behind holds no pipe of ours open
        assert await run(transport, "echo two") == [b"two"]
        assert server.logged("Accepted publickey") == 1
    finally:
        subprocess.run(
            ["ssh", "-F", str(client.config), "-O", "exit", "x"], check=False, capture_output=True
        )
    await transport.close()
    await pool.close()


async def explained(config: HostConfig, pool: ConnectionPool) -> tuple[Cause, str, str, bool]:
    transport = await open_transport(config, pool)
    process = await transport.start("true")
    with pytest.raises(SshExited) as raised:
        async for _ in process.lines():
            pass
    assert await process.wait() == 255
    await transport.close()
    told = explain(config, raised.value)
    return told.cause, told.detail, told.fix or "", told.blocked


async def test_its_failures_are_told_apart(
    sshd: Sshd, client: Client, tmp_path: Path, unused_tcp_port: int
) -> None:
    config = host(sshd)
    pool = client.pool()
    cause, detail, fix, blocked = await explained(config, pool)
    assert (cause, blocked) == (Cause.KEY_UNKNOWN, True)
    assert "gpu1: the host key of [127.0.0.1]" in detail
    assert fix.startswith(f"ssh -p {sshd.port} 127.0.0.1")

    wrong = make_key(tmp_path / "wrong")
    client.known_hosts.write_text(f"# one\n{sshd.name} {public_line(wrong)}\n")
    cause, detail, fix, blocked = await explained(config, pool)
    assert (cause, blocked) == (Cause.KEY_CHANGED, True)
    assert f"{client.known_hosts}:2" in detail
    assert "SHA256:" in detail
    assert f"ssh-keygen -R '{sshd.name}' -f {client.known_hosts}" in fix

    client.known_hosts.write_text(sshd.known_line(f"@revoked {sshd.name}"))
    cause, _, _, blocked = await explained(config, pool)
    assert (cause, blocked) == (Cause.KEY_REVOKED, True)

    client.known_hosts.write_text(sshd.known_line())
    client.write(f"Host *\n IdentityFile {wrong}\n", defaults=False)
    client.config.write_text(
        client.config.read_text()
        + f" IdentityAgent none\n UserKnownHostsFile {client.known_hosts}\n"
    )
    pool = client.pool()
    cause, detail, fix, blocked = await explained(config, pool)
    assert (cause, blocked) == (Cause.PERMISSION_DENIED, True)
    assert "publickey" in detail
    assert fix.startswith("ssh-copy-id")

    other = HostConfig("gpu2", address="127.0.0.1", port=unused_tcp_port, transport="ssh")
    cause, detail, _, blocked = await explained(other, pool)
    assert (cause, blocked) == (Cause.REFUSED, False)
    assert f"127.0.0.1 port {unused_tcp_port}" in detail

    other = HostConfig("gpu3", address="no-such-host.invalid", transport="ssh")
    cause, detail, _, blocked = await explained(other, pool)
    assert (cause, blocked) == (Cause.NAME_NOT_FOUND, False)
    assert "no-such-host.invalid" in detail
    await pool.close()


async def test_a_jump_host_s_failure_names_it(
    start_sshd: Callable[..., Sshd], sshd: Sshd, client: Client
) -> None:
    bastion = start_sshd("bastion")
    client.trust(sshd)
    client.write(
        f"Host gpu1\n HostName {sshd.address}\n Port {sshd.port}\n ProxyJump hop\n"
        f"Host hop\n HostName {bastion.address}\n Port {bastion.port}\n"
    )
    config = HostConfig("gpu1", address="gpu1", transport="ssh")
    cause, detail, fix, blocked = await explained(config, client.pool())
    assert (cause, blocked) == (Cause.JUMP_FAILED, True)
    assert "jump host hop: the host key" in detail
    assert fix.startswith("ssh hop")
    client.trust(bastion)
    transport = await open_transport(config, client.pool())
    assert await run(transport, "echo through") == [b"through"]
    assert transport.description.endswith("via hop")
    await transport.close()
    bastion.stop()
    cause, detail, _, blocked = await explained(config, client.pool())
    assert (cause, blocked) == (Cause.JUMP_FAILED, False)
    assert "refused" in detail


async def test_a_tarpit_gives_up_by_the_configs_time(client: Client) -> None:
    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    client.write("Host *\n ConnectTimeout 1\n")
    port = server.sockets[0].getsockname()[1]
    config = HostConfig("gpu1", address="127.0.0.1", port=port, transport="ssh")
    async with asyncio.timeout(5):
        cause, _, _, blocked = await explained(config, client.pool())
    assert (cause, blocked) == (Cause.TIMED_OUT, False)
    server.close()

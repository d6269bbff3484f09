"""The asyncssh transport against real OpenSSH servers."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from gpumon.collectors import ssh_link
from gpumon.collectors.causes import explain
from gpumon.collectors.connect import open_transport
from gpumon.collectors.failures import (
    ConnectionBroken,
    Exit,
    ForwardRefused,
    LoginRefused,
    ReachFailed,
    TransportError,
)
from gpumon.collectors.transport import LineTooLong, ProbeProcess, Transport
from gpumon.inventory import HostConfig
from gpumon.snapshot import Cause
from tests.collectors.real_sshd import Client, Sshd, make_key, wait_until


def host(server: Sshd, **settings: object) -> HostConfig:
    return HostConfig("gpu1", address=server.address, port=server.port, **settings)  # type: ignore[arg-type]


async def read_all(process: ProbeProcess) -> list[bytes]:
    return [line async for line in process.lines()]


async def run(transport: Transport, command: str) -> tuple[list[bytes], int | None]:
    process = await transport.start(command)
    lines = await read_all(process)
    return lines, await process.wait()


async def test_speaks_by_lines_both_ways(sshd: Sshd, client: Client) -> None:
    client.trust(sshd)
    pool = client.pool()
    transport = await open_transport(host(sshd), pool)
    assert transport.description.endswith(f"@127.0.0.1:{sshd.port}")
    process = await transport.start(
        'read a; echo "<$a>"; read b; printf %s "$b"; echo e >&2; exit 3'
    )
    await process.write(b"one\ntwo\n")
    assert await read_all(process) == [b"<one>", b"two"]
    assert await process.wait() == 3
    assert process.stderr_tail() == "e\n"
    with pytest.raises(ConnectionBroken):
        await process.write(b"late\n")
    # two commands side by side on the one connection
    assert await asyncio.gather(*(run(transport, f"echo {n}") for n in range(4))) == [
        ([str(n).encode()], 0) for n in range(4)
    ]
    await transport.close()
    await pool.close()


async def test_config_gives_no_terminal_agent_or_compression(
    start_sshd: Callable[..., Sshd], client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = start_sshd(extra="AcceptEnv GPU_*")
    client.trust(server)
    client.write(
        "Host 127.0.0.1\n RequestTTY force\n ForwardAgent yes\n ForwardX11 yes\n Compression yes\n"
        ' RemoteCommand echo remote\n SetEnv GPU_A="x y"\n'
    )
    monkeypatch.setenv("DISPLAY", ":0")
    pool = client.pool()
    transport = await open_transport(host(server), pool)
    lines, status = await run(
        transport, 'test -t 0 && echo tty; echo "$SSH_AUTH_SOCK$DISPLAY,$GPU_A"'
    )
    assert (lines, status) == ([b",x y"], 0)
    log = server.log.read_text()
    assert "cipher: aes128-gcm@openssh.com" in log
    assert "compression: none" in log
    assert "compression: zlib" not in log
    assert "auth-agent-req" not in log
    await transport.close()
    await pool.close()


async def test_a_line_without_end_is_refused(sshd: Sshd, client: Client) -> None:
    client.trust(sshd)
    pool = client.pool()
    transport = await open_transport(host(sshd), pool)
    process = await transport.start("echo first; head -c 10000000 /dev/zero; sleep 60")
    lines = process.lines()
    assert await anext(lines) == b"first"
    with pytest.raises(LineTooLong) as raised:
        await anext(lines)
    assert explain(host(sshd), raised.value).cause is Cause.PROTOCOL
    process.kill()
    # the connection itself is as good as before
    assert await run(transport, "echo next") == ([b"next"], 0)
    await transport.close()
    await pool.close()


async def test_a_reader_that_stalls_gets_no_long_backlog(sshd: Sshd, client: Client) -> None:
    client.trust(sshd)
    pool = client.pool()
    transport = await open_transport(host(sshd), pool)
    process = await transport.start("yes 0123456789abcdef | head -n 200000; echo done >&2")
    lines = process.lines()
    assert await anext(lines) == b"0123456789abcdef"
    for _ in range(50):
        await asyncio.sleep(0.01)
    # 3.4 MB are on their way; what is not read stays on the host
    assert "done" not in process.stderr_tail()
    assert sum([1 async for _ in lines]) == 199_999
    assert await process.wait() == 0
    await transport.close()
    await pool.close()


async def test_kill_ends_the_remote_process(sshd: Sshd, client: Client, tmp_path: Path) -> None:
    client.trust(sshd)
    pool = client.pool()
    transport = await open_transport(host(sshd), pool)
    # one that watches its stdin, as the probe does, and one that only writes; what does
    # neither lives on where the login is root's, for sshd then delivers no signal
    watching = await transport.start(f"echo $$ > {tmp_path}/a; echo up; cat > /dev/null")
    writing = await transport.start(
        f"echo $$ > {tmp_path}/b; echo up; while sleep 0.05; do echo x; done"
    )
    for process in (watching, writing):
        assert await anext(process.lines()) == b"up"
        process.kill()
        assert await read_all(process) == []
    for name in ("a", "b"):
        pid = (tmp_path / name).read_text().strip()
        async with asyncio.timeout(10):
            while Path(f"/proc/{pid}").exists():
                await asyncio.sleep(0.02)
    assert await run(transport, "echo next") == ([b"next"], 0)
    await transport.close()
    await pool.close()


async def test_opens_ports_as_the_host_sees_them(sshd: Sshd, client: Client) -> None:
    client.trust(sshd)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readline())
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    pool = client.pool()
    transport = await open_transport(host(sshd), pool)
    reader, writer = await transport.open_connection("127.0.0.1", port)
    writer.write(b"hello\n")
    await writer.drain()
    assert await reader.read(100) == b"hello\n"
    assert await reader.read(100) == b""
    assert reader.at_eof()
    writer.close()
    with pytest.raises(ForwardRefused) as raised:
        await transport.open_connection("127.0.0.1", 1)
    assert not raised.value.forbidden
    await transport.close()
    with pytest.raises(ConnectionBroken):
        await transport.open_connection("127.0.0.1", port)
    with pytest.raises(ConnectionBroken):
        await transport.start("true")
    server.close()
    await pool.close()


async def test_forbidden_forwarding_is_told_apart(
    start_sshd: Callable[..., Sshd], client: Client
) -> None:
    server = start_sshd(extra="AllowTcpForwarding no")
    client.trust(server)
    pool = client.pool()
    transport = await open_transport(host(server), pool)
    with pytest.raises(ForwardRefused) as raised:
        await transport.open_connection("127.0.0.1", 1)
    assert raised.value.forbidden
    assert "AllowTcpForwarding" in (explain(host(server), raised.value).fix or "")
    assert await run(transport, "echo still") == ([b"still"], 0)
    await transport.close()
    await pool.close()


async def test_max_sessions_is_an_error_of_its_own(
    start_sshd: Callable[..., Sshd], client: Client
) -> None:
    server = start_sshd(extra="MaxSessions 2")
    client.trust(server)
    pool = client.pool()
    transport = await open_transport(host(server), pool)
    running = [await transport.start("cat") for _ in range(2)]
    with pytest.raises(LoginRefused) as raised:
        await transport.start("true")
    told = explain(host(server), raised.value)
    assert told.cause is Cause.SHELL_REFUSED
    assert "MaxSessions" in (told.fix or "")
    running[0].kill()
    async with asyncio.timeout(10):
        while True:
            try:
                assert await run(transport, "echo free") == ([b"free"], 0)
                break
            except LoginRefused:
                await asyncio.sleep(0.05)
    await transport.close()
    await pool.close()


async def test_cancelled_starts_leave_no_session_behind(
    start_sshd: Callable[..., Sshd], client: Client
) -> None:
    """Without a shield all of MaxSessions was gone after some thirty cancels."""
    server = start_sshd()
    client.trust(server)
    pool = client.pool()
    transport = await open_transport(host(server), pool)
    for step in range(40):
        task = asyncio.ensure_future(transport.start("cat"))
        for _ in range(step % 5):
            await asyncio.sleep(0)
        if step % 2:
            await asyncio.sleep(0.0005 * (step % 7))
        task.cancel()
        try:
            (await task).kill()
        except asyncio.CancelledError:
            pass
        except LoginRefused:  # ten are being thrown away just now
            await asyncio.sleep(0.1)
    # all ten places come free again, and nothing runs on
    opened: list[ProbeProcess] = []
    async with asyncio.timeout(20):
        while len(opened) < 10:
            try:
                opened.append(await transport.start("cat"))
            except LoginRefused:
                await asyncio.sleep(0.05)
        while server_cats(server) > 10:
            await asyncio.sleep(0.05)
    await transport.close()
    await pool.close()


def server_cats(server: Sshd) -> int:
    """Commands that still run in the server's sessions."""
    count = 0
    for child in server.children():
        pending = [child]
        while pending:
            pid = pending.pop()
            try:
                pending += map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
                count += Path(f"/proc/{pid}/comm").read_text().strip() == "cat"
            except (FileNotFoundError, ProcessLookupError):
                pass
    return count


def open_sockets() -> int:
    gc.collect()
    found = 0
    for path in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found += str(path.readlink()).startswith("socket:")
    return found


async def test_cancelled_connects_leave_nothing_behind(sshd: Sshd, client: Client) -> None:
    client.trust(sshd)
    pool = client.pool()
    await (await open_transport(host(sshd), pool)).close()
    sockets, tasks = open_sockets(), len(asyncio.all_tasks())
    for step in range(30):
        task = asyncio.ensure_future(open_transport(host(sshd), pool))
        for _ in range(step):
            await asyncio.sleep(0)
        if step % 3 == 0:
            await asyncio.sleep(0.004 * (step // 3))
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await (await task).close()
    async with asyncio.timeout(10):
        while open_sockets() > sockets or len(asyncio.all_tasks()) > tasks:
            await asyncio.sleep(0.05)
    # no place for a connect was lost either
    transports = await asyncio.gather(*(open_transport(host(sshd), pool) for _ in range(9)))
    await asyncio.gather(*(transport.close() for transport in transports))
    await pool.close()


async def test_a_frozen_server_is_noticed(
    start_sshd: Callable[..., Sshd], client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssh_link, "_KEEPALIVE_S", 0.3)
    server = start_sshd()
    client.trust(server)
    pool = client.pool()
    transport = await open_transport(host(server), pool)
    process = await transport.start("echo up; cat")
    lines = process.lines()
    assert await anext(lines) == b"up"
    server.signal_sessions(signal.SIGSTOP)
    with pytest.raises(ConnectionBroken) as raised:
        async with asyncio.timeout(5):
            await anext(lines)
    assert explain(host(server), raised.value).cause is Cause.CONNECTION_LOST
    # neither a start nor the end waits for the dead
    with pytest.raises(ConnectionBroken):
        async with asyncio.timeout(1):
            await transport.start("true")
    async with asyncio.timeout(2):
        await transport.close()
    server.signal_sessions(signal.SIGCONT)
    await pool.close()


async def test_a_killed_connection_ends_the_lines(
    start_sshd: Callable[..., Sshd], client: Client
) -> None:
    server = start_sshd()
    client.trust(server)
    pool = client.pool()
    transport = await open_transport(host(server), pool)
    process = await transport.start("echo up; cat")
    lines = process.lines()
    assert await anext(lines) == b"up"
    server.signal_sessions(signal.SIGKILL)
    with pytest.raises(ConnectionBroken):
        async with asyncio.timeout(5):
            await anext(lines)
    assert await process.wait() is None
    await transport.close()
    await pool.close()


async def test_a_server_that_accepts_and_says_nothing_times_out(client: Client) -> None:
    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    client.write("Host tarpit\n HostName 127.0.0.1\n ConnectTimeout 1\n")
    pool = client.pool()
    config = HostConfig("gpu1", address="tarpit", port=port)
    with pytest.raises(ReachFailed) as raised:
        async with asyncio.timeout(3):
            await open_transport(config, pool)
    told = explain(config, raised.value)
    assert told.cause is Cause.TIMED_OUT
    assert "gpu1" in told.detail
    assert not told.blocked
    server.close()
    await pool.close()


async def test_a_server_that_is_full_drops_us(
    start_sshd: Callable[..., Sshd], client: Client
) -> None:
    server = start_sshd(extra="MaxStartups 1:100:1")
    client.trust(server)
    _, first = await asyncio.open_connection(server.address, server.port)
    wait_until(lambda: server.logged("Connection from") == 1)
    pool = client.pool()
    with pytest.raises(ConnectionBroken) as raised:
        await open_transport(host(server), pool)
    told = explain(host(server), raised.value)
    assert (told.cause, told.blocked) == (Cause.CONNECTION_LOST, False)
    first.close()
    async with asyncio.timeout(10):
        while True:
            with contextlib.suppress(ConnectionBroken):
                await (await open_transport(host(server), pool)).close()
                break
    await pool.close()


async def test_a_server_that_speaks_something_else(client: Client) -> None:
    async def speak_http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 40)
        writer.close()

    server = await asyncio.start_server(speak_http, "127.0.0.1", 0)
    config = HostConfig("web", address="127.0.0.1", port=server.sockets[0].getsockname()[1])
    pool = client.pool()
    with pytest.raises(TransportError) as raised:
        async with asyncio.timeout(5):
            await open_transport(config, pool)
    assert explain(config, raised.value).cause in (Cause.PROTOCOL, Cause.CONNECTION_LOST)
    server.close()
    await pool.close()


@pytest.mark.parametrize(
    ("extra", "cause", "words"),
    [
        ("ForceCommand echo forced", Cause.SHELL_REFUSED, "forced"),
        ("ForceCommand /usr/sbin/nologin", Cause.SHELL_REFUSED, "not available"),
        ('ForceCommand /bin/rbash -c "$SSH_ORIGINAL_COMMAND"', Cause.SHELL_REFUSED, "restricted"),
        ("ForceCommand exit 97", Cause.NO_PYTHON, "python3"),
    ],
)
async def test_a_shell_that_runs_something_else_is_explained(
    start_sshd: Callable[..., Sshd], client: Client, extra: str, cause: Cause, words: str
) -> None:
    server = start_sshd(extra=extra)
    client.trust(server)
    pool = client.pool()
    transport = await open_transport(host(server), pool)
    process = await transport.start("exec /bin/sh -c 'echo probe'")
    output = b"\n".join(await read_all(process)).decode()
    ended = Exit(await process.wait(), process.stderr_tail(), output)
    told = explain(host(server), ended)
    assert told.cause is cause
    assert words in told.detail
    assert told.detail.startswith("gpu1: ")
    assert told.fix
    await transport.close()
    await pool.close()


async def test_many_agent_keys_do_not_use_up_the_servers_patience(
    sshd: Sshd, client: Client, tmp_path: Path
) -> None:
    """asyncssh alone offers an agent's keys in its order, and is cut off at six."""
    socket = tmp_path / "agent"
    agent = await asyncio.create_subprocess_exec(
        "ssh-agent", "-D", "-a", str(socket), stdout=asyncio.subprocess.DEVNULL
    )
    wait_until(socket.exists)
    keys = [make_key(tmp_path / f"key{n}", comment=f"key{n}") for n in range(7)]
    adding = await asyncio.create_subprocess_exec(
        "ssh-add", "-q", *map(str, [*keys, client.key]), env={"SSH_AUTH_SOCK": str(socket)}
    )
    assert await adding.wait() == 0
    client.trust(sshd)
    client.write(f"Host *\n IdentityAgent {socket}\n")
    pool = client.pool()
    transport = await open_transport(host(sshd), pool)
    await transport.close()
    # where the config names none of them, the refusal says what was tried
    client.write(f"Host 127.0.0.1\n IdentityAgent {socket}\n IdentityFile none\n", defaults=False)
    client.config.write_text(
        client.config.read_text() + f" UserKnownHostsFile {client.known_hosts}\n"
    )
    pool = client.pool()
    with pytest.raises(TransportError) as raised:
        await open_transport(host(sshd), pool)
    told = explain(host(sshd), raised.value)
    assert told.cause is Cause.PERMISSION_DENIED
    assert told.blocked
    assert "key0 (agent)" in told.detail
    agent.terminate()
    await agent.wait()
    await pool.close()


async def test_an_encrypted_key_is_explained(sshd: Sshd, client: Client, tmp_path: Path) -> None:
    locked = make_key(tmp_path / "locked", passphrase="secret")
    client.trust(sshd)
    client.write(
        f"Host *\n IdentityFile {locked}\n IdentityAgent none\n"
        f" UserKnownHostsFile {client.known_hosts}\n",
        defaults=False,
    )
    pool = client.pool()
    with pytest.raises(TransportError) as raised:
        await open_transport(host(sshd), pool)
    told = explain(host(sshd), raised.value)
    assert told.cause is Cause.PERMISSION_DENIED
    assert told.blocked
    assert "is encrypted and not in the agent" in told.detail
    assert told.fix is not None
    assert told.fix.endswith(f"ssh-add {locked}")
    await pool.close()

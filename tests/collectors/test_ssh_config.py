"""What ``ssh -G`` says, as a record; and when it is asked again."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
from pathlib import Path

import pytest

from gpumon.collectors.failures import ConfigRejected
from gpumon.collectors.resolved_host import JumpSpec, StrictChecking, parse_jumps
from gpumon.collectors.ssh_config import CONFIG_VARIABLE, SshConfig, parse_options, read_resolution
from gpumon.collectors.ssh_tokens import expand_path, home_directory


@pytest.fixture
def logging_ssh(tmp_path: Path) -> tuple[str, Path]:
    """An ssh that notes its calls."""
    calls = tmp_path / "calls"
    script = tmp_path / "ssh"
    script.write_text(f'#!/bin/sh\necho "$@" >> {calls}\nexec {shutil.which("ssh")} "$@"\n')
    script.chmod(0o755)
    return str(script), calls


async def test_every_setting_arrives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "config"
    path.write_text(
        "Host gpu1\n HostName GPU1.Example.com\n Port 2200\n User me\n HostKeyAlias Alias\n"
        " IdentityFile %d/k_%r\n IdentityFile ~/x\n IdentityFile ${NO_SUCH}/y\n"
        f" UserKnownHostsFile {tmp_path}/%k {tmp_path}/b\n GlobalKnownHostsFile none\n"
        " StrictHostKeyChecking accept-new\n ProxyJump a@b:22,[::1]:33\n ConnectTimeout 1m\n"
        ' IdentityAgent $MY_AGENT\n IdentitiesOnly yes\n SetEnv A=b "C=d e"\n'
        " AddressFamily inet6\n CheckHostIP yes\n HashKnownHosts yes\n Ciphers aes256-ctr\n"
    )
    monkeypatch.setenv("MY_AGENT", "/run/agent")
    got = await SshConfig(path).resolve("gpu1")
    assert got.hostname.lower() == "gpu1.example.com"
    assert (got.port, got.user, got.key_name) == (2200, "me", "alias")
    assert got.identity_files == (home_directory() / "k_me", home_directory() / "x")
    assert got.user_known_hosts == (tmp_path / "alias", tmp_path / "b")
    assert got.global_known_hosts == ()
    assert got.strict is StrictChecking.ACCEPT_NEW
    assert got.jumps == (JumpSpec("b", "a", 22), JumpSpec("::1", None, 33))
    assert got.connect_timeout_s == 60
    assert got.agent_path == "/run/agent"
    assert got.identities_only
    assert got.environment == {"A": "b", "C": "d e"}
    assert got.family == socket.AF_INET6
    assert got.check_host_ip
    assert got.hash_known_hosts
    assert got.ciphers == ("aes256-ctr",)
    assert got.ciphers_chosen
    assert got.needs_ssh is None
    assert not (await SshConfig(path).resolve("other")).ciphers_chosen


async def test_user_and_port_of_the_inventory_win(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text("Host *\n User me\n Port 2200\n ProxyCommand nc %h %p as %r\n")
    got = await SshConfig(path).resolve("gpu1", "you", 2222)
    assert (got.user, got.port) == ("you", 2222)
    assert got.proxy_command == "nc gpu1 2222 as you"
    assert (await SshConfig(path).resolve("you@gpu1")).user == "you"


async def test_the_answer_is_kept_while_no_file_changes(
    tmp_path: Path, logging_ssh: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpumon.collectors.ssh_config_files._FRESH_S", 0.0)
    ssh, calls = logging_ssh
    path, included = tmp_path / "config", tmp_path / "more.conf"
    path.write_text(f"Include {tmp_path}/*.conf\nHost *\n Port 1\n")
    config = SshConfig(path, ssh=ssh)

    async def asked() -> tuple[int, int]:
        before = len(calls.read_text().splitlines()) if calls.exists() else 0
        port = (await config.resolve("gpu1")).port
        return port, len(calls.read_text().splitlines()) - before

    assert await asked() == (1, 2)  # the host, and once what an empty config gives
    assert await asked() == (1, 0)
    included.write_text("Host gpu1\n Port 2\n")  # a file that was not there
    assert await asked() == (2, 1)
    assert await asked() == (2, 0)
    included.write_text("Host gpu1\n Port 33\n")
    assert await asked() == (33, 1)
    included.unlink()
    assert await asked() == (1, 1)
    path.write_text('Match exec "true"\n Port 4\n')
    assert await asked() == (4, 1)
    assert await asked() == (4, 1)  # what a command decides is asked each time


async def test_sixty_hosts_side_by_side(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text("".join(f"Host gpu{n}\n Port {1000 + n}\n" for n in range(60)))
    config = SshConfig(path)
    got = await asyncio.gather(*(config.resolve(f"gpu{n}") for n in range(60)))
    assert [one.port for one in got] == list(range(1000, 1060))


async def test_a_wrong_config_names_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text("Host *\n Prot 22\n")
    with pytest.raises(ConfigRejected, match=r"config: line 2: Bad configuration option: prot"):
        await SshConfig(path).resolve("gpu1")
    with pytest.raises(ConfigRejected, match="No such file"):
        await SshConfig(tmp_path / "missing").resolve("gpu1")
    with pytest.raises(ConfigRejected, match="can't be run"):
        await SshConfig(path, ssh=str(tmp_path / "no-ssh")).resolve("gpu1")


async def test_a_match_exec_that_hangs_does_not_hold_up_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpumon.collectors.ssh_config._TIMEOUT_S", 0.3)
    path = tmp_path / "config"
    path.write_text(f'Match exec "echo $$ > {tmp_path}/pid; exec sleep 300"\n Port 1\n')
    with pytest.raises(ConfigRejected, match="Match exec"):
        await SshConfig(path).resolve("gpu1")
    pid = (tmp_path / "pid").read_text().strip()
    status = Path(f"/proc/{pid}/status")
    async with asyncio.timeout(5):
        while status.exists() and "zombie" not in status.read_text():
            await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    ("address", "user"),
    [
        ("-oProxyCommand=touch /tmp/x", None),
        ("gpu1;id", None),
        ("gpu1", "$(id)"),
        ("gpu 1", None),
        ("gpu1\n", None),
        ("gpu1", "-x"),
        ("", None),
        ("`id`", None),
    ],
)
async def test_names_that_could_reach_a_shell_are_refused(
    address: str, user: str | None, tmp_path: Path
) -> None:
    with pytest.raises(ConfigRejected):
        await SshConfig(tmp_path / "config").resolve(address, user)


async def test_the_environment_names_the_config(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "config"
    path.write_text("Host *\n Port 77\n")
    monkeypatch.setenv(CONFIG_VARIABLE, str(path))
    assert (await SshConfig().resolve("gpu1")).port == 77


async def test_without_ssh_no_file_means_no_key_is_known(tmp_path: Path) -> None:
    """asyncssh alone reads ``UserKnownHostsFile none`` as: accept any key."""
    path = tmp_path / "config"
    path.write_text("Host *\n UserKnownHostsFile none\n GlobalKnownHostsFile none\n")
    got = await SshConfig(path, ssh="").resolve("gpu1")
    assert got.user_known_hosts == got.global_known_hosts == ()
    assert got.strict is StrictChecking.ASK
    path.write_text("Host *\n RevokedHostKeys /etc/revoked\n")
    with pytest.raises(ConfigRejected, match="revokedhostkeys"):
        await SshConfig(path, ssh="").resolve("gpu1")


@pytest.mark.parametrize("text", ["", "@b", "b:x", "[::1", "[::1]x", "a,,b"])
def test_jumps_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        parse_jumps(text)


def test_jumps_are_printed_as_they_are_read() -> None:
    text = "a@b:22,[::1]:33,c,d@e@f"
    assert ",".join(map(str, parse_jumps(text))) == text


def test_paths_expand_as_ssh_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEYS", "/keys")
    monkeypatch.setenv("HOME", "/elsewhere")  # ssh asks the password file
    values = {"h": "gpu1", "%": "%"}
    assert expand_path("~/a", values) == home_directory() / "a"
    assert expand_path("${KEYS}/%h%%", values) == Path("/keys/gpu1%")
    assert expand_path("${MISSING_HERE}/x", values) is None
    assert expand_path("/a/%C", values) is None
    assert expand_path("/a/%", values) is None


def test_what_only_ssh_can_do_is_seen() -> None:
    plain = "host a\nhostname a\nport 22\nuser u\n"
    bare = parse_options(plain)
    assert read_resolution("a", parse_options(plain), bare).needs_ssh is None
    for line in ("revokedhostkeys /x", "knownhostscommand /y", "verifyhostkeydns true"):
        got = read_resolution("a", parse_options(plain + line + "\n"), bare)
        assert got.needs_ssh is not None
        assert got.needs_ssh.lower() == line.split()[0]
    with pytest.raises(ConfigRejected):
        read_resolution("a", parse_options(plain + "stricthostkeychecking perhaps\n"), bare)


def test_known_hosts_names_with_spaces_stay_whole() -> None:
    options = parse_options("hostname a\nuserknownhostsfile /a b /c /d e f\n")
    got = read_resolution("a", options, {})
    assert got.user_known_hosts == (Path("/a b"), Path("/c"), Path("/d e f"))
    assert os.fspath(got.user_known_hosts[0]) == "/a b"

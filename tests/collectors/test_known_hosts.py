"""known_hosts files and the verdicts on host keys, beside what ssh-keygen finds in them."""

from __future__ import annotations

import base64
import os
import subprocess
from pathlib import Path

import pytest

from gpumon.collectors.causes import explain
from gpumon.collectors.connect import open_transport
from gpumon.collectors.failures import HostKeyRejected, KeyTrouble
from gpumon.collectors.host_key import HostKeyJudge
from gpumon.collectors.known_hosts import KnownHostsFiles, Marker, fingerprint, remember_key
from gpumon.collectors.resolved_host import ResolvedHost, StrictChecking
from gpumon.inventory import HostConfig
from gpumon.snapshot import Cause
from tests.collectors.real_sshd import (
    Client,
    Sshd,
    hashed_name,
    key_fingerprint,
    make_key,
    public_line,
)


def blob(key: Path) -> bytes:
    return base64.b64decode(public_line(key).split()[1])


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    directory = tmp_path_factory.mktemp("host_keys")
    kinds = {"a": "ed25519", "b": "ed25519", "e": "ecdsa", "r": "rsa"}
    return {name: make_key(directory / name, kind=kind) for name, kind in kinds.items()}


def judge(
    tmp_path: Path, text: str, *, peer_ip: str | None = None, **settings: object
) -> HostKeyJudge:
    path = tmp_path / "known_hosts"
    path.write_text(text)
    resolved = ResolvedHost(**{"alias": "gpu1", "hostname": "gpu1.lan", **settings})  # type: ignore[arg-type]
    return HostKeyJudge(resolved, KnownHostsFiles().load([path]), peer_ip)


def test_fingerprints_are_those_of_ssh_keygen(keys: dict[str, Path]) -> None:
    for name, kind in (("a", "ED25519"), ("e", "ECDSA"), ("r", "RSA")):
        assert fingerprint(blob(keys[name])) == f"{kind} {key_fingerprint(keys[name])}"


@pytest.mark.parametrize(
    "names",
    [
        "gpu1.lan",
        "GPU1.lan",
        "x,gpu1.lan,y",
        "*.lan",
        "gpu?.lan",
        "*,!gpu2.lan",
        "*,!gpu1.lan",
        "!gpu1.lan,*",
        "gpu1",
        "[gpu1.lan]:22",
        "gpu1.lan*",
        "hashed",
        "hashed other",
    ],
)
def test_finds_what_ssh_keygen_finds(tmp_path: Path, keys: dict[str, Path], names: str) -> None:
    if names.startswith("hashed"):
        names = hashed_name("gpu2.lan" if "other" in names else "gpu1.lan")
    path = tmp_path / "known_hosts"
    path.write_text(f"{names} {public_line(keys['a'])}\n")
    found = KnownHostsFiles().load([path]).find("gpu1.lan")
    by_ssh = subprocess.run(
        ["ssh-keygen", "-F", "gpu1.lan", "-f", str(path)], capture_output=True, check=False
    )
    assert bool(found) == (by_ssh.returncode == 0)


def test_parses_once_per_change(tmp_path: Path, keys: dict[str, Path]) -> None:
    path, missing = tmp_path / "known_hosts", tmp_path / "missing"
    path.write_text(f"gpu1 {public_line(keys['a'])}\n")
    files = KnownHostsFiles()
    known = files.load([path, missing])
    assert files.load([path, missing]) is known
    assert [(e.marker, e.line, e.path) for e in known.find("gpu1")] == [(Marker.PLAIN, 1, path)]
    missing.write_text(f"\n\ngpu1 {public_line(keys['b'])}\n")
    again = files.load([path, missing])
    assert [e.line for e in again.find("gpu1")] == [1, 3]
    os.truncate(path, 0)
    assert [e.key for e in files.load([path, missing]).find("gpu1")] == [blob(keys["b"])]


def test_three_kinds_of_trouble(tmp_path: Path, keys: dict[str, Path]) -> None:
    good, other = public_line(keys["a"]), public_line(keys["b"])
    text = f"# x\ngpu1.lan {other}\n@revoked * {public_line(keys['e'])}\n"
    verdicts = judge(tmp_path, text)
    assert not verdicts.accepts_key(blob(keys["a"]))
    changed = verdicts.rejection
    assert changed is not None
    assert (changed.trouble, changed.line) == (KeyTrouble.CHANGED, 2)
    assert changed.expected == fingerprint(blob(keys["b"]))
    assert changed.offered == fingerprint(blob(keys["a"]))
    assert not verdicts.accepts_key(blob(keys["e"]))
    assert verdicts.rejection is not None
    assert (verdicts.rejection.trouble, verdicts.rejection.line) == (KeyTrouble.REVOKED, 3)
    unknown = judge(tmp_path, f"gpu2.lan {good}\n")
    assert not unknown.accepts_key(blob(keys["a"]))
    assert unknown.rejection is not None
    assert unknown.rejection.trouble is KeyTrouble.UNKNOWN
    assert judge(tmp_path, f"gpu1.lan {good}\n").accepts_key(blob(keys["a"]))


def test_a_revoked_authority_signs_nothing(tmp_path: Path, keys: dict[str, Path]) -> None:
    line = f"@cert-authority *.lan {public_line(keys['a'])}\n"
    assert judge(tmp_path, line).accepts_authority(blob(keys["a"]))
    assert not judge(tmp_path, line).accepts_key(blob(keys["a"]))
    assert not judge(tmp_path, line).accepts_authority(blob(keys["b"]))
    revoked = judge(tmp_path, line + f"@revoked *.lan {public_line(keys['a'])}\n")
    assert not revoked.accepts_authority(blob(keys["a"]))
    assert judge(tmp_path, f"@cert-authority * {public_line(keys['r'])}\n").weak_authority


def test_known_types_come_first_and_certificates_only_with_an_authority(
    tmp_path: Path, keys: dict[str, Path]
) -> None:
    offered = (
        "ssh-ed25519-cert-v01@openssh.com",
        "ssh-ed25519",
        "ecdsa-sha2-nistp256",
        "rsa-sha2-512",
    )
    rsa = judge(tmp_path, f"gpu1.lan {public_line(keys['r'])}\n")
    assert rsa.order_algorithms(offered) == ("rsa-sha2-512", "ssh-ed25519", "ecdsa-sha2-nistp256")
    signed = judge(tmp_path, f"@cert-authority * {public_line(keys['a'])}\n")
    assert signed.order_algorithms(offered) == offered


def test_check_host_ip(tmp_path: Path, keys: dict[str, Path]) -> None:
    text = f"gpu1.lan {public_line(keys['a'])}\n192.0.2.7 {public_line(keys['b'])}\n"
    key = blob(keys["a"])
    assert judge(tmp_path, text, peer_ip="192.0.2.7").accepts_key(key)
    on = judge(tmp_path, text, peer_ip="192.0.2.7", check_host_ip=True)
    assert not on.accepts_key(key)
    assert on.rejection is not None
    assert (on.rejection.trouble, on.rejection.line) == (KeyTrouble.CHANGED, 2)
    assert judge(tmp_path, text, peer_ip="192.0.2.8", check_host_ip=True).accepts_key(key)
    assert judge(tmp_path, text, peer_ip="192.0.2.7", check_host_ip=True, port=2222).accepts_key(
        key
    )


def test_short_rsa_keys_are_refused(tmp_path: Path, keys: dict[str, Path]) -> None:
    text = f"gpu1.lan {public_line(keys['r'])}\n"
    assert judge(tmp_path, text, required_rsa_bits=3072).accepts_key(blob(keys["r"]))
    assert not judge(tmp_path, text, required_rsa_bits=3073).accepts_key(blob(keys["r"]))


def test_unknown_keys_are_taken_only_where_the_config_says_so(
    tmp_path: Path, keys: dict[str, Path]
) -> None:
    for strict, taken in (
        (StrictChecking.YES, False),
        (StrictChecking.ASK, False),
        (StrictChecking.ACCEPT_NEW, True),
        (StrictChecking.NO, True),
    ):
        verdicts = judge(tmp_path, "", strict=strict)
        assert verdicts.accepts_key(blob(keys["a"])) is taken
        assert (verdicts.taken_unknown is not None) is taken
        changed = judge(tmp_path, f"gpu1.lan {public_line(keys['b'])}\n", strict=strict)
        assert not changed.accepts_key(blob(keys["a"]))


@pytest.mark.parametrize("hashed", [False, True])
def test_a_key_is_remembered_as_ssh_would(
    tmp_path: Path, keys: dict[str, Path], hashed: bool
) -> None:
    path = tmp_path / "new" / "known_hosts"
    assert remember_key(path, "[gpu1]:2222", blob(keys["a"]), hashed=hashed)
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_text(path.read_text().rstrip("\n"))  # an editor that ends no line
    assert remember_key(path, "gpu2", blob(keys["b"]), hashed=hashed)
    for name in ("[gpu1]:2222", "gpu2"):
        found = subprocess.run(
            ["ssh-keygen", "-F", name, "-f", str(path)], check=True, capture_output=True, text=True
        ).stdout
        assert ("|1|" in found) is hashed
    assert not remember_key(tmp_path / "no" / "such" / "x", "gpu1", blob(keys["a"]), hashed=False)


async def test_accept_new_records_the_key_once_and_refuses_another(
    sshd: Sshd, client: Client, tmp_path: Path
) -> None:
    config = HostConfig("gpu1", address=sshd.address, port=sshd.port)
    client.write("Host *\n StrictHostKeyChecking accept-new\n")
    for _ in range(2):
        pool = client.pool()
        await (await open_transport(config, pool)).close()
        await pool.close()
    assert client.known_hosts.read_text() == sshd.known_line()
    other = make_key(tmp_path / "other")
    client.known_hosts.write_text(f"# first\n{sshd.name} {public_line(other)}\n")
    with pytest.raises(HostKeyRejected) as raised:
        await open_transport(config, client.pool())
    told = explain(config, raised.value)
    assert told.cause is Cause.KEY_CHANGED
    assert told.blocked
    assert f"{client.known_hosts}:2" in told.detail
    assert key_fingerprint(other) in told.detail
    assert key_fingerprint(sshd.host_keys["ed25519"]) in told.detail
    assert f"ssh-keygen -R '{sshd.name}' -f {client.known_hosts}" in (told.fix or "")
    # the command does settle it
    command = (told.fix or "").partition(": ")[2].partition(" && ")[0]
    subprocess.run(["/bin/sh", "-c", command], check=True, capture_output=True)
    with pytest.raises(HostKeyRejected) as raised:
        client.write("")
        await open_transport(config, client.pool())
    assert raised.value.trouble is KeyTrouble.UNKNOWN


async def test_the_shown_key_is_the_known_one_of_several(
    start_sshd: object, client: Client
) -> None:
    """A server with more kinds of keys shows the one the user knows."""
    server = start_sshd(kinds=("rsa", "ed25519", "ecdsa"))  # type: ignore[operator]
    config = HostConfig("gpu1", address=server.address, port=server.port)
    for kind in ("rsa", "ed25519", "ecdsa"):
        client.known_hosts.write_text(server.known_line(kind=kind))
        pool = client.pool()
        await (await open_transport(config, pool)).close()
        await pool.close()

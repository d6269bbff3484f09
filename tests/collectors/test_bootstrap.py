"""The commands, by real shells and real Pythons."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from gpumon.collectors.bootstrap import NO_PYTHON_EXIT, bootstrap_command, plain_command
from gpumon.collectors.wire import read_hello, read_sample
from tests.collectors.probe_process import NONCE, RunningProbe, pythons
from tests.rig.need import need

SHELLS = [shell for shell in ("dash", "bash", "sh", "zsh", "fish", "tcsh") if shutil.which(shell)]
#: The host's own Pythons out of reach.
NOWHERE = re.sub(r"/(usr|opt)/", "/nowhere/", bootstrap_command())


def path_with(folder: Path, interpreter: str | None, name: str = "python3") -> dict[str, str]:
    """An environment whose only Python is ``interpreter``."""
    folder.mkdir(exist_ok=True)
    for tool in ("sh", "dash", "bash", "cat", "sleep"):
        found = shutil.which(tool)
        if found is not None:
            (folder / tool).symlink_to(found)
    if interpreter is not None:
        (folder / name).symlink_to(interpreter)
    return {"PATH": str(folder), "LANG": "C"}


def test_commands_survive_every_shells_quoting() -> None:
    usual, plain = bootstrap_command(), plain_command()
    assert usual.count("'") == 2
    assert usual.endswith("'")
    for text in (usual, plain):
        assert not re.search(r"[\\!%\n]", text)
        assert text.isascii()
    assert not re.search(r"[$`']", plain)
    assert plain.count('"') == 2
    assert len(usual) < 700


@pytest.mark.parametrize("version", sorted(pythons()))
def test_every_python_greets_and_samples(version: str, tmp_path: Path) -> None:
    env = path_with(tmp_path / "bin", pythons()[version])
    with RunningProbe(command=NOWHERE, env=env, pynvml=True) as probe:
        hello = probe.hello()
        assert hello["python"] == version
        facts = read_hello(hello)
        assert facts.hostname == os.uname().nodename
        probe.record()
        snapshot = read_sample(
            probe.record(), host="h", received_at=1.0, facts=facts, interval_s=0.2
        )
        assert snapshot.seq == 1
        assert snapshot.system.cpu_percent is not None
        assert snapshot.system.memory_total_bytes
        assert snapshot.probe.rss_bytes
        probe.close_stdin()
        assert json.loads(probe.lines.next())["t"] in ("sample", "bye")
        assert probe.process.wait(1.0) == 0
        assert probe.stderr() == ""


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("command", [bootstrap_command(), plain_command()], ids=["usual", "plain"])
def test_every_shell_starts_it(shell: str, command: str) -> None:
    with RunningProbe(command=command, shell=(shell, "-c")) as probe:
        probe.hello()
        assert probe.record()["t"] == "sample"


def test_restricted_bash_takes_the_plain_command_only() -> None:
    need("bash")
    usual = subprocess.run(
        ["bash", "-r", "-c", bootstrap_command()], capture_output=True, check=False
    )
    assert usual.returncode not in (0, NO_PYTHON_EXIT)
    assert b"restricted" in usual.stderr
    with RunningProbe(command=plain_command(), shell=("bash", "-r", "-c")) as probe:
        probe.hello()


def test_noise_before_the_nonce_is_told_apart() -> None:
    noisy = 'echo Welcome to the machine; printf \'{"t":"sample"}\\n\\377\'; ' + bootstrap_command()
    with RunningProbe(command=noisy) as probe:
        # what has no newline of its own stays glued to the nonce's line
        lines = [probe.lines.next() for _ in range(3)]
        assert lines[0] == b"Welcome to the machine"
        assert lines[2].endswith(b"\x1e" + NONCE.encode())


def test_no_python_at_all_says_so(tmp_path: Path) -> None:
    env = path_with(tmp_path / "bin", None)
    ran = subprocess.run(["sh", "-c", NOWHERE], env=env, capture_output=True, check=False)
    assert ran.returncode == NO_PYTHON_EXIT
    assert ran.stdout == b""


def test_an_old_python_is_no_python(tmp_path: Path) -> None:
    old = next(Path.home().joinpath(".pyenv/versions").glob("2.7*/bin/python"), None)
    if old is None:
        # what a Python 2 does with -I: it refuses the option
        old = tmp_path / "python2"
        old.write_text('#!/bin/sh\necho "Unknown option: -I" >&2\nexit 2\n')
        old.chmod(0o755)
    env = path_with(tmp_path / "bin", str(old), "python")
    ran = subprocess.run(["sh", "-c", NOWHERE], env=env, capture_output=True, check=False)
    assert ran.returncode == NO_PYTHON_EXIT


def test_a_broken_python_is_passed_over(tmp_path: Path) -> None:
    env = path_with(tmp_path / "bin", next(iter(pythons().values())), "python")
    broken = tmp_path / "bin" / "python3"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    with RunningProbe(command=NOWHERE, env=env) as probe:
        assert probe.hello()["python"] == next(iter(pythons()))

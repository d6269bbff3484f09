"""Fixtures of this room: real sshd servers and a client's side that is nobody's own."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.collectors.real_sshd import SSHD, Client, Sshd, make_key


@pytest.fixture(scope="session")
def client_key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not Path(SSHD).exists() or shutil.which("ssh") is None:
        message = "OpenSSH's sshd and ssh are needed for this test"
        if os.environ.get("GPUMON_NO_SKIP"):
            pytest.fail(message)
        pytest.skip(message)
    return make_key(tmp_path_factory.mktemp("keys") / "id_ed25519", comment="client")


@pytest.fixture(scope="session")
def session_sshd(
    tmp_path_factory: pytest.TempPathFactory, client_key: Path
) -> Iterator[Callable[..., Sshd]]:
    """Start servers that live as long as the tests."""
    started: list[Sshd] = []

    def start(name: str, **settings: object) -> Sshd:
        directory = tmp_path_factory.mktemp(f"sshd_{name}")
        server = Sshd(directory, client_key, **settings).start()  # type: ignore[arg-type]
        started.append(server)
        return server

    yield start
    for server in started:
        server.stop()


@pytest.fixture(scope="session")
def sshd(session_sshd: Callable[..., Sshd]) -> Sshd:
    """One ordinary server, shared by the tests that leave it as it is."""
    return session_sshd("plain")


@pytest.fixture
def start_sshd(tmp_path: Path, client_key: Path) -> Iterator[Callable[..., Sshd]]:
    """Start servers of this test's own."""
    started: list[Sshd] = []

    def start(name: str = "own", **settings: object) -> Sshd:
        server = Sshd(tmp_path / name, client_key, **settings).start()  # type: ignore[arg-type]
        started.append(server)
        return server

    yield start
    for server in started:
        server.stop()


@pytest.fixture
def client(tmp_path: Path, client_key: Path, monkeypatch: pytest.MonkeyPatch) -> Client:
    """A config directory; the machine's agent is out of sight."""
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    directory = tmp_path / "client"
    directory.mkdir()
    made = Client(directory, client_key)
    made.write("")
    return made

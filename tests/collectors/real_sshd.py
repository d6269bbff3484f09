"""Real OpenSSH servers on 127.0.0.x, each with its own keys and log, for the tests here."""

from __future__ import annotations

import base64
import getpass
import hashlib
import hmac
import os
import shutil
import signal
import socket
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from gpumon.collectors.pool import ConnectionPool
from gpumon.collectors.ssh_config import SshConfig

USER = getpass.getuser()
SSHD = shutil.which("sshd") or "/usr/sbin/sshd"


def make_key(
    path: Path, *, kind: str = "ed25519", passphrase: str = "", comment: str = "t"
) -> Path:
    """A key pair by ssh-keygen; returns the private file."""
    subprocess.run(
        ["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-C", comment, "-f", str(path)]
        + (["-a", "1"] if passphrase else []),
        check=True,
    )
    return path


def public_line(key: Path) -> str:
    """``type base64`` of a key's public file."""
    return " ".join(Path(f"{key}.pub").read_text().split()[:2])


def key_fingerprint(key: Path) -> str:
    """``SHA256:...`` as ssh-keygen prints it."""
    return subprocess.run(
        ["ssh-keygen", "-lf", f"{key}.pub"], check=True, capture_output=True, text=True
    ).stdout.split()[1]


def hashed_name(name: str) -> str:
    """``name`` as HashKnownHosts writes it."""
    salt = os.urandom(20)
    digest = hmac.new(salt, name.encode(), hashlib.sha1).digest()
    return "|1|" + "|".join(base64.b64encode(part).decode() for part in (salt, digest))


def free_port(address: str) -> int:
    with socket.socket() as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])


def wait_until(true: object, timeout_s: float = 10.0) -> None:
    """Poll ``true()`` until it is."""
    assert callable(true)
    end = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


@dataclass
class Sshd:
    """One server."""

    directory: Path
    client_key: Path
    address: str = "127.0.0.1"
    extra: str = ""
    kinds: tuple[str, ...] = ("ed25519",)
    port: int = 0
    host_keys: dict[str, Path] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> Sshd:
        self.directory.mkdir(parents=True, exist_ok=True)
        self.port = self.port or free_port(self.address)
        for kind in self.kinds:
            path = self.directory / f"host_{kind}"
            if not path.exists():
                make_key(path, kind=kind)
            self.host_keys[kind] = path
        authorized = self.directory / "authorized_keys"
        authorized.write_text(f"{public_line(self.client_key)}\n")
        lines = [
            f"ListenAddress {self.address}:{self.port}",
            *(f"HostKey {path}" for path in self.host_keys.values()),
            f"AuthorizedKeysFile {authorized}",
            "StrictModes no",
            "UsePAM no",
            "PidFile none",
            "UseDNS no",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
            "PermitRootLogin prohibit-password",
            "LogLevel DEBUG1",
            "MaxStartups 100",  # of this one the last wins
            self.extra,
        ]
        config = self.directory / "sshd_config"
        config.write_text("\n".join(lines) + "\n")
        return self.start_again()

    def start_again(self) -> Sshd:
        """Start with the files as they are."""
        config = self.directory / "sshd_config"
        self.log.unlink(missing_ok=True)
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        self.process = subprocess.Popen(
            [SSHD, "-D", "-f", str(config), "-E", str(self.log)], start_new_session=True
        )
        wait_until(self._listens)
        return self

    def _listens(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log.read_text()
        return self.log.exists() and "Server listening" in self.log.read_text()

    @property
    def log(self) -> Path:
        return self.directory / "log"

    def logged(self, text: str) -> int:
        """How often ``text`` is in the log."""
        return self.log.read_text(errors="replace").count(text)

    @property
    def name(self) -> str:
        """What known_hosts calls it by address."""
        return f"[{self.address}]:{self.port}"

    def known_line(self, name: str | None = None, kind: str | None = None) -> str:
        """Its line for known_hosts."""
        key = self.host_keys[kind or self.kinds[0]]
        return f"{name or self.name} {public_line(key)}\n"

    def children(self) -> list[int]:
        """Process ids of its sessions."""
        assert self.process is not None
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(word) for word in path.read_text().split()]

    def signal_sessions(self, number: int) -> None:
        """Send a signal to every process that serves a connection."""
        found = self.children()
        for pid in list(found):
            path = Path(f"/proc/{pid}/task/{pid}/children")
            if path.exists():
                found += [int(word) for word in path.read_text().split()]
        for pid in found:
            try:
                if Path(f"/proc/{pid}/comm").read_text().startswith("sshd"):
                    os.kill(pid, number)
            except (FileNotFoundError, ProcessLookupError):
                pass

    def stop(self) -> None:
        if self.process is None:
            return
        self.signal_sessions(signal.SIGKILL)
        self.process.kill()
        self.process.wait()
        self.process = None


@dataclass
class Client:
    """A user's side: a config file, known_hosts, keys; never the developer's own."""

    directory: Path
    key: Path

    @property
    def known_hosts(self) -> Path:
        return self.directory / "known_hosts"

    @property
    def config(self) -> Path:
        return self.directory / "config"

    def write(self, config: str, *, defaults: bool = True) -> Path:
        """Write the config; ``defaults`` end it with what keeps the machine's own out."""
        text = config
        if defaults:
            text += f"""
Host *
  IdentityFile {self.key}
  IdentityAgent none
  UserKnownHostsFile {self.known_hosts}
  GlobalKnownHostsFile /dev/null
  StrictHostKeyChecking ask
"""
        self.config.write_text(text)
        return self.config

    def trust(self, *servers: Sshd) -> None:
        """Make the servers' keys known by address."""
        with self.known_hosts.open("a") as file:
            file.writelines(server.known_line() for server in servers)

    def pool(self, **settings: float) -> ConnectionPool:
        return ConnectionPool(ssh_config=SshConfig(self.config), **settings)  # type: ignore[arg-type]

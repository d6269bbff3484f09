"""Hosts of the rig: real OpenSSH servers, each as much a machine of its own as can be had.

As root each host has its own network, process, mount and name namespaces: its own address
on the rig's bridge, its own loopback with its own engines, its own /proc and host name,
and faults are real ones. Otherwise a host is an sshd on 127.0.0.1 with a port of its own,
which shares all else with this machine; what needs a namespace then raises ``NotHere``.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import shlex
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpumon.inventory import HostConfig
from tests.rig import disguise
from tests.rig.need import find
from tests.rig.network import Network

__all__ = ["Client", "NotHere", "Process", "SshHost", "make_key", "wait_until"]

_MARK = "GPUMON_RIG_HOST"
#: Where the bootstrap looks for a Python beside the PATH.
_PYTHONS = (
    "/usr/bin/python3",
    "/usr/local/bin/python3",
    "/usr/libexec/platform-python",
    "/opt/conda/bin/python3",
)
_SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"


class NotHere(RuntimeError):
    """What was asked for needs namespaces, and this host has none."""


def wait_until(true: Callable[[], object], timeout_s: float = 10.0, what: str = "it") -> None:
    """Poll ``true()`` until it is; AssertionError after ``timeout_s``."""
    end = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < end, f"waited {timeout_s} s for {what}"
        time.sleep(0.02)


def make_key(path: Path) -> Path:
    """An ed25519 key pair; returns the private file."""
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "rig", "-f", str(path)]
    subprocess.run(command, check=True)
    return path


def _public(key: Path) -> str:
    return " ".join(Path(f"{key}.pub").read_text().split()[:2])


def free_port(address: str = "127.0.0.1") -> int:
    """A port nobody listens on now."""
    with socket.socket() as tried:
        tried.bind((address, 0))
        return int(tried.getsockname()[1])


class Client:
    """A user's side: ssh config, known hosts and key; never the developer's own.

    ``config`` is written anew with every host added; ``environment`` points gpumon at it.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.key = folder / "client_key"
        if not self.key.exists():
            make_key(self.key)
        self.config = folder / "ssh_config"
        self.known_hosts = folder / "known_hosts"
        self.known_hosts.touch()
        self._blocks: dict[str, str] = {}
        self._write()

    @property
    def environment(self) -> dict[str, str]:
        """The variable by which gpumon finds ``config``."""
        return {"GPUMON_SSH_CONFIG": str(self.config)}

    def add(self, name: str, address: str, port: int, *, more: Sequence[str] = ()) -> None:
        """Make ``ssh -F config NAME`` lead to an address."""
        lines = [f"HostName {address}", f"Port {port}", f"User {getpass.getuser()}", *more]
        self._blocks[name] = "".join(f"  {line}\n" for line in lines)
        self._write()

    def trust(self, address: str, port: int, key: str) -> None:
        """Make ``key`` (type and base64) the one known for an address."""
        name = address if port == 22 else f"[{address}]:{port}"
        kept = [
            line for line in self.known_hosts.read_text().splitlines() if line.split()[:1] != [name]
        ]
        self.known_hosts.write_text("\n".join([*kept, f"{name} {key}"]) + "\n")

    def _write(self) -> None:
        hosts = "".join(f"Host {name}\n{block}" for name, block in self._blocks.items())
        self.config.write_text(
            f"{hosts}Host *\n"
            f"  IdentityFile {self.key}\n  IdentitiesOnly yes\n  IdentityAgent none\n"
            f"  UserKnownHostsFile {self.known_hosts}\n  GlobalKnownHostsFile /dev/null\n"
            "  StrictHostKeyChecking ask\n  PasswordAuthentication no\n"
        )

    def ssh(self, name: str, command: str, timeout_s: float = 15.0) -> str:
        """What a command prints there, run by the system's ssh; raises where it fails."""
        words = ["ssh", "-F", str(self.config), "-o", "BatchMode=yes", name, command]
        done = subprocess.run(
            words,
            check=False,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            stdin=subprocess.DEVNULL,
        )
        if done.returncode != 0:
            raise RuntimeError(f"ssh {name}: {done.returncode}: {done.stderr.strip()}")
        return done.stdout


@dataclass(frozen=True, slots=True)
class Process:
    """One process of a host, by its pid on this machine."""

    pid: int
    arguments: tuple[str, ...]


@dataclass
class SshHost:
    """One host. ``start()`` makes it reachable by its name through the client's config."""

    name: str
    folder: Path
    client: Client
    network: Network | None = None
    #: what every session there finds in its environment
    environment: Mapping[str, str] = field(default_factory=dict)
    #: False: no python3 can be run there
    python: bool = True
    #: program name -> script that is first on the PATH there
    programs: Mapping[str, str] = field(default_factory=dict)
    #: lines for sshd_config
    extra: Sequence[str] = ()
    #: the user's login shell and start-up files; with namespaces only
    shell: str = "/bin/sh"
    home_files: Mapping[str, str] = field(default_factory=dict)
    #: True: nothing can be written below the user's home; with namespaces only
    read_only_home: bool = False
    address: str = "127.0.0.1"
    port: int = 22
    netns: str | None = None

    def __post_init__(self) -> None:
        self._main: subprocess.Popen[bytes] | None = None
        self._sshd_pid = 0
        self._engines: list[subprocess.Popen[bytes]] = []
        self._frozen: list[int] = []

    # --- life ------------------------------------------------------------------------
    def start(self) -> SshHost:
        """Start the server and wait until it listens."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.network is not None and self.netns is None:
            self.netns, self.address = self.network.add_host()
        elif self.network is None and self.port == 22:
            self.port = free_port(self.address)
        if self.network is None and not self.python and any(map(os.path.exists, _PYTHONS)):
            raise NotHere("a Python of this machine can't be hidden without namespaces")
        if not self._key.exists():
            make_key(self._key)
        self._write_config()
        self._log.unlink(missing_ok=True)
        sshd = find("sshd") or "/usr/sbin/sshd"
        command = [sshd, "-D", "-f", str(self.folder / "sshd_config"), "-E", str(self._log)]
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        if self.netns is not None:
            command = self._wrap(command)
        self._main = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *command] if find("setpriv") else command,
            stdin=subprocess.DEVNULL,
            stderr=(self.folder / "init.log").open("ab"),
            start_new_session=True,
            env={"PATH": f"{_SYSTEM_PATH}:/usr/sbin:/sbin", "LANG": "C.UTF-8"},
        )
        wait_until(self._listens, 10, f"sshd of {self.name}")
        self._sshd_pid = self._find_sshd()
        self.client.add(self.name, self.address, self.port)
        self.client.trust(self.address, self.port, _public(self._key))
        return self

    def stop(self) -> None:
        """Kill all that runs there. ``start`` may be called again."""
        for engine in self._engines:
            engine.kill()
            engine.wait()
        self._engines.clear()
        if self._main is None:
            return
        for process in self.session_processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
        for pid in (*self._sshds(), self._sshd_pid, self._main.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._main.wait()
        self._main = None

    def __enter__(self) -> SshHost:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def _key(self) -> Path:
        return self.folder / "host_key"

    @property
    def _log(self) -> Path:
        return self.folder / "sshd.log"

    def _listens(self) -> bool:
        assert self._main is not None
        if self._main.poll() is not None:
            said = (self.folder / "init.log").read_text(errors="replace")
            logged = self._log.read_text(errors="replace") if self._log.exists() else ""
            raise RuntimeError(f"sshd of {self.name} ended: {said}{logged}")
        return self._log.exists() and "Server listening" in self._log.read_text(errors="replace")

    def _find_sshd(self) -> int:
        assert self._main is not None
        if self.netns is None:
            return self._main.pid
        (pid,) = _children(self._main.pid)
        return pid

    def _write_config(self) -> None:
        tools = self.folder / "bin"
        tools.mkdir(exist_ok=True)
        if self.python:
            link = tools / "python3"
            link.unlink(missing_ok=True)
            link.symlink_to(disguise.interpreter())
        for program, script in self.programs.items():
            path = tools / program
            path.write_text(script)
            path.chmod(0o755)
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        for file, text in self.home_files.items():
            (home / file).write_text(text)
        variables = {
            "PATH": f"{tools}:{_SYSTEM_PATH}",
            "HOME": str(home),
            _MARK: self._marker,
            **self.environment,
        }
        (self.folder / "authorized_keys").write_text(f"{_public(self.client.key)}\n")
        lines = [
            f"ListenAddress {self.address}:{self.port}",
            f"HostKey {self._key}",
            f"AuthorizedKeysFile {self.folder / 'authorized_keys'}",
            *("StrictModes no", "UsePAM no", "PidFile none", "UseDNS no"),
            *("PasswordAuthentication no", "KbdInteractiveAuthentication no"),
            *("PrintMotd no", "PrintLastLog no", "PermitRootLogin prohibit-password"),
            "MaxStartups 100",
            "SetEnv " + " ".join(f'"{name}={value}"' for name, value in variables.items()),
            *self.extra,
        ]
        if self.netns is None and not any(one.startswith("ForceCommand") for one in self.extra):
            # The developer's own shell would read its start-up files.
            inner = "PATH=" + shlex.quote(variables["PATH"])
            lines.append(f'ForceCommand exec env {inner} /bin/sh -c "$SSH_ORIGINAL_COMMAND"')
        (self.folder / "sshd_config").write_text("\n".join(lines) + "\n")

    @property
    def _marker(self) -> str:
        return f"{self.name}:{self.folder}"

    def _wrap(self, command: Sequence[str]) -> list[str]:
        """The command inside the host's namespaces, as their first process."""
        passwd = self.folder / "passwd"
        user, home = getpass.getuser(), self.folder / "home"
        kept = Path("/etc/passwd").read_text().splitlines()
        own = f"{user}:x:{os.getuid()}:{os.getgid()}:{user}:{home}:{self.shell}"
        kept = [own if line.startswith(f"{user}:") else line for line in kept]
        passwd.write_text("\n".join(kept) + "\n")
        steps = [
            "set -e",
            f"hostname {shlex.quote(self.name)}",
            f"mount --bind {shlex.quote(str(passwd))} /etc/passwd",
        ]
        if not self.python:
            real = dict.fromkeys(os.path.realpath(path) for path in _PYTHONS)
            hidden = [path for path in real if Path(path).exists()]
            steps += [f"mount --bind /dev/null {shlex.quote(path)}" for path in hidden]
        if self.read_only_home:
            place = shlex.quote(str(home))
            steps += [f"mount --bind {place} {place}", f"mount -o remount,bind,ro {place}"]
        steps.append(f"exec {shlex.join(command)}")
        script = self.folder / "init.sh"
        script.write_text("\n".join(steps) + "\n")
        assert self.netns is not None
        spaces = ["unshare", "-mupf", "--mount-proc", "--kill-child=SIGKILL"]
        return ["ip", "netns", "exec", self.netns, *spaces, "/bin/sh", str(script)]

    # --- what runs there -------------------------------------------------------------
    def run_inside(
        self,
        arguments: Sequence[str],
        *,
        executable: str | None = None,
        env: Mapping[str, str] | None = None,
        **options: Any,
    ) -> subprocess.Popen[bytes]:
        """Start a program there (an engine); it ends with the host or by ``kill()``."""
        words = list(arguments)
        if executable is not None:
            start = "import os,sys;os.execv(sys.argv[1],sys.argv[2:])"
            words = [disguise.interpreter(), "-ISc", start, executable, *arguments]
        if self.netns is not None:
            words = [*self._enter(), "setpriv", "--pdeathsig", "KILL", *words]
        options.setdefault("stdin", subprocess.DEVNULL)
        started = subprocess.Popen(words, env=env, start_new_session=True, **options)
        self._engines.append(started)
        return started

    def ask_inside(self, command: str, timeout_s: float = 15.0) -> str:
        """What a shell command prints there, not by way of ssh."""
        words = ["/bin/sh", "-c", command]
        if self.netns is not None:
            words = [*self._enter(), *words]
        return subprocess.run(
            words, check=True, capture_output=True, text=True, timeout=timeout_s
        ).stdout

    def _enter(self) -> list[str]:
        return ["nsenter", "-t", str(self._sshd_pid), "-m", "-u", "-n", "-p"]

    def pid_inside(self, pid: int) -> int:
        """What the host itself calls a process of this machine."""
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("NSpid:"):
                return int(line.split()[-1])
        return pid

    def session_processes(self) -> list[Process]:
        """What ssh sessions started there and still runs: shells and probes, not sshd."""
        mark = f"{_MARK}={self._marker}".encode()
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if mark not in (entry / "environ").read_bytes().split(b"\0"):
                    continue
                words = (entry / "cmdline").read_bytes().decode("utf-8", "replace")
                if words:
                    found.append(Process(int(entry.name), tuple(words.split("\0")[:-1])))
        return found

    def probes(self) -> list[Process]:
        """The session processes that are probes or fallback readers."""
        signs = ("zlib.decompress", "--query-gpu", "query-compute-apps", "~R")
        return [
            one
            for one in self.session_processes()
            if any(sign in word for word in one.arguments for sign in signs)
        ]

    def host_config(self, **more: Any) -> HostConfig:
        """How a user would name this host to gpumon."""
        return HostConfig(self.name, address=self.name, **more)

    def logged(self, text: str) -> int:
        """How often ``text`` is in sshd's log."""
        return self._log.read_text(errors="replace").count(text)

    # --- faults ----------------------------------------------------------------------
    def _sshds(self) -> list[int]:
        """The server and the processes that serve its connections."""
        found = [self._sshd_pid]
        for pid in found:
            found += [child for child in _children(pid) if _comm(child).startswith("sshd")]
        return found

    def freeze(self) -> None:
        """Stop the server and its connections (SIGSTOP): TCP answers, nobody speaks."""
        self._frozen = self._sshds()
        for pid in self._frozen:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let what was frozen go on."""
        for pid in self._frozen:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self._frozen = []

    def hang_up(self) -> None:
        """Kill every connection's server process (SIGKILL), not the listener."""
        for pid in self._sshds()[1:]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def drop(self) -> None:
        """Drop every packet to and from the host, silently."""
        for chain, way in (("INPUT", "-i"), ("OUTPUT", "-o")):
            self._iptables("-I", chain, way)

    def restore(self) -> None:
        """Let packets through again."""
        for chain, way in (("INPUT", "-i"), ("OUTPUT", "-o")):
            self._iptables("-D", chain, way)

    def _iptables(self, action: str, chain: str, way: str) -> None:
        if self.netns is None:
            raise NotHere("packets can't be dropped without a network namespace")
        self.ask_inside(f"iptables -w {action} {chain} {way} eth0 -j DROP")

    def slow_down(self, kbit_per_s: int) -> None:
        """Limit what the host sends."""
        if self.netns is None:
            raise NotHere("a line can't be slowed down without a network namespace")
        limit = f"tbf rate {kbit_per_s}kbit burst 4kb latency 400ms"
        self.ask_inside(f"tc qdisc replace dev eth0 root {limit}")

    def change_host_key(self) -> None:
        """Give the server a new key; the client still knows the old one."""
        for path in (self._key, Path(f"{self._key}.pub")):
            path.unlink()
        make_key(self._key)
        before = self.logged("Server listening")
        os.kill(self._sshd_pid, signal.SIGHUP)
        wait_until(lambda: self.logged("Server listening") > before, 5, "sshd's restart")


def _children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _comm(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""

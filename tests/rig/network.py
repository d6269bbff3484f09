"""A bridge and network namespaces for the rig's hosts, named after the run that made them.

Names carry the pid and start time of their maker, so that what a killed run left behind is
known as such and removed by the next one.
"""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import itertools
import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

__all__ = ["Network", "sweep"]

#: netns: gpumon-PID-START-NETWORK-N; links: at most 15 characters, so pid in base 36
_NETNS = re.compile(r"^gpumon-(\d+)-(\d+)-\d+-\d+$")
_serial = itertools.count(1)
_LINK = re.compile(r"\bgr([0-9a-z]+)-\d+[bv]\d*(?=[:@])")
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


def _ip(*words: str, check: bool = True) -> str:
    done = subprocess.run(["ip", *words], check=False, capture_output=True, text=True)
    if check and done.returncode != 0:
        raise RuntimeError(f"ip {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


def _start_ticks(pid: int) -> int | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return int(text.rpartition(")")[2].split()[19])


def _base36(number: int) -> str:
    text = ""
    while number:
        number, digit = divmod(number, 36)
        text = _DIGITS[digit] + text
    return text or "0"


def _kill_inside(netns: str) -> None:
    for word in _ip("netns", "pids", netns, check=False).split():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(word), signal.SIGKILL)


def sweep() -> list[str]:
    """Remove what runs that are no more have left; returns the names removed."""
    gone = []
    for line in _ip("netns", "list", check=False).splitlines():
        name = line.split()[0] if line else ""
        match = _NETNS.match(name)
        if match and _start_ticks(int(match[1])) != int(match[2]):
            _kill_inside(name)
            _ip("netns", "del", name, check=False)
            gone.append(name)
    for match in _LINK.finditer(_ip("-o", "link", "show", check=False)):
        if _start_ticks(int(match[1], 36)) is None:
            _ip("link", "del", match[0], check=False)
            gone.append(match[0])
    return gone


class Network:
    """One /24 on a bridge of this machine: ``.1`` is here, each host has a namespace."""

    def __init__(self) -> None:
        pid = os.getpid()
        number = next(_serial)
        self._prefix = f"gpumon-{pid}-{_start_ticks(pid)}-{number}"
        self._link = f"gr{_base36(pid)}-{number}"
        self.bridge = f"{self._link}b"
        self._hosts: dict[str, str] = {}
        sweep()
        with _one_at_a_time():
            self.net = _free_net()
            self.here = str(self.net[1])
            _ip("link", "add", self.bridge, "type", "bridge", "forward_delay", "0")
            _ip("addr", "add", f"{self.here}/24", "dev", self.bridge)
            _ip("link", "set", self.bridge, "up")

    def add_host(self) -> tuple[str, str]:
        """A new namespace with its own loopback and address: (netns, address)."""
        number = len(self._hosts) + 1
        netns, address = f"{self._prefix}-{number}", str(self.net[10 + number])
        link = f"{self._link}v{number}"
        self._hosts[netns] = address
        _ip("netns", "add", netns)
        _ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", netns)
        _ip("link", "set", link, "master", self.bridge, "up")
        _ip("-n", netns, "link", "set", "lo", "up")
        _ip("-n", netns, "addr", "add", f"{address}/24", "dev", "eth0")
        _ip("-n", netns, "link", "set", "eth0", "up")
        return netns, address

    def silent_address(self) -> str:
        """An address of the net that nobody has: packets to it get no answer."""
        return str(self.net[250])

    def close(self) -> None:
        """Kill what runs inside and remove every namespace and link."""
        for netns in self._hosts:
            _kill_inside(netns)
        for netns in self._hosts:
            _ip("netns", "del", netns, check=False)
        self._hosts.clear()
        _ip("link", "del", self.bridge, check=False)
        links = _ip("-o", "link", "show", check=False)
        for name in re.findall(rf"\b{self._link}v\d+(?=[:@])", links):
            _ip("link", "del", name, check=False)


@contextlib.contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Two runs must not choose the same net at the same moment."""
    path = Path(tempfile.gettempdir()) / f"gpumon-rig-{os.getuid()}.lock"
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _free_net() -> ipaddress.IPv4Network:
    taken = [
        ipaddress.ip_network(match, strict=False)
        for match in re.findall(r"inet ([\d.]+/\d+)", _ip("-o", "-4", "addr", "show"))
    ]
    start = os.getpid() % 200
    for step in range(200):
        net = ipaddress.IPv4Network(f"10.213.{(start + step) % 200 + 20}.0/24")
        if not any(net.overlaps(other) for other in taken):
            return net
    raise RuntimeError("no free network between 10.213.20.0 and 10.213.219.0")

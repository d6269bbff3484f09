"""Hosts named on the command line: ``alias``, ``user@host``, ``host:port``, ``[v6]:port``."""

from __future__ import annotations

import re
import socket
from collections.abc import Sequence
from dataclasses import replace

from gpumon.errors import GpumonError
from gpumon.inventory import HostConfig, Inventory

__all__ = ["TargetError", "choose_hosts", "parse_target"]

_LOCAL_NAMES = frozenset({"local", "localhost"})
_TARGET = re.compile(
    r"(?:(?P<user>[^@\s]+)@)?"
    r"(?:\[(?P<v6>[0-9A-Fa-f:.%\w]+)\]|(?P<host>[^\s:@\[\]]+))"
    r"(?::(?P<port>\d{1,5}))?"
)


class TargetError(GpumonError):
    """A word that names no host."""


def parse_target(text: str) -> HostConfig:
    """The host that a word on the command line means. Raises ``TargetError``."""
    if text in _LOCAL_NAMES:
        return HostConfig(name=text)
    match = _TARGET.fullmatch(text)
    # ssh would take a word that begins with "-" for an option.
    if match is None or text.startswith("-") or (match["host"] or "").startswith("-"):
        if text.count(":") > 1 and "[" not in text:
            raise TargetError(f"{text!r} is no host", f"write an IPv6 address as [{text}]")
        raise TargetError(f"{text!r} is no host", "write HOST, USER@HOST or HOST:PORT")
    port = int(match["port"]) if match["port"] else None
    if port is not None and not 0 < port < 65536:
        raise TargetError(f"{text!r}: there is no port {port}", "ports are 1 to 65535")
    return HostConfig(
        name=text, address=match["v6"] or match["host"], user=match["user"], port=port
    )


def _this_machine(taken: Sequence[HostConfig]) -> HostConfig:
    names = {host.name for host in taken}
    name = socket.gethostname() or "localhost"
    return HostConfig(name="localhost" if name in names else name)


def choose_hosts(
    inventory: Inventory, targets: Sequence[str], interval_s: float | None
) -> Inventory:
    """The inventory with the hosts to watch: those named, else this machine and the config's.

    A name in the config goes before an ad hoc meaning. Raises ``TargetError``.
    """
    configured = {host.name: host for host in inventory.hosts}
    if targets:
        hosts = [configured.get(text) or parse_target(text) for text in dict.fromkeys(targets)]
        # Who names a host wants it read, also where the config switched it off.
        hosts = [replace(host, enabled=True) for host in hosts]
    else:
        hosts = list(inventory.hosts)
        if inventory.local and not any(host.is_local for host in hosts):
            hosts.insert(0, _this_machine(hosts))
    if interval_s is not None:
        hosts = [replace(host, interval_s=interval_s) for host in hosts]
    return replace(inventory, hosts=tuple(hosts), interval_s=interval_s or inventory.interval_s)

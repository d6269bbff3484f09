"""Hosts named on the command line: ``alias``, ``user@host``, ``host:port``, ``[v6]:port``."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Sequence
from dataclasses import replace

from gpumon.config_keys import ADDRESS_PATTERN, LOCAL_ADDRESSES, USER_PATTERN
from gpumon.errors import GpumonError
from gpumon.inventory import HostConfig, Inventory

__all__ = ["TargetError", "choose_hosts", "parse_target"]

_PORT = re.compile(r"[0-9]{1,5}")


class TargetError(GpumonError):
    """A word that names no host."""


def parse_target(text: str) -> HostConfig:
    """The host that a word on the command line means. Raises ``TargetError``."""
    if text in LOCAL_ADDRESSES:
        return HostConfig(name=text)
    user, at, rest = text.rpartition("@")
    host, port = _split_port(text, rest)
    good = re.fullmatch(ADDRESS_PATTERN, host) and (not at or re.fullmatch(USER_PATTERN, user))
    if not good or not text.isprintable():
        raise TargetError(f"{text!r} is no host", "write HOST, USER@HOST or HOST:PORT")
    return HostConfig(name=text, address=host, user=user or None, port=port)


def _split_port(text: str, rest: str) -> tuple[str, int | None]:
    """Host and port of ``rest``, the part behind the user; ``text`` is for errors."""
    if _is_ipv6(rest):
        # As for ssh: without brackets all of it is the address.
        return rest, None
    if rest.startswith("["):
        host, bracket, tail = rest[1:].partition("]")
        if not bracket or not _is_ipv6(host) or (tail and not tail.startswith(":")):
            raise TargetError(f"{text!r} is no host", "write an IPv6 address as [2001:db8::7]:22")
        port = tail[1:] if tail else None
    else:
        host, colon, port_text = rest.partition(":")
        port = port_text if colon else None
    if port is None:
        return host, None
    if not _PORT.fullmatch(port) or not 0 < int(port) < 65536:
        raise TargetError(f"{text!r} has no port from 1 to 65535", "write HOST:PORT or [IPV6]:PORT")
    return host, int(port)


def _is_ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


def _this_machine(inventory: Inventory) -> HostConfig:
    taken = {host.name for host in inventory.hosts}
    names = (socket.gethostname(), "localhost", "this machine")
    name = next(name for name in names if name and name not in taken)
    return HostConfig(name=name, interval_s=inventory.interval_s)


def choose_hosts(
    inventory: Inventory, targets: Sequence[str], interval_s: float | None
) -> Inventory:
    """The inventory with the hosts to watch: those named, else this machine and the config's.

    A name in the config goes before an ad hoc meaning. ``interval_s`` goes before every
    interval of the config. Raises ``TargetError``.
    """
    if targets:
        configured = {host.name: host for host in inventory.hosts}
        # Who names a host wants it read, also where the config switched it off.
        hosts = [
            replace(configured[text], enabled=True)
            if text in configured
            else replace(parse_target(text), interval_s=inventory.interval_s)
            for text in dict.fromkeys(targets)
        ]
    else:
        hosts = list(inventory.hosts)
        if inventory.local and not any(host.is_local for host in hosts):
            hosts.insert(0, _this_machine(inventory))
    if interval_s is not None:
        hosts = [replace(host, interval_s=interval_s) for host in hosts]
    return replace(inventory, hosts=tuple(hosts), interval_s=interval_s or inventory.interval_s)

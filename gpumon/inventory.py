"""Hosts, prices and thresholds, from TOML and ``ssh_config``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["EngineConfig", "HostConfig", "Inventory", "Retention"]


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """An engine that is named rather than found by its process."""

    kind: str
    url: str
    #: environment variable on THIS machine that holds the bearer key
    key_env: str | None = None


@dataclass(frozen=True, slots=True)
class HostConfig:
    """One host as the user named it."""

    name: str
    #: what ssh is given: an alias, a name or an address; None = this machine
    address: str | None = None
    user: str | None = None
    port: int | None = None
    tags: tuple[str, ...] = ()
    region: str | None = None
    #: free form for now: hourly, currency, ...
    price: Mapping[str, object] = field(default_factory=dict)
    engines: tuple[EngineConfig, ...] = ()
    enabled: bool = True
    #: asyncssh, ssh (a subprocess of the system's ssh)
    transport: str = "asyncssh"
    interval_s: float = 2.0
    #: paths whose file system is shown beside the root's
    disks: tuple[str, ...] = ()

    @property
    def is_local(self) -> bool:
        """True for the machine gpumon runs on."""
        return self.address is None


@dataclass(frozen=True, slots=True)
class Retention:
    """How long each resolution is kept."""

    raw_h: float = 48.0
    ten_seconds_d: float = 7.0
    one_minute_d: float = 90.0
    ten_minutes_d: float = 365.0


@dataclass(frozen=True, slots=True)
class Inventory:
    """All that the config says."""

    hosts: tuple[HostConfig, ...] = ()
    interval_s: float = 2.0
    theme: str | None = None
    mouse: bool = True
    database: str | None = None
    retention: Retention = field(default_factory=Retention)
    #: metric name -> (warn, crit)
    thresholds: Mapping[str, tuple[float | None, float | None]] = field(default_factory=dict)
    #: the file it was read from; None = no config at all
    path: str | None = None
    #: show the machine gpumon runs on beside the hosts
    local: bool = True

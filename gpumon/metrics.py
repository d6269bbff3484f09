"""Every metric, declared once: columns of the database and of exports are made from here."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from operator import attrgetter
from typing import Any

from gpumon import kv_use
from gpumon.snapshot import GpuState, HostState, NvmlState

__all__ = ["METRICS", "TABLES", "Metric", "metric", "metrics_of"]

TABLES = ("gpu", "host", "model", "process")
#: what a column of the database can hold, either way
_LARGEST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Metric:
    """One measured quantity of a table's rows.

    ``read`` takes the row's record (``Gpu``, ``HostView``, ``Model``, ``GpuProcess``) and
    returns the value in ``unit``, None where unknown. The database keeps
    ``round(value * scale)``. A ``states`` metric keeps the position in ``states``.
    """

    table: str
    name: str
    unit: str
    text: str
    read: Callable[[Any], Any]
    #: gauge, counter, flag, state
    kind: str = "gauge"
    scale: int = 1
    decimals: int = 0
    states: tuple[str, ...] = ()

    @property
    def heading(self) -> str:
        """The column's name in an export, with its unit where the name lacks it."""
        return self.name

    def encode(self, record: Any) -> int | None:
        """The value as the database keeps it; None also for one that no column can hold."""
        value = self.read(record)
        if value is None:
            return None
        if type(value) is int and self.scale == 1:
            return value if abs(value) <= _LARGEST else None
        if self.kind == "state":
            return self.states.index(value) if value in self.states else None
        if not math.isfinite(value):
            return None
        whole = value if isinstance(value, int) else float(value)
        stored = round(whole * self.scale)
        return stored if abs(stored) <= _LARGEST else None

    def decode(self, stored: int | None) -> int | float | bool | str | None:
        """The value in its unit, from what the database kept."""
        if stored is None:
            return None
        if self.kind == "state":
            return self.states[stored] if 0 <= stored < len(self.states) else None
        if self.kind == "flag":
            return bool(stored)
        if self.scale == 1 and self.decimals == 0:
            return stored
        return round(stored / self.scale, self.decimals)


def _of(path: str) -> Callable[[Any], Any]:
    """Reads an attribute path; None as soon as a part of it is None."""
    first, _, rest = path.partition(".")
    if not rest:
        return attrgetter(first)
    inner = _of(rest)

    def read(record: Any) -> Any:
        part = getattr(record, first)
        return None if part is None else inner(part)

    return read


def _names(states: type[StrEnum]) -> tuple[str, ...]:
    return tuple(state.value for state in states)


def _gpu(name: str, unit: str, text: str, **more: Any) -> Metric:
    return Metric("gpu", name, unit, text, _of(name), **more)


def _host(name: str, unit: str, text: str, path: str | None = None, **more: Any) -> Metric:
    return Metric("host", name, unit, text, _of(path or f"snapshot.system.{name}"), **more)


def _process(name: str, unit: str, text: str, **more: Any) -> Metric:
    return Metric("process", name, unit, text, _of(name), **more)


def _model(name: str, unit: str, text: str, read: Callable[[Any], Any], **more: Any) -> Metric:
    return Metric("model", name, unit, text, read, **more)


METRICS: tuple[Metric, ...] = (
    _gpu("state", "", "whether the card answers", kind="state", states=_names(GpuState)),
    _gpu("util_percent", "%", "time in which a kernel ran", scale=10, decimals=1),
    _gpu("memory_util_percent", "%", "time in which memory was touched", scale=10, decimals=1),
    _gpu("memory_used_bytes", "B", "memory in use, without the driver's reserve"),
    _gpu("memory_total_bytes", "B", "memory of the card"),
    _gpu("power_w", "W", "power drawn", scale=1000, decimals=3),
    _gpu("power_limit_w", "W", "power limit in force", scale=1000, decimals=3),
    _gpu("temperature_c", "°C", "core temperature", scale=10, decimals=1),
    _gpu("memory_temperature_c", "°C", "memory temperature", scale=10, decimals=1),
    _gpu("fan_percent", "%", "fan speed asked for", scale=10, decimals=1),
    _gpu("sm_clock_mhz", "MHz", "clock of the multiprocessors"),
    _gpu("memory_clock_mhz", "MHz", "clock of the memory"),
    _gpu(
        "energy_j",
        "J",
        "energy since the driver was loaded",
        kind="counter",
        scale=1000,
        decimals=3,
    ),
    _gpu("pcie_tx_bytes_per_s", "B/s", "sent over PCIe"),
    _gpu("pcie_rx_bytes_per_s", "B/s", "received over PCIe"),
    _gpu("ecc_corrected", "", "corrected memory errors", kind="counter"),
    _gpu("ecc_uncorrected", "", "uncorrected memory errors", kind="counter"),
    _gpu("xid", "", "newest XID error"),
    _host(
        "state",
        "",
        "where its connection stands",
        "status.state",
        kind="state",
        states=_names(HostState),
    ),
    _host(
        "nvml_state",
        "",
        "how its driver fares",
        "snapshot.nvml.state",
        kind="state",
        states=_names(NvmlState),
    ),
    _host("cpu_percent", "%", "CPU time used, of all cores", scale=10, decimals=1),
    _host("load_1", "", "load over one minute", scale=100, decimals=2),
    _host("memory_used_bytes", "B", "memory in use: total less available"),
    _host("memory_total_bytes", "B", "memory of the machine"),
    _host("swap_used_bytes", "B", "swap in use"),
    _host("network_rx_bytes_per_s", "B/s", "received over the network"),
    _host("network_tx_bytes_per_s", "B/s", "sent over the network"),
    _host("uptime_s", "s", "time since it was started", kind="counter"),
    _host(
        "probe_cpu_percent",
        "%",
        "CPU of gpumon's own reader, of one core",
        "snapshot.probe.cpu_percent",
        scale=1000,
        decimals=3,
    ),
    _host("probe_rss_bytes", "B", "memory of gpumon's own reader", "snapshot.probe.rss_bytes"),
    _model("size_bytes", "B", "bytes that the engine claims for it", _of("size_bytes")),
    _model("vram_bytes", "B", "of these, bytes claimed to be on GPUs", _of("vram_bytes")),
    _model("context_tokens", "tokens", "context length of a slot", _of("context_tokens")),
    _model("kv_capacity_tokens", "tokens", "KV cache reserved, all slots", kv_use.capacity_tokens),
    _model("kv_used_tokens", "tokens", "KV cache used, all slots", kv_use.used_tokens),
    _model(
        "decode_tokens_per_s",
        "tokens/s",
        "generated",
        kv_use.decode_tokens_per_s,
        scale=100,
        decimals=2,
    ),
    _model(
        "prefill_tokens_per_s",
        "tokens/s",
        "prompt processed",
        kv_use.prefill_tokens_per_s,
        scale=100,
        decimals=2,
    ),
    _model("busy_slots", "", "slots that work", kv_use.busy_slots),
    _model(
        "context_shifts",
        "",
        "times a slot forgot half its context",
        kv_use.context_shifts,
        kind="counter",
    ),
    _process("memory_bytes", "B", "GPU memory held"),
    _process("sm_percent", "%", "its share of the multiprocessors", scale=10, decimals=1),
    _process("cpu_percent", "%", "CPU, of one core", scale=10, decimals=1),
    _process("rss_bytes", "B", "memory held"),
)

_BY_TABLE: dict[str, tuple[Metric, ...]] = {
    table: tuple(one for one in METRICS if one.table == table) for table in TABLES
}

_BY_NAME: dict[tuple[str, str], Metric] = {(one.table, one.name): one for one in METRICS}


def metrics_of(table: str) -> tuple[Metric, ...]:
    """The metrics of a table, in the order of its columns. Raises ``KeyError``."""
    return _BY_TABLE[table]


def metric(table: str, name: str) -> Metric:
    """One metric. Raises ``KeyError``."""
    return _BY_NAME[table, name]

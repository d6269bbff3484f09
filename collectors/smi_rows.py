"""Rows of ``nvidia-smi --query-...`` as rows of a sample. Pure.

The output is CSV without quoting, so the one free text, the name, is asked for last
(sonar#38, nvidia_gpu_exporter#438). Memory is in MiB, power in W, clocks in MHz
(``nvidia-smi --help-query-gpu``). Tokens that stand for no value: nvidia_gpu_exporter's
captures, i3pystatus#776.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["QUERY_FIELDS", "gpu_row", "lost_gpu", "process_row"]

_MIB = 1024 * 1024
_UNSUPPORTED = "unsupported"
#: Text within brackets, in lower case -> reason code. Anything else in brackets is an
#: error of the driver's.
_TOKENS = {
    "n/a": _UNSUPPORTED,
    "not supported": _UNSUPPORTED,
    "-": _UNSUPPORTED,
    "": _UNSUPPORTED,
    "not available in wddm driver model": "wddm",
    "insufficient permissions": "no-permission",
    "function not found": "no-symbol",
    "requested functionality has been deprecated": "no-symbol",
    "gpu requires reset": "reset-required",
    "gpu is lost": "lost",
    "err!": "driver-error",
    "unknown error": "driver-error",
    "unknown": "no-data",
    "not found": "not-visible",
}
#: Clock event reasons: bits and names as NVML's own (nvml.h, nvmlClocksEventReason*).
_THROTTLE_REASONS = (
    (0x2, "app-clocks"),
    (0x4, "sw-power-cap"),
    (0x8, "hw-slowdown"),
    (0x10, "sync-boost"),
    (0x20, "sw-thermal"),
    (0x40, "hw-thermal"),
    (0x80, "hw-power-brake"),
    (0x100, "display-clocks"),
    (0x200, "board-limit"),
    (0x400, "reliability"),
)
_COMPUTE_MODES = {
    "default": "default",
    "exclusive_thread": "exclusive-thread",
    "exclusive_process": "exclusive-process",
    "prohibited": "prohibited",
}
#: What tells a row from the words of an error.
_ROW_MARKS = {"index": re.compile(r"\d+$"), "uuid": re.compile(r"(?:GPU|MIG)-")}
_LOST = re.compile(
    r"(?:device handle for GPU\s*(?:\d+:\s*)?)([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.\d)"
    r"\s*:\s*(.*)$"
)


def _mib(text: str) -> int:
    return int(text) * _MIB


def _switch(text: str) -> bool:
    return {"enabled": True, "disabled": False}[text.lower()]


def _performance_state(text: str) -> int:
    return int(text.removeprefix("P"))


def _compute_mode(text: str) -> str:
    return _COMPUTE_MODES[text.lower()]


def _reasons(text: str) -> list[str]:
    mask = int(text, 16)
    names = [name for bit, name in _THROTTLE_REASONS if mask & bit]
    rest = mask & ~(sum(bit for bit, _ in _THROTTLE_REASONS) | 1)
    return names + ([f"bits-0x{rest:x}"] if rest else [])


def _pci_id(text: str) -> str:
    domain, _, rest = text.partition(":")
    return f"{int(domain, 16):04x}:{rest.lower()}"


#: nvidia-smi's field, the record's, and how its text is read. Two names of one thing are
#: both asked for: drivers before 545 know only the older of the throttle fields.
_FIELDS: tuple[tuple[str, str, Callable[[str], Any]], ...] = (
    ("index", "index", int),
    ("uuid", "uuid", str),
    ("pci.bus_id", "pci_id", _pci_id),
    ("memory.total", "memory_total_bytes", _mib),
    ("memory.used", "memory_used_bytes", _mib),
    ("memory.free", "memory_free_bytes", _mib),
    ("memory.reserved", "memory_reserved_bytes", _mib),
    ("utilization.gpu", "util_percent", float),
    ("utilization.memory", "memory_util_percent", float),
    ("utilization.encoder", "encoder_percent", float),
    ("utilization.decoder", "decoder_percent", float),
    ("temperature.gpu", "temperature_c", float),
    ("temperature.memory", "memory_temperature_c", float),
    ("power.draw", "power_w", float),
    ("enforced.power.limit", "power_limit_w", float),
    ("fan.speed", "fan_percent", float),
    ("clocks.sm", "sm_clock_mhz", int),
    ("clocks.mem", "memory_clock_mhz", int),
    ("clocks.max.sm", "max_sm_clock_mhz", int),
    ("clocks.max.mem", "max_memory_clock_mhz", int),
    ("pstate", "performance_state", _performance_state),
    ("clocks_throttle_reasons.active", "throttle_reasons", _reasons),
    ("clocks_event_reasons.active", "throttle_reasons", _reasons),
    ("pcie.link.gen.current", "pcie_generation", int),
    ("pcie.link.width.current", "pcie_width", int),
    ("pcie.link.gen.max", "pcie_generation_max", int),
    ("pcie.link.width.max", "pcie_width_max", int),
    ("ecc.errors.corrected.volatile.total", "ecc_corrected", int),
    ("ecc.errors.uncorrected.volatile.total", "ecc_uncorrected", int),
    ("persistence_mode", "persistence_mode", _switch),
    ("compute_mode", "compute_mode", _compute_mode),
    ("compute_cap", "compute_capability", str),
    ("vbios_version", "vbios", str),
    ("mig.mode.current", "mig_mode", _switch),
    ("driver_version", "driver_version", str),
    ("name", "name", str),
)
_READERS = {field: (name, read) for field, name, read in _FIELDS}
#: What is asked for, in this order; the name is last.
QUERY_FIELDS = tuple(field for field, _, _ in _FIELDS)
#: Fields of ``Gpu`` that nvidia-smi's CSV does not offer.
_NOT_OFFERED = (
    "temperature_slowdown_c",
    "energy_j",
    "memory_bus_bits",
    "pcie_tx_bytes_per_s",
    "pcie_rx_bytes_per_s",
    "retired_pages",
    "row_remap_pending",
    "row_remap_failed",
    "recovery_action",
    "xid",
)
#: Known of the card itself, so that a token there speaks of the card.
_STATES = {"lost": "lost", "reset-required": "reset-required"}
_MIG_PARENT = ("util_percent", "memory_util_percent", "encoder_percent", "decoder_percent")


def token_reason(text: str) -> str | None:
    """The reason code of a cell that holds no value; None for a value."""
    bare = text.strip()
    inner = bare[1:-1] if bare.startswith("[") and bare.endswith("]") else bare
    if (reason := _TOKENS.get(inner.strip().lower())) is not None:
        return reason
    return "driver-error" if inner is not bare else None


def gpu_row(text: str, fields: Sequence[str]) -> tuple[dict[str, Any], str | None] | None:
    """(row for a sample, driver version) of one CSV line; None where it is no such row."""
    cells = [cell.strip() for cell in text.split(",", max(0, len(fields) - 1))]
    if len(cells) != len(fields) or not any(
        mark.match(cell)
        for field, cell in zip(fields, cells, strict=True)
        if (mark := _ROW_MARKS.get(field)) is not None
    ):
        return None
    row: dict[str, Any] = {}
    unknown: dict[str, str] = {}
    for field, cell in zip(fields, cells, strict=True):
        if field not in _READERS:
            continue
        name, read = _READERS[field]
        reason = token_reason(cell)
        if reason is None:
            try:
                row[name] = read(cell)
                unknown.pop(name, None)
                continue
            except (ValueError, KeyError):
                reason = "nonsense"
        if name not in row:
            unknown[name] = reason
    version = row.pop("driver_version", None)
    unknown.pop("driver_version", None)
    for field, name, _ in _FIELDS:
        if field not in fields and name not in row and name not in unknown:
            unknown[name] = "no-symbol"
    unknown.update((name, "fallback") for name in _NOT_OFFERED)
    if row.get("mig_mode"):
        unknown.update((name, "mig-parent") for name in _MIG_PARENT if name not in row)
    unknown.pop("mig_mode", None)  # a card that can't be split is not split
    row["state"] = _state(unknown)
    row["unknown"] = unknown
    return row, version


def _state(unknown: dict[str, str]) -> str:
    reasons = list(unknown.values())
    for reason, state in _STATES.items():
        # one bad cell is not a bad card (nvidia_gpu_exporter#393)
        if reasons.count(reason) >= 3:
            return state
    return "ok"


def lost_gpu(text: str) -> tuple[str, str] | None:
    """(PCI id, what is wrong) where nvidia-smi names a card that it can't reach.

    One lost card makes nvidia-smi fail as a whole and hides the healthy ones
    (open-gpu-kernel-modules#246, #387).
    """
    match = _LOST.search(text)
    return (_pci_id(match.group(1)), match.group(2).strip()) if match else None


def process_row(text: str) -> dict[str, Any] | None:
    """The row of one line of gpu_uuid,pid,used_memory,process_name; None where it is none."""
    cells = [cell.strip() for cell in text.split(",", 3)]
    if len(cells) != 4 or not cells[0].startswith(("GPU-", "MIG-")) or not cells[1].isdecimal():
        return None
    row: dict[str, Any] = {"gpu_uuid": cells[0], "pid": int(cells[1]), "kind": "compute"}
    unknown = dict.fromkeys(
        ("start_ticks", "sm_percent", "user", "command", "container", "parent_pid",
         "started_s_ago", "cpu_percent", "rss_bytes"),
        "fallback",
    )  # fmt: skip
    reason = token_reason(cells[2])
    if reason is None and cells[2].isdecimal():
        row["memory_bytes"] = int(cells[2]) * _MIB
    else:
        unknown["memory_bytes"] = reason or "nonsense"
    if (reason := token_reason(cells[3])) is None:
        row["name"] = cells[3].replace("\\", "/").rpartition("/")[2] or cells[3]
    else:
        unknown["name"] = reason
    row["unknown"] = unknown
    return row

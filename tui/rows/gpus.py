"""The cards of a host, MIG slices under theirs."""

from __future__ import annotations

from gpumon.snapshot import Gpu, GpuState, HostSnapshot, HostView, NvmlState
from gpumon.text import safe
from gpumon.tui.format import duration, gib_tenths, percent
from gpumon.tui.rows.cell import ABSENT, Cell, Row, figure, unknown
from gpumon.tui.rows.figures import Freshness, gpu_reason, gpus_age_s, gpus_freshness
from gpumon.tui.tones import Severity, Tone, tone_of
from gpumon.tui.widgets.columns import Column, Content

__all__ = ["GPU_COLUMNS", "gpu_label", "gpu_rows", "gpus_age_note", "no_gpus_text"]

GPU_COLUMNS = (
    Column("gpu", "GPU", Content.NAME, least=12, usual=20, most=40, stretches=True, names_row=True),
    Column("util", "UTIL", Content.BAR_PERCENT),
    Column(
        "vram", "VRAM used/total GiB", Content.BAR_PAIR,
        short="VRAM GiB", least=16, usual=21, figure=11,
    ),
    Column("bandwidth", "MEM %", Content.PERCENT, gives_way=3),
    Column("temperature", "°C", Content.COUNT, least=3),
    Column("power", "W/limit", Content.FIGURES),
    Column("clock", "MHz", Content.COUNT, gives_way=4),
    Column("throttle", "THROTTLE", Content.WORD, usual=9, most=24, gives_way=2),
    Column("pcie", "PCIe", Content.WORD, usual=5, gives_way=5),
    Column("ecc", "ECC", Content.COUNT, gives_way=6),
    Column("state", "STATE", Content.WORD, usual=6, most=16),
)  # fmt: skip

_WORDS: dict[GpuState, tuple[str, Severity]] = {
    GpuState.OK: ("ok", Severity.OK),
    GpuState.LOST: ("lost", Severity.CRIT),
    GpuState.RESET_REQUIRED: ("reset", Severity.CRIT),
    GpuState.ASLEEP: ("asleep", Severity.OK),
    GpuState.NO_DRIVER: ("no driver", Severity.WARN),
    GpuState.ERROR: ("error", Severity.WARN),
}

_NO_GPUS: dict[NvmlState, str] = {
    NvmlState.OK: "the driver shows no card",
    NvmlState.ABSENT: "none in this machine",
    NvmlState.NO_DRIVER: "a card, but no driver",
    NvmlState.NOUVEAU: "driven by nouveau, which tells nothing",
    NvmlState.MISMATCH: "driver module and library differ",
    NvmlState.LIBRARY_MISSING: "libnvidia-ml.so.1 is missing",
    NvmlState.NO_PERMISSION: "no permission on /dev/nvidia*",
    NvmlState.ASLEEP: "asleep, and not woken for a reading",
    NvmlState.HUNG: "the driver hangs and has told nothing yet",
    NvmlState.ERROR: "the driver answers with an error",
    NvmlState.STARTING: "not read yet",
}


def no_gpus_text(snapshot: HostSnapshot | None) -> str:
    """Why there is no row."""
    return "not read yet" if snapshot is None else _NO_GPUS[snapshot.nvml.state]


def gpu_rows(view: HostView, now: float) -> list[Row]:
    """One row a card and one a slice, in the driver's order."""
    snapshot = view.snapshot
    if snapshot is None:
        return []
    fresh = gpus_freshness(view, now)
    hung = snapshot.nvml.state is NvmlState.HUNG
    return [
        _row(gpu, snapshot, hung=hung, old=fresh is not Freshness.FRESH) for gpu in snapshot.gpus
    ]


def gpus_age_note(view: HostView, now: float) -> str:
    """How old the readings are, where that is more than it should be."""
    seconds = gpus_age_s(view, now)
    if view.snapshot is None or not view.snapshot.gpus or seconds is None:
        return ""
    fresh = gpus_freshness(view, now)
    if fresh is Freshness.FRESH:
        return ""
    word = "STALE " if fresh is Freshness.STALE else ""
    return f"{word}{duration(seconds)} old"


def gpu_label(gpu: Gpu) -> str:
    """``0`` for the card of that index, its PCI id or the end of its UUID otherwise."""
    if gpu.index is not None:
        return str(gpu.index)
    return safe(gpu.pci_id, 16) if gpu.pci_id else safe(gpu.uuid[-8:], 8)


def _row(gpu: Gpu, snapshot: HostSnapshot, *, hung: bool, old: bool) -> Row:
    word, severity = _WORDS[gpu.state]
    if hung:
        word, severity = "hung", Severity.CRIT
    elif gpu.state is GpuState.OK and gpu.throttle_reasons and "idle" not in _throttle(gpu):
        severity = Severity.WARN if "thermal" in _throttle(gpu) else Severity.OK
    is_slice = gpu.parent_uuid is not None
    name = safe(gpu.name or "unnamed", 60).removeprefix("NVIDIA ")
    label = f"└ {safe(gpu.mig_profile or name, 30)}" if is_slice else f"{gpu_label(gpu)} {name}"
    cells = (
        Cell(label, Tone.NORMAL if is_slice else Tone.STRONG, lead=severity.glyph,
             lead_tone=tone_of(severity), sort=gpu.index if gpu.index is not None else label),
        _util(gpu),
        _vram(gpu, snapshot),
        figure(gpu.memory_util_percent, percent(gpu.memory_util_percent or 0),
               "memory_util_percent", _why(gpu, "memory_util_percent")),
        _temperature(gpu),
        _power(gpu),
        figure(gpu.sm_clock_mhz, str(gpu.sm_clock_mhz), "sm_clock_mhz", _why(gpu, "sm_clock_mhz")),
        _throttle_cell(gpu),
        _pcie(gpu),
        figure(gpu.ecc_uncorrected, str(gpu.ecc_uncorrected), "ecc_uncorrected",
               _why(gpu, "ecc_uncorrected"), Tone.WARN if gpu.ecc_uncorrected else Tone.NORMAL),
        Cell(word, tone_of(severity), sort=-severity.rank),
    )  # fmt: skip
    identity = " · ".join(safe(part, 60) for part in (gpu.uuid, gpu.pci_id) if part)
    remark = safe(gpu.detail, 200) if gpu.detail else identity
    words = f"{identity} {severity.value}"
    return Row(gpu.uuid, cells, parent=gpu.parent_uuid, faded=old, words=words, remark=remark)


def _why(gpu: Gpu, field: str) -> dict[str, str]:
    return {field: gpu_reason(gpu, field)}


def _util(gpu: Gpu) -> Cell:
    value = gpu.util_percent
    if value is None:
        return unknown(gpu_reason(gpu, "util_percent"))
    return Cell(percent(value), sort=value, bar=value / 100)


def _vram(gpu: Gpu, snapshot: HostSnapshot) -> Cell:
    used, total = gpu.memory_used_bytes, gpu.memory_total_bytes
    lead = ""
    if gpu.unified_memory:
        lead = "UMA"
        if total is None:
            used = snapshot.system.memory_used_bytes
            total = snapshot.system.memory_total_bytes
    if used is None or not total:
        field = "memory_used_bytes" if used is None else "memory_total_bytes"
        return unknown(gpu_reason(gpu, field))
    text = f"{gib_tenths(used)}/{gib_tenths(total)}"
    return Cell(text, sort=used, bar=used / total, lead=lead)


def _temperature(gpu: Gpu) -> Cell:
    value, limit = gpu.temperature_c, gpu.temperature_slowdown_c
    hot = value is not None and limit is not None and value >= limit
    return figure(
        value, f"{value or 0:.0f}", "temperature_c", _why(gpu, "temperature_c"),
        Tone.WARN if hot else Tone.NORMAL,
    )  # fmt: skip


def _power(gpu: Gpu) -> Cell:
    if gpu.power_w is None:
        return unknown(gpu_reason(gpu, "power_w"))
    limit = "n/a" if gpu.power_limit_w is None else f"{gpu.power_limit_w:.0f}"
    reason = gpu_reason(gpu, "power_limit_w") if gpu.power_limit_w is None else None
    return Cell(f"{gpu.power_w:.0f}/{limit}", sort=gpu.power_w, reason=reason)


def _throttle(gpu: Gpu) -> str:
    return " ".join(safe(reason, 24) for reason in gpu.throttle_reasons or ())


def _throttle_cell(gpu: Gpu) -> Cell:
    if gpu.throttle_reasons is None:
        return unknown(gpu_reason(gpu, "throttle_reasons"))
    text = _throttle(gpu)
    if not text:
        return Cell("none", Tone.DIM, sort="")
    tone = Tone.WARN if "thermal" in text else Tone.NORMAL
    return Cell(text, tone, sort=text, shorter=(safe(gpu.throttle_reasons[0], 24),))


def _pcie(gpu: Gpu) -> Cell:
    generation, width = gpu.pcie_generation, gpu.pcie_width
    if gpu.parent_uuid is not None:
        return ABSENT
    if generation is None or width is None:
        field = "pcie_generation" if generation is None else "pcie_width"
        return unknown(gpu_reason(gpu, field))
    return Cell(f"{generation}x{width}", sort=generation * 100 + width)

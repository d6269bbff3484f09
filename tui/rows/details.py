"""Every field of a record, for the page that Enter opens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum

from gpumon.snapshot import Engine, Gpu, GpuProcess, HostStatus, HostView, Model
from gpumon.text import safe
from gpumon.tui.format import GIB, clock, duration, reason_text
from gpumon.tui.rows.gpus import gpu_label
from gpumon.tui.rows.troubles import CAUSE_WORDS, Trouble
from gpumon.tui.tones import Line, Span, Tone
from gpumon.tui.widgets.drawing import fit

__all__ = ["fix_lines", "record_lines", "record_of"]

_LABEL_WIDTH = 26


def fix_lines(view: HostView, found: list[Trouble], now: float) -> list[Line]:
    """State, cause, what happened, and the exact command."""
    status: HostStatus = view.status
    lines = [
        _pair("host", safe(view.host, 200)),
        _pair("address", safe(view.address, 200) if view.address else "this machine"),
        _pair("state", status.state.value, Tone.STRONG),
    ]
    if status.cause.value != "none":
        lines.append(_pair("cause", CAUSE_WORDS[status.cause], Tone.WARN))
    if status.since:
        ago = duration(max(0.0, now - status.since))
        lines.append(_pair("since", f"{clock(status.since)} ({ago} ago)"))
    if status.retry_at is not None:
        lines.append(_pair("next try in", duration(max(0.0, status.retry_at - now))))
    if status.detail:
        lines.append(_pair("what happened", safe(status.detail, 2000)))
    lines.append(Line())
    if status.fix:
        lines.append(Line((Span(" What settles it (y copies it):", Tone.TITLE),)))
        lines.append(Line())
        lines.append(Line((Span("   "), Span(safe(status.fix, 2000), Tone.KEY))))
        lines.append(Line())
        lines.append(Line((Span(" Then R on the host tries again at once.", Tone.DIM),)))
    lines += [
        _pair(trouble.severity.value, trouble.text)
        for trouble in found
        if trouble.key != "connection"
    ]
    if not found and not status.fix:
        lines.append(Line((Span(" Nothing is wrong with this host.", Tone.DIM),)))
    return lines


def record_of(
    view: HostView, table: str, key: str
) -> tuple[str, Gpu | Model | Engine | GpuProcess] | None:
    """Title and record of a row of the host screen; None where it has gone."""
    snapshot = view.snapshot
    if snapshot is None:
        return None
    if table == "gpus":
        for gpu in snapshot.gpus:
            if gpu.uuid == key:
                return f"GPU {gpu_label(gpu)}", gpu
    if table == "processes":
        for process in snapshot.processes or ():
            if f"{process.pid} {process.start_ticks} {process.gpu_uuid}" == key:
                return f"process {process.pid}", process
    for engine in snapshot.engines:
        name = f"{engine.kind} {engine.port or ''} {engine.pid or ''}"
        if table == "engines" and name == key:
            return safe(engine.kind, 20), engine
        for model in engine.models:
            if table == "models" and f"{name} {model.name} {model.digest or ''}" == key:
                return safe(model.name, 40), model
    return None


def record_lines(record: object, indent: int = 0) -> list[Line]:
    """One line a field; unknown ones with their reason, records inside indented."""
    return list(_fields(record, indent))


def _fields(record: object, indent: int) -> Iterator[Line]:
    reasons = getattr(record, "unknown", {})
    for field in fields(record):  # type: ignore[arg-type]
        if field.name == "unknown":
            continue
        value = getattr(record, field.name)
        label = " " * indent + field.name.removesuffix("_bytes").replace("_", " ")
        yield from _value(label, field.name, value, reasons, indent)


def _value(
    label: str, name: str, value: object, reasons: Mapping[str, str], indent: int
) -> Iterator[Line]:
    if value is None:
        why = f" ({reason_text(reasons[name])})" if name in reasons else ""
        yield _pair(label, f"n/a{why}", Tone.DIM)
    elif is_dataclass(value):
        yield _pair(label, "")
        yield from _fields(value, indent + 2)
    elif isinstance(value, Mapping):
        yield _pair(label, "" if value else "none")
        for key, item in sorted(value.items()):
            yield _pair(f"{' ' * (indent + 2)}{safe(str(key), 60)}", safe(str(item), 300))
    elif isinstance(value, tuple):
        if value and is_dataclass(value[0]):
            yield _pair(label, str(len(value)))
            for number, item in enumerate(value):
                yield Line((Span(f" {' ' * (indent + 2)}{number}", Tone.DIM),))
                yield from _fields(item, indent + 4)
        else:
            text = ", ".join(safe(str(item), 80) for item in value)
            yield _pair(label, text or "none")
    else:
        yield _pair(label, _text(name, value))


def _text(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, int | float) and name.endswith("_bytes"):
        return f"{value / GIB:.2f} GiB ({value:,.0f} bytes)"
    if isinstance(value, float):
        return f"{value:,.2f}".rstrip("0").rstrip(".")
    return safe(str(value), 2000)


def _pair(label: str, text: str, tone: Tone = Tone.NORMAL) -> Line:
    shown = fit(label, max(_LABEL_WIDTH, len(label)))
    return Line((Span(f" {shown} ", Tone.DIM), Span(text, tone)))

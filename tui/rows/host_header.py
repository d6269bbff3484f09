"""The lines above a host's tables: what machine it is and how it fares."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.cells import cell_len

from gpumon.snapshot import HostFacts, HostSnapshot, HostView
from gpumon.text import safe
from gpumon.tui.format import age, duration, gib, mebibytes, percent, reason_text
from gpumon.tui.rows.figures import Freshness, host_freshness, is_failing, is_from_before
from gpumon.tui.rows.troubles import CAUSE_WORDS, Trouble, severity_of
from gpumon.tui.tones import Line, Span, Tone, tone_of
from gpumon.tui.widgets.drawing import bar_spans, wrapped

__all__ = ["flow", "host_header"]

Item = tuple[Span, ...]
_BETWEEN = "   "
_RAM_BAR = 8
#: from this width on there is room for the kernel too
_KERNEL_FROM = 100


def flow(items: Iterable[Item], width: int) -> list[Line]:
    """Items side by side, on as many lines as they take; none is torn apart."""
    lines: list[list[Span]] = []
    used = 0
    for item in items:
        size = sum(cell_len(span.text) for span in item)
        if lines and used + len(_BETWEEN) + size <= width - 1:
            lines[-1] += [Span(_BETWEEN), *item]
            used += len(_BETWEEN) + size
        else:
            lines.append([Span(" "), *item])
            used = 1 + size
    return [Line(tuple(spans)) for spans in lines]


def host_header(view: HostView, found: Sequence[Trouble], now: float, width: int) -> list[Line]:
    """Identity, state, machine, memory, disks, probe cost; wrapped to the width."""
    identity = list(_identity(view, found, now))
    down = _down(view, width) if is_failing(view.status) else []
    snapshot = view.snapshot
    if snapshot is None:
        return flow(identity, width) + down
    items = [*_machine(snapshot, width), *_load(snapshot), *_disks(snapshot), *_cost(snapshot)]
    if host_freshness(view, now) is not Freshness.FRESH:
        items = [tuple(Span(span.text, Tone.DIM) for span in item) for item in items]
    if down:
        return flow(identity, width) + down + flow(items, width)
    return flow([*identity, *items], width)


def _labelled(label: str, text: str, tone: Tone = Tone.NORMAL) -> Item:
    return (Span(f"{label} ", Tone.DIM), Span(text, tone))


def _identity(view: HostView, found: Sequence[Trouble], now: float) -> Iterable[Item]:
    severity = severity_of(view, list(found))
    word = view.status.state.value
    if any(trouble.key == "stale" for trouble in found):
        word = "STALE"
    state_tone = Tone.NORMAL if word == "up" else tone_of(severity)
    yield (
        Span(severity.glyph, tone_of(severity)),
        Span(" "),
        Span(safe(view.host, 60), Tone.TITLE),
    )
    if view.address:
        yield (Span(safe(view.address, 80)),)
    yield _labelled("state", word, state_tone)
    years = view.age_s(now)
    if years is not None:
        yield _labelled("age", duration(years) if years >= 100 else age(years))
    snapshot = view.snapshot
    if snapshot is not None and snapshot.facts.container:
        yield _labelled("in", safe(snapshot.facts.container, 40))
    if view.simulated:
        yield (Span("SIMULATED", Tone.WARN),)
    if is_from_before(view):
        yield (Span("stored values", Tone.WARN),)


def _down(view: HostView, width: int) -> list[Line]:
    status = view.status
    said = (status.detail or CAUSE_WORDS[status.cause]).removeprefix(f"{view.host}: ")
    detail = safe(said, 400)
    lines = wrapped(Line((Span(" "), Span(detail, Tone.WARN))), width)
    if status.fix:
        fix = Line((Span(" fix ", Tone.DIM), Span(safe(status.fix, 400), Tone.KEY)))
        lines += wrapped(fix, width)
    return lines


def _machine(snapshot: HostSnapshot, width: int) -> Iterable[Item]:
    facts: HostFacts = snapshot.facts
    nvml = snapshot.nvml
    yield (Span(_said(facts.os, 60)),)
    if width >= _KERNEL_FROM:
        yield _labelled("kernel", _said(facts.kernel, 40))
    if nvml.driver_version or snapshot.gpus:
        cuda = f" · CUDA {safe(nvml.cuda_version, 12)}" if nvml.cuda_version else ""
        yield _labelled("driver", f"{_said(nvml.driver_version, 24)}{cuda}")
    uptime = snapshot.system.uptime_s
    yield _labelled("up", "n/a" if uptime is None else duration(uptime))


def _load(snapshot: HostSnapshot) -> Iterable[Item]:
    system, facts = snapshot.system, snapshot.facts
    cpu = "n/a" if system.cpu_percent is None else percent(system.cpu_percent)
    count = "" if facts.cpu_count is None else f"{facts.cpu_count} × "
    model = "" if facts.cpu_model is None else safe(facts.cpu_model, 48)
    yield (Span("CPU ", Tone.DIM), Span(cpu), Span(f" of {count}{model}".rstrip(" ×"), Tone.DIM))
    loads = [system.load_1, system.load_5, system.load_15]
    yield _labelled("load", " ".join("n/a" if load is None else f"{load:.1f}" for load in loads))
    used, total = system.memory_used_bytes, system.memory_total_bytes
    if used is None or not total:
        why = reason_text(system.unknown.get("memory_available_bytes"))
        yield _labelled("RAM", f"n/a ({why})")
    else:
        yield (
            Span("RAM ", Tone.DIM), *bar_spans(used / total, _RAM_BAR),
            Span(f" {gib(used)}/{gib(total)}"), Span(" GiB", Tone.DIM),
        )  # fmt: skip
    if system.swap_total_bytes and system.swap_used_bytes:
        yield (
            Span("swap ", Tone.DIM),
            Span(f"{gib(system.swap_used_bytes)}/{gib(system.swap_total_bytes)}"),
            Span(" GiB", Tone.DIM),
        )


def _disks(snapshot: HostSnapshot) -> Iterable[Item]:
    for disk in snapshot.system.disks:
        free = "n/a" if disk.free_bytes is None else gib(disk.free_bytes)
        total = "n/a" if disk.total_bytes is None else gib(disk.total_bytes)
        yield (
            Span("disk ", Tone.DIM),
            Span(f"{safe(disk.path, 40)} {free}"),
            Span(f" of {total} GiB free", Tone.DIM),
        )


def _cost(snapshot: HostSnapshot) -> Iterable[Item]:
    probe = snapshot.probe
    cpu = "n/a" if probe.cpu_percent is None else f"{probe.cpu_percent:.1f} % CPU"
    memory = "n/a" if probe.rss_bytes is None else mebibytes(probe.rss_bytes)
    took = "n/a" if probe.sample_ms is None else f"{probe.sample_ms:.0f} ms"
    yield _labelled("probe", f"{cpu} · {memory} · {took}")
    if snapshot.source != "python":
        yield (Span(f"by {safe(snapshot.source, 20)}", Tone.WARN),)


def _said(text: str | None, limit: int) -> str:
    return "n/a" if not text else safe(text, limit)

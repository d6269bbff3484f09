"""The fleet: one row a host, and the totals above them."""

from __future__ import annotations

from collections.abc import Sequence

from gpumon.placement import shown_processor
from gpumon.snapshot import HostSnapshot, HostState, HostView
from gpumon.text import safe
from gpumon.tui.format import age, at_least, gib, percent, rate, watts
from gpumon.tui.rows.cell import ABSENT, Cell, Row, unknown
from gpumon.tui.rows.figures import (
    Freshness,
    Sum,
    add_up,
    cards,
    decode_rate,
    failing_word,
    gpu_reason,
    gpus_freshness,
    host_freshness,
    is_failing,
    is_from_before,
    kv_capacity,
    kv_used,
    levels,
    loaded_models,
    utilisation,
)
from gpumon.tui.rows.troubles import CAUSE_WORDS, Trouble, severity_of
from gpumon.tui.tones import Severity, Span, Tone, tone_of
from gpumon.tui.widgets.columns import Column, Content

__all__ = ["FLEET_COLUMNS", "fleet_row", "host_power", "host_rate", "host_vram"]

FLEET_COLUMNS = (
    Column("host", "HOST", Content.NAME, least=10, usual=20),
    Column("age", "AGE", Content.AGE),
    Column("gpus", "GPUS", Content.COUNT),
    Column("util", "UTIL", Content.BAR_PERCENT, comfort=14),
    Column(
        "vram", "VRAM used/total GiB", Content.BAR_PAIR,
        short="VRAM GiB", least=14, comfort=16, usual=21, figure=8,
    ),
    Column("models", "MODELS", Content.TEXT, usual=18, stretches=True),
    Column("decode", "tok/s", Content.RATE, gives_way=1),
    Column("kv", "KV", Content.PERCENT, gives_way=2),
    Column("power", "W", Content.NUMBER, gives_way=3),
)  # fmt: skip
_MODELS_AT = 5
_UTIL_AT = 3


def fleet_row(view: HostView, found: Sequence[Trouble], now: float) -> Row:
    """A host's row, with the word for the worst of its troubles."""
    severity = severity_of(view, list(found))
    name = Cell(
        safe(view.host, 60), Tone.STRONG, sort=view.host,
        lead=severity.glyph, lead_tone=tone_of(severity),
    )  # fmt: skip
    words = " ".join((safe(view.address or "", 80), severity.value, view.status.state.value))
    snapshot = view.snapshot
    if snapshot is None:
        return Row(
            view.host, (name, Cell("-", Tone.DIM), *(ABSENT,) * 7),
            note_at=_UTIL_AT, note=_never_seen(view, found),
            words=words, remark=found[0].text if found else "",
        )  # fmt: skip
    fresh = host_freshness(view, now)
    old_gpus = gpus_freshness(view, now) in (Freshness.LATE, Freshness.STALE)
    years = view.age_s(now) or 0.0
    tone = Tone.NORMAL if fresh is Freshness.FRESH else Tone.WARN
    on_cpu = not snapshot.gpus
    cells = (
        name,
        Cell(age(years), tone, sort=years),
        ABSENT if on_cpu else Cell(str(len(cards(snapshot))), sort=len(cards(snapshot))),
        _cpu(snapshot) if on_cpu else _util(snapshot, old_gpus),
        _ram(snapshot) if on_cpu else _vram(snapshot, old_gpus),
        _models(view, snapshot, found, now),
        _rate(host_rate(snapshot)),
        _kv(snapshot),
        ABSENT if on_cpu else _power(snapshot, old_gpus),
    )
    return Row(
        view.host, cells, faded=fresh is not Freshness.FRESH or is_from_before(view),
        words=words, remark=found[0].text if found else _machine_text(view, snapshot),
    )  # fmt: skip


def _machine_text(view: HostView, snapshot: HostSnapshot) -> str:
    """Where and what a host is that has no trouble to tell of."""
    facts, driver = snapshot.facts, snapshot.nvml.driver_version
    parts = (
        view.address,
        facts.os,
        f"driver {driver}" if driver else None,
        facts.cpu_model,
    )
    return " · ".join(safe(part, 60) for part in parts if part)


def host_vram(snapshot: HostSnapshot) -> tuple[Sum, Sum]:
    """Used and total bytes of GPU memory; the system's where a card has none of its own."""
    system = snapshot.system
    parts = []
    for gpu in cards(snapshot):
        used, total = gpu.memory_used_bytes, gpu.memory_total_bytes
        if gpu.unified_memory and total is None:
            used, total = system.memory_used_bytes, system.memory_total_bytes
        parts.append(
            (
                (used, gpu_reason(gpu, "memory_used_bytes")),
                (total, gpu_reason(gpu, "memory_total_bytes")),
            )
        )
    return add_up(used for used, _ in parts), add_up(total for _, total in parts)


def host_power(snapshot: HostSnapshot) -> Sum:
    """Watts over all cards."""
    return add_up((gpu.power_w, gpu_reason(gpu, "power_w")) for gpu in cards(snapshot))


def host_rate(snapshot: HostSnapshot) -> Sum | None:
    """Tokens generated a second over all models; None where no model is loaded."""
    models = [model for _, model in loaded_models(snapshot) if not model.remote]
    if not models:
        return None
    sums = [decode_rate(model) for model in models]
    return add_up((each.value, each.reason or "no-data") for each in sums)


def _never_seen(view: HostView, found: Sequence[Trouble]) -> tuple[Span, ...]:
    status = view.status
    if status.state is HostState.DISABLED:
        return (Span("disabled in the configuration", Tone.DIM),)
    if not found:
        tries = "" if status.attempts <= 1 else f", try {status.attempts}"
        return (Span(f"connecting{tries}", Tone.DIM),)
    word = Span(f"{failing_word(status)} ", Tone.WARN)
    said = (Span("f", Tone.KEY), Span(" fix  ", Tone.DIM)) if status.fix else ()
    return (word, *said, Span(found[0].text))


def _util(snapshot: HostSnapshot, old: bool) -> Cell:
    gpus = cards(snapshot)
    mean = utilisation(gpus)
    if mean.value is None:
        return Cell("n/a", Tone.UNKNOWN, reason=mean.reason, levels=levels(gpus), faded=old)
    return Cell(
        percent(mean.value), sort=mean.value, levels=levels(gpus), faded=old, reason=mean.reason
    )


def _cpu(snapshot: HostSnapshot) -> Cell:
    value = snapshot.system.cpu_percent
    if value is None:
        return unknown(snapshot.system.unknown.get("cpu_percent"))
    return Cell(percent(value), sort=value, lead="cpu", bar=value / 100)


def _vram(snapshot: HostSnapshot, old: bool) -> Cell:
    used, total = host_vram(snapshot)
    if used.value is None or not total.value:
        return unknown(used.reason or total.reason)
    text = at_least(f"{gib(used.value)}/{gib(total.value)}", used.complete and total.complete)
    unified = any(gpu.unified_memory for gpu in cards(snapshot))
    return Cell(
        text, sort=used.value, bar=used.value / total.value, faded=old,
        lead="UMA" if unified else "", reason=used.reason or total.reason,
    )  # fmt: skip


def _ram(snapshot: HostSnapshot) -> Cell:
    system = snapshot.system
    used, total = system.memory_used_bytes, system.memory_total_bytes
    if used is None or not total:
        return unknown(system.unknown.get("memory_available_bytes"))
    return Cell(f"{gib(used)}/{gib(total)}", sort=used, lead="RAM", bar=used / total)


def _power(snapshot: HostSnapshot, old: bool) -> Cell:
    power = host_power(snapshot)
    if power.value is None:
        return unknown(power.reason)
    text = at_least(watts(power.value), power.complete)
    return Cell(text, sort=power.value, faded=old, reason=power.reason)


def _rate(total: Sum | None) -> Cell:
    if total is None:
        return ABSENT
    if total.value is None:
        return unknown(total.reason)
    return Cell(at_least(rate(total.value), total.complete), sort=total.value, reason=total.reason)


def _kv(snapshot: HostSnapshot) -> Cell:
    models = [model for _, model in loaded_models(snapshot) if not model.remote]
    if not models:
        return ABSENT
    used = add_up((kv_used(m).value, kv_used(m).reason or "no-data") for m in models)
    room = add_up((kv_capacity(m), "no-data") for m in models)
    if used.value is None or not room.value:
        return unknown(used.reason or room.reason)
    share = 100 * used.value / room.value
    return Cell(percent(share), sort=share, reason=used.reason or room.reason)


def _models(view: HostView, snapshot: HostSnapshot, found: Sequence[Trouble], now: float) -> Cell:
    """Count, names and placement; before them the word for what is wrong with the host."""
    text, shorter, loaded = _model_texts(snapshot)
    lead = ""
    if is_failing(view.status):
        lead = f"{failing_word(view.status)} {CAUSE_WORDS[view.status.cause]}"
    elif is_from_before(view):
        lead = "stored"
    elif any(trouble.key == "stale" for trouble in found):
        lead = f"STALE {age(view.age_s(now) or 0)}"
    elif found and found[0].severity is Severity.CRIT:
        lead = found[0].word
        hung_s = snapshot.nvml.hung_s
        if found[0].key == "driver" and hung_s is not None:
            lead += f" {age(hung_s + (view.age_s(now) or 0))}"
    if not lead:
        return Cell(text, sort=loaded, shorter=shorter)
    tone = tone_of(found[0].severity) if found else Tone.DIM
    if tone is Tone.CRIT:
        tone = Tone.WARN
    if not loaded:
        text, shorter = "", ()
    else:
        shorter = (*shorter, f"{loaded:.0f} loaded", f"{loaded:.0f}")
    return Cell(text, sort=loaded, shorter=shorter, lead=f"{lead} ", lead_tone=tone)


def _model_texts(snapshot: HostSnapshot) -> tuple[str, tuple[str, ...], float]:
    models = loaded_models(snapshot)
    if not models:
        silent = "no model loaded" if snapshot.engines else "no engine found"
        return f"0  {silent}", (silent,), 0.0
    names = [safe(model.name, 60) for _, model in models]
    count = len(models)
    if count == 1:
        model = models[0][1]
        where = "remote" if model.remote else shown_processor(model)
        if where == "n/a":
            return f"1  {names[0]}", (), 1.0
        whole = f"1  {names[0]}  {where}"
        if where == "100% GPU":
            return whole, (f"1  {names[0]}",), 1.0
        # Where it runs matters more than the end of its name.
        cut = tuple(f"1  {safe(names[0], most)}  {where}" for most in (30, 24, 20, 16, 12))
        return whole, (*cut, f"1  {names[0]}"), 1.0
    texts = [f"{count}  {', '.join(names)}"]
    texts += [
        f"{count}  {', '.join(names[:kept])} +{count - kept}" for kept in range(count - 1, 0, -1)
    ]
    return texts[0], tuple(texts[1:]), float(count)

"""The loaded models of a host: the engine's claim beside the driver's reading."""

from __future__ import annotations

from gpumon.placement import Placement, place, shown_processor, size_text, until_text
from gpumon.snapshot import Engine, HostSnapshot, HostView, Model
from gpumon.text import safe
from gpumon.tui.format import GIB, at_least, count, percent, rate, reason_of
from gpumon.tui.rows.cell import ABSENT, Cell, Row, unknown
from gpumon.tui.rows.engines import engine_name
from gpumon.tui.rows.figures import (
    Freshness,
    decode_rate,
    host_freshness,
    kv_capacity,
    kv_used,
    loaded_models,
)
from gpumon.tui.rows.gpus import gpu_label
from gpumon.tui.tones import Severity, Tone, tone_of
from gpumon.tui.widgets.columns import Column, Content

__all__ = ["MODEL_COLUMNS", "model_rows"]

MODEL_COLUMNS = (
    Column(
        "model", "MODEL", Content.NAME, least=14, usual=26, most=70, stretches=True, names_row=True
    ),
    Column("processor", "PROCESSOR", Content.WORD, usual=15, most=16),
    Column("size", "SIZE", Content.FIGURES, least=6),
    Column("driver", "DRIVER GiB", Content.WORD, least=10, usual=14, most=40, gives_way=1),
    Column("context", "CTX x SLOTS", Content.FIGURES, short="CTX", gives_way=3),
    Column("kv", "KV used", Content.BAR_PERCENT, gives_way=2),
    Column("decode", "tok/s", Content.RATE),
    Column("until", "UNTIL", Content.WORD, usual=18, most=24, gives_way=4),
    Column("cache", "CACHE", Content.WORD, usual=6, gives_way=6),
    Column("quantization", "QUANT", Content.WORD, usual=7, gives_way=5),
    Column("engine", "ENGINE", Content.WORD, usual=14, most=24, gives_way=7),
)


def model_rows(view: HostView, now: float) -> list[Row]:
    """One row a model, the largest first."""
    snapshot = view.snapshot
    if snapshot is None:
        return []
    old = host_freshness(view, now) is not Freshness.FRESH
    return [
        _row(engine, model, snapshot, now, old=old) for engine, model in loaded_models(snapshot)
    ]


def _row(engine: Engine, model: Model, snapshot: HostSnapshot, now: float, *, old: bool) -> Row:
    name = safe(model.name, 300)
    severity = _severity(model, snapshot)
    cells = (
        Cell(name, Tone.STRONG, sort=model.name, lead=severity.glyph, lead_tone=tone_of(severity)),
        _processor(model, snapshot),
        _size(model),
        _driver(model, snapshot),
        _context(model),
        _kv(model),
        _decode(model),
        _until(model, snapshot, now),
        _cache(model),
        _said(model.quantization, model, "quantization"),
        Cell(engine_name(engine), Tone.DIM, sort=engine.kind),
    )
    key = f"{engine.kind} {engine.port or ''} {engine.pid or ''} {model.name} {model.digest or ''}"
    words = " ".join((safe(model.digest or "", 12), safe(model.family or "", 40), severity.value))
    return Row(key, cells, faded=old, words=words, remark=_remark(model, snapshot))


def _severity(model: Model, snapshot: HostSnapshot) -> Severity:
    shifted = any(slot.context_shifts for slot in (model.runner and model.runner.slots) or ())
    return (
        Severity.WARN
        if _is_off_gpu(model, snapshot) or shifted or model.cut_prompts
        else Severity.OK
    )


def _is_off_gpu(model: Model, snapshot: HostSnapshot) -> bool:
    """True where a part is on the CPU although there is a card."""
    size, vram = model.size_bytes, model.vram_bytes
    return bool(snapshot.gpus) and bool(size) and vram is not None and vram < (size or 0)


def _remark(model: Model, snapshot: HostSnapshot) -> str:
    """The driver's reading on each card beside the claim, and the tokens in the cache."""
    parts = []
    if snapshot.gpus and not model.remote:
        placement = place(model, snapshot.gpus, snapshot.processes)
        if per_gpu := _per_gpu(placement, snapshot):
            where = ", ".join(f"GPU {gpu} {size}" for gpu, size in per_gpu)
            claim = placement.claimed_vram_bytes
            claimed = "" if claim is None else f", engine {claim / GIB:.1f}"
            parts.append(f"GiB: driver {where}{claimed}")
    if used := used_tokens_text(model):
        parts.append(f"KV cache {used} tokens")
    return " · ".join(parts)


def _processor(model: Model, snapshot: HostSnapshot) -> Cell:
    if model.remote:
        return Cell("remote", Tone.DIM, sort="remote")
    if model.loading:
        return Cell("loading", Tone.DIM, sort="loading")
    text = shown_processor(model)
    if text == "n/a":
        return unknown(model.unknown.get("size_bytes", "engine-zero"))
    warn = _is_off_gpu(model, snapshot)
    return Cell(text, Tone.WARN if warn else Tone.NORMAL, sort=text)


def _size(model: Model) -> Cell:
    if not model.size_bytes:
        return ABSENT if model.remote else unknown(reason_of(model.unknown, "size_bytes"))
    return Cell(size_text(model.size_bytes), sort=model.size_bytes)


def _driver(model: Model, snapshot: HostSnapshot) -> Cell:
    """GiB of the runner on each card, as the driver counts them: ``0: 12.9``."""
    if not snapshot.gpus or model.remote:
        return ABSENT
    placement = place(model, snapshot.gpus, snapshot.processes)
    if placement.driver_bytes is None:
        return unknown(placement.reason)
    parts = [f"{label}: {text}" for label, text in _per_gpu(placement, snapshot)]
    if not parts:
        return Cell("none", Tone.WARN if placement.silent_fallback else Tone.DIM, sort=0.0)
    total = placement.driver_total_bytes
    brief = f"n/a on {len(parts)}" if total is None else f"{total / GIB:.1f} on {len(parts)}"
    reason = "no-permission" if placement.unmeasured else None
    return Cell("  ".join(parts), sort=total, shorter=(" ".join(parts), brief), reason=reason)


def _per_gpu(placement: Placement, snapshot: HostSnapshot) -> list[tuple[str, str]]:
    """Label and GiB of each card the runner is on; n/a where the driver keeps it back."""
    known = placement.driver_bytes or {}
    on = [gpu for gpu in snapshot.gpus if gpu.uuid in known or gpu.uuid in placement.unmeasured]
    return [
        (gpu_label(gpu), f"{known[gpu.uuid] / GIB:.1f}" if gpu.uuid in known else "n/a")
        for gpu in on
    ]


def _context(model: Model) -> Cell:
    runner = model.runner
    total = kv_capacity(model)
    if runner is not None and total is not None and runner.parallel_slots:
        slots = runner.parallel_slots
        each = total if runner.unified else total // slots
        return Cell(f"{each} x {slots}", sort=total)
    if model.context_tokens is None:
        return ABSENT if model.remote else unknown(reason_of(model.unknown, "context_tokens"))
    return Cell(str(model.context_tokens), sort=model.context_tokens)


def _kv(model: Model) -> Cell:
    if model.remote:
        return ABSENT
    used, room = kv_used(model), kv_capacity(model)
    if used.value is None or not room:
        return unknown(used.reason or "not-read")
    share = used.value / room
    return Cell(percent(100 * share), sort=used.value, bar=share, reason=used.reason)


def _decode(model: Model) -> Cell:
    if model.remote:
        return ABSENT
    speed = decode_rate(model)
    if speed.value is None:
        return unknown(speed.reason)
    return Cell(at_least(rate(speed.value), speed.complete), sort=speed.value, reason=speed.reason)


def _until(model: Model, snapshot: HostSnapshot, now: float) -> Cell:
    """As ``ollama ps`` says it, on the host's clock."""
    if model.expires_at is None:
        return (
            Cell("-", Tone.DIM) if model.remote else unknown(reason_of(model.unknown, "expires_at"))
        )
    text = until_text(model.expires_at, now + (snapshot.clock_skew_s or 0.0))
    short = text.removesuffix(" from now").replace("minutes", "min").replace("seconds", "s")
    return Cell(text, sort=model.expires_at, shorter=(short,))


def _cache(model: Model) -> Cell:
    runner = model.runner
    if runner is None or runner.cache_type_k is None:
        return ABSENT
    k, v = runner.cache_type_k, runner.cache_type_v or runner.cache_type_k
    text = safe(k if k == v else f"{k}/{v}", 14)
    return Cell(text, sort=text)


def _said(text: str | None, model: Model, field: str) -> Cell:
    if not text:
        return ABSENT if model.remote else unknown(reason_of(model.unknown, field))
    shown = safe(text, 20)
    return Cell(shown, sort=shown)


def used_tokens_text(model: Model) -> str:
    """``5,120 of 65,536`` tokens, for the detail line; '' where unknown."""
    used, room = kv_used(model), kv_capacity(model)
    if used.value is None or not room:
        return ""
    return f"{count(used.value)} of {count(room)}"

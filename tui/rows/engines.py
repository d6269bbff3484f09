"""The inference engines of a host and the settings that matter."""

from __future__ import annotations

from gpumon.snapshot import Engine, EngineState, HostView
from gpumon.text import safe
from gpumon.tui.format import age
from gpumon.tui.rows.cell import Cell, Row, unknown
from gpumon.tui.rows.figures import Freshness, host_freshness
from gpumon.tui.tones import Severity, Tone, tone_of
from gpumon.tui.widgets.columns import Column, Content

__all__ = ["ENGINE_COLUMNS", "engine_rows"]

ENGINE_COLUMNS = (
    Column("engine", "ENGINE", Content.NAME, usual=18, most=32, names_row=True),
    Column("state", "STATE", Content.WORD, usual=8),
    Column("port", "PORT", Content.NUMBER),
    Column("pid", "PID", Content.FIGURES, gives_way=2),
    Column("models", "LOADED/ON DISK", Content.FIGURES, short="MODELS"),
    Column("age", "AGE", Content.AGE, gives_way=1),
    Column("settings", "SETTINGS", Content.TEXT, stretches=True),
)

_SEVERITIES: dict[EngineState, Severity] = {
    EngineState.UP: Severity.OK,
    EngineState.ASLEEP: Severity.OK,
    EngineState.BUSY: Severity.OK,
    EngineState.LOADING: Severity.OK,
    EngineState.STARTING: Severity.UNKNOWN,
    EngineState.DOWN: Severity.WARN,
    EngineState.LOCKED: Severity.WARN,
    EngineState.CONFUSED: Severity.WARN,
}

#: Names as their makers write them.
ENGINE_NAMES = {
    "ollama": "Ollama",
    "llama_server": "llama-server",
    "llama-server": "llama-server",
    "vllm": "vLLM",
    "tgi": "TGI",
}


def engine_name(engine: Engine) -> str:
    """``Ollama 0.33.0``; only the kind where the version is unknown."""
    kind = ENGINE_NAMES.get(engine.kind, safe(engine.kind, 20))
    return f"{kind} {safe(engine.version, 20)}" if engine.version else kind


def engine_rows(view: HostView, now: float) -> list[Row]:
    """One row an engine."""
    snapshot = view.snapshot
    if snapshot is None:
        return []
    old = host_freshness(view, now) is not Freshness.FRESH
    years = view.age_s(now) or 0.0
    return [_row(engine, snapshot.monotonic_s, years, old=old) for engine in snapshot.engines]


def _row(engine: Engine, monotonic_s: float, view_age_s: float, *, old: bool) -> Row:
    severity = _SEVERITIES[engine.state]
    settings = "  ".join(
        f"{safe(name.removeprefix('OLLAMA_'), 40)}={safe(value, 60)}"
        for name, value in sorted(engine.settings.items())
    )
    name = engine_name(engine)
    detail = safe(engine.detail, 200) if engine.detail else ""
    cells = (
        Cell(name, Tone.STRONG, sort=name, lead=severity.glyph, lead_tone=tone_of(severity)),
        Cell(engine.state.value, tone_of(severity), sort=-severity.rank),
        _number(engine.port, engine, "port"),
        _number(engine.pid, engine, "pid"),
        _models(engine),
        _answered(engine, monotonic_s, view_age_s),
        Cell(
            detail or settings or "defaults", Tone.NORMAL if settings else Tone.DIM, sort=settings
        ),
    )
    key = f"{engine.kind} {engine.port or ''} {engine.pid or ''}"
    return Row(key, cells, faded=old, words=f"{engine.kind} {settings}", remark=detail or settings)


def _number(value: int | None, engine: Engine, field: str) -> Cell:
    if value is None:
        return unknown(engine.unknown.get(field, "not-read"))
    return Cell(str(value), sort=value)


def _models(engine: Engine) -> Cell:
    on_disk = "n/a" if engine.installed is None else str(len(engine.installed))
    reason = engine.unknown.get("installed", "not-read") if engine.installed is None else None
    return Cell(f"{len(engine.models)}/{on_disk}", sort=len(engine.models), reason=reason)


def _answered(engine: Engine, monotonic_s: float, view_age_s: float) -> Cell:
    """How old its newest good answer is."""
    if engine.answered_monotonic_s is None:
        return unknown("engine-silent")
    seconds = view_age_s + max(0.0, monotonic_s - engine.answered_monotonic_s)
    return Cell(age(seconds), sort=seconds)

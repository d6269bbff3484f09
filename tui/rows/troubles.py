"""What is wrong on a host now, each with its next step.

Only what a snapshot itself shows: no history, no price, no acknowledging.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from gpumon.placement import place, processor_text
from gpumon.snapshot import (
    Cause,
    Engine,
    EngineState,
    Gpu,
    GpuState,
    HostSnapshot,
    HostState,
    HostView,
    Model,
    NvmlState,
)
from gpumon.text import safe
from gpumon.tui.format import clock, duration
from gpumon.tui.rows.figures import (
    Freshness,
    gpus_age_s,
    host_freshness,
    is_failing,
    is_from_before,
)
from gpumon.tui.tones import Severity

__all__ = ["CAUSE_WORDS", "Trouble", "severity_of", "troubles"]

#: What a cause is called where there is room for a few words only.
CAUSE_WORDS: dict[Cause, str] = {
    Cause.NONE: "no cause known",
    Cause.KEY_UNKNOWN: "host key unknown",
    Cause.KEY_CHANGED: "host key changed",
    Cause.KEY_REVOKED: "host key revoked",
    Cause.PERMISSION_DENIED: "permission denied",
    Cause.REFUSED: "connection refused",
    Cause.TIMED_OUT: "timed out",
    Cause.UNREACHABLE: "unreachable",
    Cause.NAME_NOT_FOUND: "name not found",
    Cause.JUMP_FAILED: "jump host failed",
    Cause.SHELL_REFUSED: "shell refused",
    Cause.NO_PYTHON: "no python3",
    Cause.PROBE_DIED: "probe died",
    Cause.SILENT: "silent",
    Cause.CONNECTION_LOST: "connection lost",
    Cause.PROTOCOL: "answers make no sense",
    Cause.CONFIG: "configuration",
}

_DRIVER_TROUBLES: dict[NvmlState, str] = {
    NvmlState.NO_DRIVER: "an NVIDIA card without a driver: install it, or load its module",
    NvmlState.NOUVEAU: "nouveau drives the NVIDIA card, which tells nothing: install NVIDIA's",
    NvmlState.MISMATCH: "driver module and library differ: reboot, or reload the module",
    NvmlState.LIBRARY_MISSING: "libnvidia-ml.so.1 is missing: install the driver's utilities",
    NvmlState.NO_PERMISSION: "no permission on /dev/nvidia*: join its group",
    NvmlState.ERROR: "the driver answers with an error",
}


@dataclass(frozen=True, slots=True)
class Trouble:
    """One thing that is wrong. ``key`` is steady while it lasts."""

    key: str
    severity: Severity
    host: str
    #: one or two words for the host's row
    word: str
    #: one line, already safe, with the next step
    text: str
    #: UTC epoch seconds where known
    since: float | None = None

    def dated(self, since: float) -> Trouble:
        """The same, with the time it began."""
        return replace(self, since=since)


def severity_of(view: HostView, found: list[Trouble]) -> Severity:
    """The worst of a host's troubles; unknown while nothing is known of it."""
    if found:
        return max((trouble.severity for trouble in found), key=lambda s: s.rank)
    if view.snapshot is None or view.status.state is HostState.DISABLED or is_from_before(view):
        return Severity.UNKNOWN
    return Severity.OK


def troubles(view: HostView, now: float) -> list[Trouble]:
    """All troubles of a host, worst first. What a lost host said last is not repeated."""
    found = list(_connection(view, now))
    if not found and view.snapshot is not None and not is_from_before(view):
        found = list(_stale(view, now))
        found += _driver(view, view.snapshot, now)
        for gpu in view.snapshot.gpus:
            found += _gpu(view.host, gpu)
        for engine in view.snapshot.engines:
            found += _engine(view.host, engine)
            for model in engine.models:
                found += _model(view.host, view.snapshot, engine, model)
    return sorted(found, key=lambda trouble: -trouble.severity.rank)


def _connection(view: HostView, now: float) -> Iterator[Trouble]:
    status = view.status
    if not is_failing(status):
        return
    words = CAUSE_WORDS[status.cause]
    # The row names the host already.
    said = (status.detail or words).removeprefix(f"{view.host}: ")
    text = safe(said, 300)
    if status.state is HostState.DOWN and status.retry_at is not None:
        text += f"; next try in {duration(max(0.0, status.retry_at - now))}"
    elif status.state is HostState.CONNECTING:
        text += "; trying again now"
    yield Trouble("connection", Severity.CRIT, view.host, words, text, since=status.since or None)


def _stale(view: HostView, now: float) -> Iterator[Trouble]:
    age = view.age_s(now)
    if host_freshness(view, now) is not Freshness.STALE or age is None:
        return
    said = f"no sample since {clock(now - age)}; gpumon reconnects by itself"
    yield Trouble("stale", Severity.WARN, view.host, "stale", said, since=now - age)


def _driver(view: HostView, snapshot: HostSnapshot, now: float) -> Iterator[Trouble]:
    nvml = snapshot.nvml
    if nvml.state is NvmlState.HUNG:
        age = gpus_age_s(view, now)
        hung = nvml.hung_s if nvml.hung_s is not None else age
        since = None if hung is None else now - hung
        when = "" if since is None else f" since {clock(since)}"
        call = f" in {safe(nvml.hung_call, 40)}" if nvml.hung_call else ""
        old = "" if age is None else f"; GPU figures are {duration(age)} old"
        step = "; dmesg shows the Xid, a reboot settles it"
        yield Trouble(
            "driver", Severity.CRIT, view.host, "driver hung",
            f"driver hung{when}{call}{old}{step}", since,
        )  # fmt: skip
    elif nvml.state in _DRIVER_TROUBLES:
        detail = f" ({safe(nvml.detail, 80)})" if nvml.detail else ""
        yield Trouble(
            "driver", Severity.WARN, view.host, "driver",
            _DRIVER_TROUBLES[nvml.state] + detail,
        )  # fmt: skip


def _gpu(host: str, gpu: Gpu) -> Iterator[Trouble]:
    name = f"GPU {gpu.index if gpu.index is not None else safe(gpu.pci_id or gpu.uuid, 20)}"
    key = f"gpu {gpu.uuid}"
    said = (gpu.detail or "").removeprefix("fell off the bus: ")
    detail = f" ({safe(said, 60)})" if said else ""
    if gpu.state is GpuState.LOST:
        text = f"{name} fell off the bus{detail}; dmesg shows the Xid, reset or reboot"
        yield Trouble(key, Severity.CRIT, host, f"{name} lost", text)
    elif gpu.state is GpuState.RESET_REQUIRED:
        text = f"{name} needs a reset{detail}: nvidia-smi -r once nothing uses it"
        yield Trouble(key, Severity.CRIT, host, f"{name} reset", text)
    elif gpu.state is GpuState.ERROR:
        yield Trouble(key, Severity.WARN, host, f"{name} error", f"{name} cannot be read{detail}")
    if gpu.row_remap_failed:
        text = f"{name}: a memory row could not be remapped; the card should be replaced"
        yield Trouble(f"{key} remap", Severity.CRIT, host, f"{name} memory", text)
    if any("thermal" in reason for reason in gpu.throttle_reasons or ()):
        heat = "" if gpu.temperature_c is None else f" at {gpu.temperature_c:.0f} °C"
        text = f"{name} is slowed by heat{heat}; look at fans and inlet air"
        yield Trouble(f"{key} heat", Severity.WARN, host, f"{name} hot", text)


_ENGINE_TROUBLES: dict[EngineState, str] = {
    EngineState.DOWN: "does not answer",
    EngineState.LOCKED: "wants a key: name its variable as key_env in the configuration",
    EngineState.CONFUSED: "answers in a way that could not be understood",
}


def _engine(host: str, engine: Engine) -> Iterator[Trouble]:
    if engine.state not in _ENGINE_TROUBLES:
        return
    where = f" on port {engine.port}" if engine.port is not None else ""
    detail = f" ({safe(engine.detail, 120)})" if engine.detail else ""
    name = safe(engine.kind, 20)
    yield Trouble(
        f"engine {engine.kind} {engine.port or engine.pid}", Severity.WARN, host,
        f"{name} {engine.state.value}", f"{name}{where} {_ENGINE_TROUBLES[engine.state]}{detail}",
    )  # fmt: skip


def _model(host: str, snapshot: HostSnapshot, engine: Engine, model: Model) -> Iterator[Trouble]:
    name = safe(model.name, 48)
    key = f"model {engine.kind} {engine.port or engine.pid} {model.name}"
    size, vram = model.size_bytes, model.vram_bytes
    has_gpu = any(gpu.state is GpuState.OK for gpu in snapshot.gpus)
    if has_gpu and size and vram is not None and vram < size and not model.loading:
        split = processor_text(size, vram)
        text = f"{name} runs {split}: a smaller context or cache type may bring it back to the GPU"
        yield Trouble(f"{key} cpu", Severity.WARN, host, "on CPU", text)
    if has_gpu and not model.loading and _is_not_there(snapshot, model):
        text = f"{name} is on a GPU, says the engine; the driver sees none of it: look at its log"
        yield Trouble(f"{key} absent", Severity.WARN, host, "not on GPU", text)
    if model.runner is not None and model.runner.slots:
        shifts = sum(slot.context_shifts for slot in model.runner.slots)
        if shifts:
            times = "once" if shifts == 1 else f"{shifts} times"
            text = f"{name} shifted its context {times}: it forgot its oldest tokens; raise num_ctx"
            yield Trouble(f"{key} shift", Severity.WARN, host, "ctx shift", text)
    if model.cut_prompts:
        times = "a prompt" if model.cut_prompts == 1 else f"{model.cut_prompts} prompts"
        text = f"{name} cut {times} to its context without telling; raise num_ctx"
        yield Trouble(f"{key} cut", Severity.WARN, host, "cut prompt", text)


def _is_not_there(snapshot: HostSnapshot, model: Model) -> bool:
    return place(model, snapshot.gpus, snapshot.processes).silent_fallback

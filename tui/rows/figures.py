"""Sums over a host, with what is unknown kept apart from zero."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from gpumon.snapshot import (
    Cause,
    Engine,
    Gpu,
    GpuState,
    HostSnapshot,
    HostState,
    HostStatus,
    HostView,
    Model,
    NvmlState,
    Slot,
    SlotActivity,
)
from gpumon.tui.format import reason_of

__all__ = [
    "Freshness",
    "Sum",
    "add_up",
    "cards",
    "decode_rate",
    "failing_word",
    "freshness",
    "gpus_age_s",
    "gpus_freshness",
    "host_freshness",
    "is_failing",
    "is_from_before",
    "kv_capacity",
    "kv_used",
    "levels",
    "loaded_models",
    "utilisation",
]

#: intervals without a sample after which values are dim, and after which they are stale;
#: as many seconds at least
LATE_AFTER = 2
STALE_AFTER = 3


class Freshness(StrEnum):
    """How far a value may be trusted to be of now."""

    FRESH = "fresh"
    LATE = "late"
    STALE = "stale"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class Sum:
    """A sum; None where no part is known, not ``complete`` where some are not."""

    value: float | None
    complete: bool = True
    #: reason code of the first unknown part
    reason: str | None = None


def add_up(parts: Iterable[tuple[float | None, str]]) -> Sum:
    """Sum of values, each with the reason it would be unknown for."""
    total = 0.0
    known = 0
    reason: str | None = None
    for value, why in parts:
        if value is None:
            reason = reason or why
        else:
            total += value
            known += 1
    return Sum(total if known else None, reason is None, reason)


def freshness(age_s: float | None, interval_s: float) -> Freshness:
    """More than two intervals: late; more than three: stale."""
    if age_s is None:
        return Freshness.NEVER
    interval_s = max(interval_s, 1.0)
    if age_s > STALE_AFTER * interval_s:
        return Freshness.STALE
    return Freshness.LATE if age_s > LATE_AFTER * interval_s else Freshness.FRESH


def is_failing(status: HostStatus) -> bool:
    """True where the host is not reached, also while the next try is under way."""
    if status.state is HostState.CONNECTING:
        return status.cause is not Cause.NONE
    return status.state in (HostState.DOWN, HostState.BLOCKED)


def failing_word(status: HostStatus) -> str:
    """``DOWN``, or ``BLOCKED`` where trying again would not mend it."""
    return "BLOCKED" if status.state is HostState.BLOCKED else "DOWN"


def is_from_before(view: HostView) -> bool:
    """True where the values are of an earlier run and the host was not reached yet."""
    return view.stored and view.status.state is HostState.CONNECTING


def host_freshness(view: HostView, now: float) -> Freshness:
    """Of all that a host said; stale as well where its connection is known to be gone."""
    if view.snapshot is None:
        return Freshness.NEVER
    if view.status.state is HostState.STALE or is_failing(view.status):
        return Freshness.STALE
    return freshness(view.age_s(now), view.snapshot.interval_s)


def gpus_age_s(view: HostView, now: float) -> float | None:
    """Age of the GPU readings, which a hung driver makes older than the host's."""
    snapshot, age = view.snapshot, view.age_s(now)
    if snapshot is None or age is None or snapshot.gpus_monotonic_s is None:
        return None
    return age + max(0.0, snapshot.monotonic_s - snapshot.gpus_monotonic_s)


def gpus_freshness(view: HostView, now: float) -> Freshness:
    """Of the GPU readings alone. Stale at once when the driver is known to hang."""
    snapshot = view.snapshot
    if snapshot is None or (snapshot.gpus and snapshot.gpus_monotonic_s is None):
        return Freshness.NEVER if snapshot is None else host_freshness(view, now)
    if snapshot.nvml.state is NvmlState.HUNG:
        return Freshness.STALE
    if not snapshot.gpus:
        return host_freshness(view, now)
    readings = freshness(gpus_age_s(view, now), snapshot.interval_s)
    return max(host_freshness(view, now), readings, key=tuple(Freshness).index)


def cards(snapshot: HostSnapshot) -> list[Gpu]:
    """The cards without their MIG slices, which would be counted twice."""
    return [gpu for gpu in snapshot.gpus if gpu.parent_uuid is None]


def gpu_reason(gpu: Gpu, field: str) -> str:
    """Why a field of a card is unknown: its own reason, else the card's state."""
    if field in gpu.unknown:
        return gpu.unknown[field]
    states = {GpuState.LOST: "lost", GpuState.RESET_REQUIRED: "reset-required"}
    if gpu.state is GpuState.ASLEEP:
        return "asleep"
    return states.get(gpu.state, "no-reading")


def utilisation(gpus: Sequence[Gpu]) -> Sum:
    """Mean of the known utilisations, percent."""
    known = [gpu.util_percent for gpu in gpus if gpu.util_percent is not None]
    lacking = next((gpu_reason(g, "util_percent") for g in gpus if g.util_percent is None), None)
    if not known:
        return Sum(None, False, lacking)
    return Sum(sum(known) / len(known), lacking is None, lacking)


def levels(gpus: Sequence[Gpu]) -> tuple[float | str, ...]:
    """One level a card: its utilisation as a share, ``X`` for lost, ``?`` for unknown."""
    return tuple(
        "X"
        if gpu.state in (GpuState.LOST, GpuState.RESET_REQUIRED)
        else "?"
        if gpu.util_percent is None
        else gpu.util_percent / 100
        for gpu in gpus
    )


def loaded_models(snapshot: HostSnapshot) -> list[tuple[Engine, Model]]:
    """Every model of every engine, the largest first."""
    pairs = [(engine, model) for engine in snapshot.engines for model in engine.models]
    return sorted(pairs, key=lambda pair: -(pair[1].size_bytes or 0))


def _slots(model: Model) -> tuple[tuple[Slot, ...] | None, str]:
    """The slots, or None and the reason."""
    if model.runner is None:
        return None, reason_of(model.unknown, "runner")
    if model.runner.slots is None:
        return None, reason_of(model.runner.unknown, "slots")
    return model.runner.slots, "no-data"


def decode_rate(model: Model) -> Sum:
    """Tokens generated a second over all slots; an idle slot generates 0."""
    slots, why = _slots(model)
    if slots is None:
        return Sum(None, False, why)
    return add_up(
        (0.0 if s.activity is SlotActivity.IDLE else s.decode_tokens_per_s, "no-data")
        for s in slots
    )


def kv_used(model: Model) -> Sum:
    """Tokens now held in the KV cache over all slots."""
    slots, why = _slots(model)
    if slots is None:
        return Sum(None, False, why)
    return add_up((slot.used_tokens, "no-data") for slot in slots)


def kv_capacity(model: Model) -> int | None:
    """Tokens the KV cache is reserved for, over all slots."""
    runner = model.runner
    if runner is None:
        return None
    if runner.context_total_tokens is not None:
        return runner.context_total_tokens
    if runner.slots:
        sizes = [slot.context_tokens for slot in runner.slots]
        known = [size for size in sizes if size is not None]
        if len(known) == len(sizes):
            return max(known) if runner.unified else sum(known)
    return None

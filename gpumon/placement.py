"""Where a model's bytes are: the engine's claim beside the driver's reading.

The texts are those of ``ollama ps`` (``cmd/cmd.go`` ListRunningHandler, ``format/bytes.go``,
``format/time.go`` of Ollama 0.33), so that the two can be laid side by side.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gpumon.snapshot import Gpu, GpuProcess, Model

__all__ = [
    "Placement",
    "place",
    "processor_text",
    "shown_processor",
    "size_text",
    "until_text",
]

_UNITS = ((1000**4, "TB"), (1000**3, "GB"), (1000**2, "MB"), (1000, "KB"))


def _round_half_away(value: float) -> int:
    """Go's ``math.Round`` for positive numbers; Python's rounds halves to even."""
    whole = math.floor(value)
    return whole + (value - whole >= 0.5)


def processor_text(size_bytes: int, vram_bytes: int) -> str:
    """What ``ollama ps`` prints under PROCESSOR for these two claims.

    The shares are of bytes, neither of layers nor of work.
    """
    if vram_bytes == 0:
        return "100% CPU"
    if vram_bytes == size_bytes:
        return "100% GPU"
    if vram_bytes > size_bytes or size_bytes == 0:
        return "Unknown"
    cpu = _round_half_away((size_bytes - vram_bytes) / size_bytes * 100)
    return f"{cpu}%/{100 - cpu}% CPU/GPU"


def shown_processor(model: Model) -> str:
    """``processor_text`` of a model, ``n/a`` where the engine's claim can't be believed.

    A loaded model of size 0 is unknown (seen where llama-server's buffer lines could not
    be matched), never "100% CPU".
    """
    if not model.size_bytes or model.vram_bytes is None:
        return "n/a"
    return processor_text(model.size_bytes, model.vram_bytes)


def size_text(size_bytes: int) -> str:
    """What ``ollama ps`` prints under SIZE: decimal units, 1 MB = 1,000,000 bytes."""
    for unit_bytes, unit in _UNITS:
        if size_bytes >= unit_bytes:
            value = size_bytes / unit_bytes
            if value >= 10 or value == int(value):
                return f"{int(value)} {unit}"
            return f"{value:.1f} {unit}"
    return f"{size_bytes} B"


def until_text(expires_at: float, now: float) -> str:
    """What ``ollama ps`` prints under UNTIL. Both are epoch seconds of the same clock.

    "Stopping..." also stands for a model that works on past its deadline: Ollama moves the
    deadline only when a request ends.
    """
    left_s = expires_at - now
    if left_s < 0:
        return "Stopping..."
    if int(left_s / 3600) // 24 // 365 > 20:
        return "Forever"
    return f"{_duration_text(left_s)} from now"


def _duration_text(duration_s: float) -> str:
    seconds = int(duration_s)
    if seconds < 1:
        return "Less than a second"
    if seconds < 60:
        return "1 second" if seconds == 1 else f"{seconds} seconds"
    minutes = seconds // 60
    if minutes < 60:
        return "About a minute" if minutes == 1 else f"{minutes} minutes"
    hours = _round_half_away(duration_s / 3600)
    if hours < 48:
        return "About an hour" if hours == 1 else f"{hours} hours"
    for limit, unit_hours, unit in (
        (24 * 14, 24, "days"),
        (24 * 60, 24 * 7, "weeks"),
        (24 * 730, 24 * 30, "months"),
    ):
        if hours < limit:
            return f"{hours // unit_hours} {unit}"
    # Of the hours begun, not of the rounded ones: 730 days less a second are "1 years"
    # (format/time.go up to 0.33; pull request 17827 would change it).
    return f"{int(duration_s / 3600) // 24 // 365} years"


@dataclass(frozen=True, slots=True)
class Placement:
    """One model: what its engine claims and what the driver reads of its process.

    All in bytes; None = unknown. ``driver_bytes`` maps the UUID of each card (or MIG slice)
    on which the runner's process holds memory to how much; empty = the driver lists
    processes and this one is not among them.
    """

    claimed_vram_bytes: int | None
    claimed_host_bytes: int | None
    driver_bytes: Mapping[str, int] | None = None
    #: cards on which the process is, but the driver does not say with how much
    unmeasured: tuple[str, ...] = ()
    #: why ``driver_bytes`` is None, a reason code
    reason: str | None = None
    gpu_indexes: tuple[int, ...] = field(default=())

    @property
    def driver_total_bytes(self) -> int | None:
        """The driver's sum over all cards; None where any part is unknown."""
        if self.driver_bytes is None or self.unmeasured:
            return None
        return sum(self.driver_bytes.values())

    @property
    def difference_bytes(self) -> int | None:
        """Driver's sum less the engine's claim; positive = the engine says too little."""
        if self.driver_total_bytes is None or self.claimed_vram_bytes is None:
            return None
        return self.driver_total_bytes - self.claimed_vram_bytes

    @property
    def silent_fallback(self) -> bool:
        """True where the engine claims VRAM and the driver sees none of its process."""
        return bool(self.claimed_vram_bytes) and self.driver_bytes == {} and not self.unmeasured


def place(model: Model, gpus: Sequence[Gpu], processes: Sequence[GpuProcess] | None) -> Placement:
    """Join a model's claim with the driver's rows of its runner's process.

    A process on several cards, or on several slices of one, has a row for each.
    """
    believed = model.size_bytes not in (None, 0) and model.vram_bytes is not None
    claimed = model.vram_bytes if believed else None
    host = None
    if claimed is not None and model.size_bytes is not None:
        host = max(0, model.size_bytes - claimed)
    if model.runner is None:
        return Placement(claimed, host, reason="no-reading")
    if processes is None:
        return Placement(claimed, host, reason="not-visible")
    by_gpu: dict[str, int] = {}
    unmeasured: list[str] = []
    for process in processes:
        if process.pid != model.runner.pid or not _same_start(process, model):
            continue
        if process.memory_bytes is None:
            unmeasured.append(process.gpu_uuid)
        else:
            by_gpu[process.gpu_uuid] = by_gpu.get(process.gpu_uuid, 0) + process.memory_bytes
    if not by_gpu and not unmeasured and not _sees_processes(gpus, processes):
        return Placement(claimed, host, reason="not-visible")
    on = {*by_gpu, *unmeasured}
    indexes = sorted(g.index for g in gpus if g.uuid in on and g.index is not None)
    return Placement(claimed, host, by_gpu, tuple(unmeasured), None, tuple(indexes))


def _same_start(process: GpuProcess, model: Model) -> bool:
    """A pid is used again; with the start time it is one process.

    A row without one, whose process is not visible here, may carry another namespace's pid.
    """
    started = model.runner.start_ticks if model.runner else None
    if process.start_ticks is None:
        return process.unknown.get("start_ticks") != "not-visible"
    return started is None or process.start_ticks == started


def _sees_processes(gpus: Sequence[Gpu], processes: Sequence[GpuProcess]) -> bool:
    """True where an absent process is really not on any card.

    Every process that the driver lists is known here, or none is listed and no card holds
    enough memory to hide a model. In a container the list may be empty though others work,
    or hold pids that mean nothing there.
    """
    if processes:
        return all("start_ticks" not in process.unknown for process in processes)
    used = [gpu.memory_used_bytes for gpu in gpus if gpu.parent_uuid is None]
    return bool(used) and all(value is not None and value < 500 * 2**20 for value in used)

"""From a probe's line to records: strict about types and bounds, tolerant field by field.

A bad field becomes None with the reason "nonsense", a bad GPU row a GPU in state error;
the rest of the line stays good. Only what is no such line at all raises ``WireError``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from gpumon.collectors.wire_values import (
    NONSENSE,
    field_readers,
    read_flag,
    read_float,
    read_int,
    read_reasons,
    read_record,
    read_text,
    read_texts,
)
from gpumon.snapshot import (
    Disk,
    Engine,
    Gpu,
    GpuProcess,
    GpuState,
    HostFacts,
    HostSnapshot,
    Nvml,
    NvmlState,
    ProbeCost,
    System,
)

__all__ = [
    "MAX_LINE_BYTES",
    "Ancestor",
    "Answer",
    "WatchedProcess",
    "WireError",
    "read_answers",
    "read_bye",
    "read_hello",
    "read_line",
    "read_sample",
    "read_watched",
]

#: A longer line is refused unread.
MAX_LINE_BYTES = 8 * 1024 * 1024
_MOST_GPUS = 512
_MOST_PROCESSES = 8192
_MOST_WATCHED = 1024
_MOST_ANSWERS = 1024
_MOST_DISKS = 64
_MONO = (0.0, 1e10)
_WALL = (0.0, 1e11)
_PID = (1.0, 2.0**31)


class WireError(ValueError):
    """A line that is not what it should be; the text says how, without the line's content."""


@dataclass(frozen=True, slots=True)
class Ancestor:
    """A parent, grandparent ... of a watched process; secrets are taken out of ``cmd``."""

    pid: int
    comm: str = ""
    cmd: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WatchedProcess:
    """A process on the host that looks like an engine."""

    pid: int
    ppid: int = 0
    #: clock ticks since boot; with the pid it is a key
    start_ticks: int | None = None
    user: str | None = None
    comm: str = ""
    #: argv; secrets were taken out on the host
    cmd: tuple[str, ...] = ()
    cgroup: str | None = None
    #: of one core
    cpu_percent: float | None = None
    rss_bytes: int | None = None
    #: TCP ports it listens on; None where that can't be read (another user's process)
    ports: tuple[int, ...] | None = None
    #: allow-listed variables only
    env: Mapping[str, str] = field(default_factory=dict)
    #: nearest first
    ancestors: tuple[Ancestor, ...] = ()
    #: False where the environment can't be read (another user's process)
    env_readable: bool = True


@dataclass(frozen=True)
class Answer:
    """What an HTTP request on the host came to."""

    id: str
    #: host's monotonic second at which it was complete
    monotonic_s: float
    elapsed_ms: float
    #: None where no HTTP answer came
    status: int | None
    #: undecodable bytes replaced; None with ``same``
    body: str | None
    #: None where the whole answer was read; its first word is one of refused, timeout,
    #: closed, unreachable, not-http, bad-request, failed
    error: str | None
    #: True where the body was longer than the request's cap
    truncated: bool = False
    #: True where status, body and error equal those of the answer before
    same: bool = False

    @cached_property
    def document(self) -> Any:
        """The body as JSON, parsed once however often it is read; None where it is none."""
        if self.body is None or self.truncated or self.error:
            return None
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None


_FACT_READERS = field_readers(HostFacts)
_SYSTEM_READERS = field_readers(System)
_DISK_READERS = field_readers(Disk)
_NVML_READERS = field_readers(Nvml)
_GPU_READERS = field_readers(Gpu)
_PROCESS_READERS = field_readers(GpuProcess)
_COST_READERS = field_readers(ProbeCost)
#: Fields that are never None: a missing one takes the record's own default.
_GPU_DEFAULTS = {"unified_memory": False, "vendor": "nvidia"}


def read_line(line: bytes) -> dict[str, Any]:
    """The JSON object of one line. Raises ``WireError``."""
    if len(line) > MAX_LINE_BYTES:
        raise WireError(f"a line of {len(line)} bytes; at most {MAX_LINE_BYTES} are read")
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        # the message would quote the line, which may hold anything
        raise WireError(f"no JSON ({type(error).__name__})") from None
    if not isinstance(found, dict):
        raise WireError(f"JSON, but a {type(found).__name__} and no object")
    return found


def _expect(obj: object, kind: str) -> dict[str, Any]:
    if not isinstance(obj, dict):
        raise WireError(f"no {kind}: a {type(obj).__name__}")
    if obj.get("t") != kind:
        raise WireError(f"no {kind}: its type is {str(obj.get('t'))[:40]!r}")
    return obj


def _rows(value: object, most: int) -> list[dict[str, Any]]:
    if not isinstance(value, list):
        return []
    return [row for row in value[:most] if isinstance(row, dict)]


def read_hello(obj: object) -> HostFacts:
    """The facts of a hello line. Raises ``WireError`` where it is none."""
    row = _expect(obj, "hello")
    version = row.get("v")
    if version != 1:
        raise WireError(f"the probe speaks version {str(version)[:20]}, not 1")
    return HostFacts(**read_record(row, _FACT_READERS)[0])


def read_bye(obj: object) -> str:
    """Why a probe says it ends. Raises ``WireError`` where it is no bye."""
    return read_text(_expect(obj, "bye").get("reason")) or "no reason given"


def _read_system(value: object) -> System:
    row = value if isinstance(value, dict) else {}
    values, unknown = read_record(row, _SYSTEM_READERS)
    # here the share is of the whole machine
    if (cpu := values["cpu_percent"]) is not None and cpu > 100.0:
        values["cpu_percent"] = None
        unknown["cpu_percent"] = NONSENSE
    for part, whole in (
        ("memory_available_bytes", "memory_total_bytes"),
        ("swap_used_bytes", "swap_total_bytes"),
    ):
        _check_part(values, unknown, part, whole)
    disks: list[Disk] = []
    for one in _rows(row.get("disks"), _MOST_DISKS):
        disk = read_record(one, _DISK_READERS)[0]
        if disk["path"]:
            _check_part(disk, {}, "free_bytes", "total_bytes")
            disks.append(Disk(**disk))
    unknown.update(
        (name, reason)
        for name, reason in read_reasons(row.get("unknown"), {"disks": None}).items()
        if not disks
    )
    return System(**values, disks=tuple(disks), unknown=unknown)


def _check_part(values: dict[str, Any], unknown: dict[str, str], part: str, whole: str) -> None:
    """A part that is larger than its whole is nonsense."""
    if values[part] is not None and values[whole] is not None and values[part] > values[whole]:
        values[part] = None
        unknown[part] = NONSENSE


def _read_nvml(value: object) -> Nvml:
    row = value if isinstance(value, dict) else {}
    values = read_record(row, _NVML_READERS)[0]
    try:
        state = NvmlState(str(row.get("state")))
    except ValueError:
        state = NvmlState.ERROR
        values["detail"] = values["detail"] or "the probe named no known driver state"
    return Nvml(state=state, **values)


def _read_gpu(value: object, position: int) -> Gpu:
    if not isinstance(value, dict):
        return Gpu(f"?{position}", GpuState.ERROR, "the probe sent no readable row for this card")
    values, unknown = read_record(value, _GPU_READERS)
    for name, default in _GPU_DEFAULTS.items():
        if values[name] is None:
            values[name] = default
    try:
        state = GpuState(value.get("state", "ok"))
    except ValueError:
        state = GpuState.ERROR
        values["detail"] = "the probe named no known state for this card"
    if not values["uuid"]:
        values["uuid"] = values["pci_id"] or f"?{position}"
        if state is GpuState.OK:
            state = GpuState.ERROR
            values["detail"] = "the card has no UUID"
    if values["memory_total_bytes"] == 0 and not values["unified_memory"]:
        # a card without memory does not exist (nvtop#411)
        values["memory_total_bytes"] = None
        unknown["memory_total_bytes"] = NONSENSE
    for part in ("memory_used_bytes", "memory_free_bytes", "memory_reserved_bytes"):
        _check_part(values, unknown, part, "memory_total_bytes")
    unknown = {name: reason for name, reason in unknown.items() if values[name] is None}
    return Gpu(state=state, unknown=unknown, **values)


def _read_gpus(value: object) -> tuple[Gpu, ...]:
    if not isinstance(value, list):
        return ()
    gpus: list[Gpu] = []
    seen: set[str] = set()
    for position, row in enumerate(value[:_MOST_GPUS]):
        gpu = _read_gpu(row, position)
        if gpu.uuid in seen:
            detail = f"two cards with the UUID {gpu.uuid}"
            gpu = replace(gpu, uuid=f"{gpu.uuid}#{position}", state=GpuState.ERROR, detail=detail)
        seen.add(gpu.uuid)
        gpus.append(gpu)
    return tuple(gpus)


def _read_processes(value: object) -> tuple[GpuProcess, ...] | None:
    if not isinstance(value, list):
        return None
    found: dict[tuple[int, str], GpuProcess] = {}
    for row in _rows(value, _MOST_PROCESSES):
        values, unknown = read_record(row, _PROCESS_READERS)
        if values["pid"] is None or not values["gpu_uuid"]:
            continue  # nobody could be named
        values["kind"] = values["kind"] or "compute"
        unknown.pop("kind", None)
        process = GpuProcess(**values, unknown=unknown)
        found.setdefault((process.pid, process.gpu_uuid), process)
    return tuple(found.values())


def read_sample(
    obj: object,
    *,
    host: str,
    received_at: float,
    facts: HostFacts,
    interval_s: float,
    engines: Sequence[Engine] = (),
) -> HostSnapshot:
    """One sample line as a snapshot; ``received_at`` is this machine's UTC epoch second.

    Raises ``WireError`` where the line is no sample: not of that type, or without its
    sequence number or monotonic time.
    """
    row = _expect(obj, "sample")
    seq = read_int(row.get("seq"), (0, 2.0**53))
    mono = read_float(row.get("mono"), _MONO)
    if seq is None or mono is None:
        raise WireError("a sample without its number or its time")
    wall = read_float(row.get("wall"), _WALL)
    gpus_mono = read_float(row.get("gpus_mono"), _MONO)
    cost = row.get("probe")
    return HostSnapshot(
        host=host,
        seq=seq,
        received_at=received_at,
        monotonic_s=mono,
        clock_skew_s=None if wall is None else wall - received_at,
        interval_s=interval_s,
        source=read_text(row.get("source"), 32) or "python",
        facts=facts,
        system=_read_system(row.get("system")),
        nvml=_read_nvml(row.get("nvml")),
        gpus=_read_gpus(row.get("gpus")),
        # a reading from the future would look fresh for ever
        gpus_monotonic_s=None if gpus_mono is None else min(gpus_mono, mono),
        processes=_read_processes(row.get("processes")),
        engines=tuple(engines),
        probe=ProbeCost(**read_record(cost if isinstance(cost, dict) else {}, _COST_READERS)[0]),
    )


def _read_ancestor(row: Mapping[str, object]) -> Ancestor | None:
    pid = read_int(row.get("pid"), _PID)
    if pid is None:
        return None
    return Ancestor(pid, read_text(row.get("comm"), 64) or "", read_texts(row.get("cmd")) or ())


def _read_environment(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        return {}
    pairs = ((read_text(k, 256), read_text(v, 4096)) for k, v in list(value.items())[:512])
    return {name: text for name, text in pairs if name and text is not None}


def _read_ports(value: object) -> tuple[int, ...] | None:
    if not isinstance(value, list):
        return None
    ports = (read_int(one, (1, 65535)) for one in value[:1024])
    return tuple(port for port in ports if port is not None)


def read_watched(obj: object) -> tuple[WatchedProcess, ...]:
    """The engine-like processes of a sample line; rows without a pid are left out."""
    found: list[WatchedProcess] = []
    for row in _rows(obj.get("watched") if isinstance(obj, dict) else None, _MOST_WATCHED):
        pid = read_int(row.get("pid"), _PID)
        if pid is None:
            continue
        ancestors = map(_read_ancestor, _rows(row.get("ancestors"), 64))
        found.append(
            WatchedProcess(
                pid=pid,
                ppid=read_int(row.get("ppid"), (0, 2.0**31)) or 0,
                start_ticks=read_int(row.get("start_ticks"), (0, 2.0**63)),
                user=read_text(row.get("user"), 256),
                comm=read_text(row.get("comm"), 64) or "",
                cmd=read_texts(row.get("cmd"), most=4096) or (),
                cgroup=read_text(row.get("cgroup"), 4096),
                cpu_percent=read_float(row.get("cpu_percent"), (0.0, 1e6)),
                rss_bytes=read_int(row.get("rss_bytes"), (0, 2.0**60)),
                ports=_read_ports(row.get("ports")),
                env=_read_environment(row.get("env")),
                ancestors=tuple(one for one in ancestors if one is not None),
                env_readable=isinstance(row.get("env"), dict),
            )
        )
    return tuple(found)


def read_answers(obj: object) -> tuple[Answer, ...]:
    """The HTTP answers of a sample line; rows without an id or time are left out."""
    found: list[Answer] = []
    for row in _rows(obj.get("http") if isinstance(obj, dict) else None, _MOST_ANSWERS):
        name = read_text(row.get("id"), 1024)
        mono = read_float(row.get("mono"), _MONO)
        if not name or mono is None:
            continue
        found.append(
            Answer(
                id=name,
                monotonic_s=mono,
                elapsed_ms=read_float(row.get("ms"), (0.0, 1e9)) or 0.0,
                status=read_int(row.get("status"), (100, 999)),
                body=read_text(row.get("body"), MAX_LINE_BYTES),
                error=read_text(row.get("error")),
                truncated=read_flag(row.get("truncated")) or False,
                same=read_flag(row.get("same")) or False,
            )
        )
    return tuple(found)

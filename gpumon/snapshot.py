"""The records everything speaks in.

A snapshot is what one host said at one moment: raw numbers in the unit that the
field's name carries, ``None`` where a value could not be read. Every record that
has unreadable fields carries ``unknown``: field name -> reason code (see
``REASONS``), so that a view can say *why* it shows ``n/a``.

Times: ``*_at`` is UTC epoch seconds on the machine that received the sample,
``monotonic_s`` is the host's own monotonic clock and serves for rates only. The
host's wall clock is never used, except ``Model.expires_at`` which is corrected by
``HostSnapshot.clock_skew_s`` before it is shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from gpumon.model_facts import ModelFacts

__all__ = [
    "REASONS",
    "Cause",
    "Disk",
    "Engine",
    "EngineState",
    "Gpu",
    "GpuProcess",
    "GpuState",
    "HostFacts",
    "HostSnapshot",
    "HostState",
    "HostStatus",
    "HostView",
    "Model",
    "Nvml",
    "NvmlState",
    "ProbeCost",
    "Runner",
    "Slot",
    "SlotActivity",
    "System",
]

#: Reason codes a field may be unknown for, with the words a person reads.
REASONS: Mapping[str, str] = {
    "unsupported": "the card or driver does not offer it",
    "no-symbol": "this driver is too old for it",
    "no-permission": "no permission to read it",
    "lost": "the GPU fell off the bus",
    "reset-required": "the GPU needs a reset",
    "timeout": "the driver did not answer in time",
    "hung": "the driver hangs",
    "nonsense": "the driver's value was out of bounds",
    "no-data": "the driver has no sample yet",
    "driver-error": "the driver answered with an error",
    "mig-parent": "a card split by MIG has no such value of its own",
    "wddm": "the driver's mode hides it",
    "hidden": "another user's process hides it",
    "not-visible": "not visible from this container",
    "not-read": "not read yet",
    "unreadable": "the file could not be read",
    "asleep": "the GPU sleeps and is not woken for a reading",
    "engine-too-old": "this engine version does not report it",
    "engine-silent": "the engine did not answer",
    "engine-refused": "the engine refused to answer",
    "engine-nonsense": "the engine's answer could not be understood",
    "engine-zero": "the engine says 0 for a loaded model, which cannot be",
    "engine-lacks": "this kind of engine does not report it",
    "no-process": "no process of it can be seen",
    "ambiguous": "more than one process could be it",
    "no-driver": "no driver is loaded that could be asked",
    "fallback": "not offered by nvidia-smi, the fallback reader",
    "no-reading": "never read",
}


class GpuState(StrEnum):
    """What a card is, before any of its numbers."""

    OK = "ok"
    LOST = "lost"
    RESET_REQUIRED = "reset-required"
    ASLEEP = "asleep"
    NO_DRIVER = "no-driver"
    ERROR = "error"


class NvmlState(StrEnum):
    """What the NVIDIA driver of a host is."""

    OK = "ok"
    #: no NVIDIA card in this machine
    ABSENT = "absent"
    #: a card, but no kernel module bound to it
    NO_DRIVER = "no-driver"
    NOUVEAU = "nouveau"
    #: kernel module and library of different versions (rc 18)
    MISMATCH = "mismatch"
    LIBRARY_MISSING = "library-missing"
    NO_PERMISSION = "no-permission"
    #: every card sleeps: the driver is not touched
    ASLEEP = "asleep"
    HUNG = "hung"
    ERROR = "error"
    #: not answered yet
    STARTING = "starting"


class HostState(StrEnum):
    """Where a host's connection stands."""

    CONNECTING = "connecting"
    #: samples arrive
    UP = "up"
    #: connected, but no sample for three intervals
    STALE = "stale"
    #: the connection failed and will be tried again at ``HostStatus.retry_at``
    DOWN = "down"
    #: the connection failed in a way that trying again would not mend
    BLOCKED = "blocked"
    DISABLED = "disabled"


class Cause(StrEnum):
    """Why a host is not up."""

    NONE = "none"
    KEY_UNKNOWN = "key-unknown"
    KEY_CHANGED = "key-changed"
    KEY_REVOKED = "key-revoked"
    PERMISSION_DENIED = "permission-denied"
    REFUSED = "refused"
    TIMED_OUT = "timed-out"
    UNREACHABLE = "unreachable"
    NAME_NOT_FOUND = "name-not-found"
    JUMP_FAILED = "jump-failed"
    SHELL_REFUSED = "shell-refused"
    NO_PYTHON = "no-python"
    PROBE_DIED = "probe-died"
    SILENT = "silent"
    CONNECTION_LOST = "connection-lost"
    PROTOCOL = "protocol"
    CONFIG = "config"


class EngineState(StrEnum):
    """What an inference engine says of itself."""

    UP = "up"
    LOADING = "loading"
    #: it did not answer in time, but is known to block while it unloads
    BUSY = "busy"
    DOWN = "down"
    #: it wants a key that gpumon has not got
    LOCKED = "locked"
    ASLEEP = "asleep"
    #: its answer could not be understood
    CONFUSED = "confused"
    #: found, not asked yet
    STARTING = "starting"


class SlotActivity(StrEnum):
    """What a parallel slot of a runner is doing."""

    IDLE = "idle"
    PREFILL = "prefill"
    DECODE = "decode"


@dataclass(frozen=True, slots=True)
class Gpu:
    """One card, or one MIG slice (then ``parent_uuid`` is set)."""

    uuid: str
    state: GpuState = GpuState.OK
    detail: str | None = None
    index: int | None = None
    pci_id: str | None = None
    name: str | None = None
    parent_uuid: str | None = None
    mig_mode: bool | None = None
    #: the driver's own name for the slice, like ``1g.10gb``
    mig_profile: str | None = None
    #: True where GPU memory is the system's memory (GB10, Jetson)
    unified_memory: bool = False
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None
    memory_free_bytes: int | None = None
    memory_reserved_bytes: int | None = None
    util_percent: float | None = None
    memory_util_percent: float | None = None
    encoder_percent: float | None = None
    decoder_percent: float | None = None
    temperature_c: float | None = None
    temperature_slowdown_c: float | None = None
    memory_temperature_c: float | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    #: since the driver was loaded; restarts with it
    energy_j: float | None = None
    fan_percent: float | None = None
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    max_sm_clock_mhz: int | None = None
    max_memory_clock_mhz: int | None = None
    memory_bus_bits: int | None = None
    #: P-state number, 0 = fastest
    performance_state: int | None = None
    #: names of the reasons that hold the clocks down, empty = none
    throttle_reasons: tuple[str, ...] | None = None
    pcie_generation: int | None = None
    pcie_width: int | None = None
    pcie_generation_max: int | None = None
    pcie_width_max: int | None = None
    pcie_tx_bytes_per_s: float | None = None
    pcie_rx_bytes_per_s: float | None = None
    ecc_corrected: int | None = None
    ecc_uncorrected: int | None = None
    retired_pages: int | None = None
    row_remap_pending: bool | None = None
    row_remap_failed: bool | None = None
    #: NVML recovery action: none, reset, reboot, ...
    recovery_action: str | None = None
    #: the newest XID error since the probe started
    xid: int | None = None
    persistence_mode: bool | None = None
    compute_mode: str | None = None
    compute_capability: str | None = None
    vbios: str | None = None
    #: nvidia, amd
    vendor: str = "nvidia"
    unknown: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """One process on one card: a process on two cards has two records."""

    pid: int
    gpu_uuid: str
    #: host's start time in clock ticks since boot; with the pid it is a key
    start_ticks: int | None = None
    #: compute, graphics, mps; joined by "+" where on several lists
    kind: str = "compute"
    memory_bytes: int | None = None
    sm_percent: float | None = None
    user: str | None = None
    #: basename of argv[0], or comm
    name: str | None = None
    #: redacted on the host before it was sent
    command: str | None = None
    container: str | None = None
    parent_pid: int | None = None
    started_s_ago: float | None = None
    cpu_percent: float | None = None
    rss_bytes: int | None = None
    unknown: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Disk:
    """One file system that matters: root and those that hold model stores."""

    path: str
    total_bytes: int | None = None
    free_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class System:
    """The machine itself."""

    cpu_percent: float | None = None
    load_1: float | None = None
    load_5: float | None = None
    load_15: float | None = None
    memory_total_bytes: int | None = None
    memory_available_bytes: int | None = None
    swap_total_bytes: int | None = None
    swap_used_bytes: int | None = None
    network_rx_bytes_per_s: float | None = None
    network_tx_bytes_per_s: float | None = None
    uptime_s: float | None = None
    disks: tuple[Disk, ...] = ()
    unknown: Mapping[str, str] = field(default_factory=dict)

    @property
    def memory_used_bytes(self) -> int | None:
        """Total less available, as ``free`` counts it; None where either is unknown."""
        if self.memory_total_bytes is None or self.memory_available_bytes is None:
            return None
        return self.memory_total_bytes - self.memory_available_bytes


@dataclass(frozen=True, slots=True)
class Nvml:
    """The driver of a host and how reading it goes."""

    state: NvmlState = NvmlState.STARTING
    detail: str | None = None
    driver_version: str | None = None
    cuda_version: str | None = None
    #: set while a driver call does not return
    hung_s: float | None = None
    #: the call that hangs
    hung_call: str | None = None
    #: seconds that NVML's init took; over 1 s speaks for persistence mode
    init_s: float | None = None


@dataclass(frozen=True, slots=True)
class HostFacts:
    """What does not change while a probe lives (the hello line)."""

    hostname: str | None = None
    os: str | None = None
    kernel: str | None = None
    cpu_model: str | None = None
    cpu_count: int | None = None
    python: str | None = None
    container: str | None = None


@dataclass(frozen=True, slots=True)
class ProbeCost:
    """What the reading costs the host."""

    cpu_percent: float | None = None
    rss_bytes: int | None = None
    sample_ms: float | None = None


@dataclass(frozen=True, slots=True)
class Slot:
    """One parallel slot of a runner, as its ``/slots`` says."""

    id: int
    #: cells this slot may fill; None while unknown
    context_tokens: int | None = None
    #: tokens now held in this slot's KV cache; 0 for a slot that never worked
    used_tokens: int | None = None
    decoded_tokens: int | None = None
    prompt_tokens_processed: int | None = None
    processing: bool | None = None
    task: int | None = None
    # --- derived by comparing with the reading before -------------------------
    activity: SlotActivity | None = None
    decode_tokens_per_s: float | None = None
    prefill_tokens_per_s: float | None = None
    #: context shifts seen in this slot since gpumon watches
    context_shifts: int = 0


@dataclass(frozen=True, slots=True)
class Runner:
    """The process that serves one model, and the settings read from its argv."""

    pid: int
    start_ticks: int | None = None
    port: int | None = None
    #: -c: total over all slots unless ``unified``
    context_total_tokens: int | None = None
    parallel_slots: int | None = None
    unified: bool | None = None
    cache_type_k: str | None = None
    cache_type_v: str | None = None
    batch: int | None = None
    ubatch: int | None = None
    #: -ngl; None = the engine chose
    gpu_layers: int | None = None
    flash_attention: str | None = None
    context_shift: bool | None = None
    #: CUDA_VISIBLE_DEVICES (ROCR_VISIBLE_DEVICES on AMD) where readable
    visible_devices: str | None = None
    main_gpu: int | None = None
    split_mode: str | None = None
    model_path: str | None = None
    cpu_percent: float | None = None
    rss_bytes: int | None = None
    slots: tuple[Slot, ...] | None = None
    #: host's monotonic second at which ``slots`` was answered
    slots_monotonic_s: float | None = None
    unknown: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Model:
    """A model that an engine has loaded, or is loading."""

    name: str
    digest: str | None = None
    family: str | None = None
    parameter_size: str | None = None
    quantization: str | None = None
    #: the engine's claim: bytes held in all, and on GPUs. None = unknown
    size_bytes: int | None = None
    vram_bytes: int | None = None
    context_tokens: int | None = None
    #: UTC epoch seconds on the HOST's clock
    expires_at: float | None = None
    loading: bool = False
    remote: bool = False
    runner: Runner | None = None
    #: prompts that the engine cut, since gpumon watches; None = can't be known
    cut_prompts: int | None = None
    #: what its file says; None = not read (yet), ``unknown["facts"]`` says why
    facts: ModelFacts | None = None
    unknown: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Engine:
    """One inference server on a host."""

    kind: str
    state: EngineState = EngineState.STARTING
    detail: str | None = None
    port: int | None = None
    pid: int | None = None
    url: str | None = None
    version: str | None = None
    #: settings that matter, by their own names (OLLAMA_NUM_PARALLEL, ...)
    settings: Mapping[str, str] = field(default_factory=dict)
    models: tuple[Model, ...] = ()
    #: names of the models on disk; None = not asked yet
    installed: tuple[str, ...] | None = None
    #: host's monotonic second of the newest good answer
    answered_monotonic_s: float | None = None
    unknown: Mapping[str, str] = field(default_factory=dict)
    #: host's monotonic second since which no answer was good; None while they are
    failing_since_monotonic_s: float | None = None


@dataclass(frozen=True, slots=True)
class HostSnapshot:
    """All that one host said in one sample, merged with what it said before."""

    host: str
    seq: int
    received_at: float
    monotonic_s: float
    #: host's wall clock less the receiver's, at this sample
    clock_skew_s: float | None = None
    interval_s: float = 2.0
    #: python, nvidia-smi
    source: str = "python"
    facts: HostFacts = field(default_factory=HostFacts)
    system: System = field(default_factory=System)
    nvml: Nvml = field(default_factory=Nvml)
    gpus: tuple[Gpu, ...] = ()
    #: host's monotonic second at which ``gpus`` was read: older than
    #: ``monotonic_s`` while the driver hangs. None = never read
    gpus_monotonic_s: float | None = None
    #: None = the list could not be read; () = none there
    processes: tuple[GpuProcess, ...] | None = None
    engines: tuple[Engine, ...] = ()
    probe: ProbeCost = field(default_factory=ProbeCost)


@dataclass(frozen=True, slots=True)
class HostStatus:
    """Where a host's connection stands, why, and what would mend it."""

    state: HostState = HostState.CONNECTING
    cause: Cause = Cause.NONE
    #: one line for a person: what went wrong on which host
    detail: str | None = None
    #: the command or step that settles it
    fix: str | None = None
    since: float = 0.0
    retry_at: float | None = None
    attempts: int = 0


@dataclass(frozen=True, slots=True)
class HostView:
    """What is known of one host now: its state and its newest snapshot."""

    host: str
    status: HostStatus = field(default_factory=HostStatus)
    snapshot: HostSnapshot | None = None
    address: str | None = None
    #: True where the snapshot was made by ``gpumon demo``
    simulated: bool = False
    #: True where the snapshot comes from the store and not from a live host
    stored: bool = False

    def age_s(self, now: float) -> float | None:
        """Seconds since the newest sample was received; None where there is none.

        A clock that went backwards gives 0, never a negative age.
        """
        if self.snapshot is None:
            return None
        return max(0.0, now - self.snapshot.received_at)

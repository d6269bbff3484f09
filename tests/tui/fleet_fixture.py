"""Hosts made by hand, and a feed of them with a clock that stands still."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from gpumon.feed import FeedMode, FeedStatus
from gpumon.snapshot import (
    Cause,
    Disk,
    Engine,
    EngineState,
    Gpu,
    GpuProcess,
    GpuState,
    HostFacts,
    HostSnapshot,
    HostState,
    HostStatus,
    HostView,
    Model,
    Nvml,
    NvmlState,
    ProbeCost,
    Runner,
    Slot,
    SlotActivity,
    System,
)

#: 14:02:07 UTC on 1 November 2026: every golden screen is of this second
NOW = 1793541727.0
GIB = 1024**3

#: what a host may call a model to deceive its reader
HOSTILE = "evil\x1b[31m\x1b]0;pwned\x07\u202egnp.exe\u200b\r\n" + "x" * 300


def gpu(index: int, *, used: float, util: float | None, total: float = 80, **more: object) -> Gpu:
    """A healthy card; ``used`` and ``total`` in GiB."""
    made = Gpu(
        uuid=f"GPU-{index:08d}-aaaa-bbbb-cccc-0123456789ab",
        index=index,
        pci_id=f"00000000:{index + 1:02X}:00.0",
        name="NVIDIA H100 80GB HBM3",
        memory_total_bytes=int(total * GIB),
        memory_used_bytes=int(used * GIB),
        memory_free_bytes=int((total - used) * GIB),
        util_percent=util,
        memory_util_percent=None if util is None else round(util * 0.6),
        temperature_c=54 + index,
        temperature_slowdown_c=90,
        power_w=310.0 + 12 * index,
        power_limit_w=700,
        sm_clock_mhz=1980,
        memory_clock_mhz=2619,
        throttle_reasons=(),
        pcie_generation=5,
        pcie_width=16,
        ecc_corrected=0,
        ecc_uncorrected=0,
    )
    return replace(made, **more)  # type: ignore[arg-type]


def slot(id_: int, context: int, used: int, rate: float | None = None, **more: object) -> Slot:
    """A slot of a runner; with a rate it decodes, without it is idle."""
    made = Slot(
        id=id_,
        context_tokens=context,
        used_tokens=used,
        processing=rate is not None,
        activity=SlotActivity.IDLE if rate is None else SlotActivity.DECODE,
        decode_tokens_per_s=rate,
    )
    return replace(made, **more)  # type: ignore[arg-type]


def system(ram: float = 512, free: float = 392, cpu: float | None = 12.0) -> System:
    """A machine; sizes in GiB."""
    return System(
        cpu_percent=cpu,
        load_1=3.1,
        load_5=2.94,
        load_15=2.8,
        memory_total_bytes=int(ram * GIB),
        memory_available_bytes=int(free * GIB),
        swap_total_bytes=8 * GIB,
        swap_used_bytes=0,
        uptime_s=41 * 86400 + 3 * 3600,
        disks=(Disk("/", 880 * GIB, 210 * GIB), Disk("/var/lib/ollama", 3584 * GIB, 1229 * GIB)),
    )


def snapshot(host: str, *, age: float = 1.0, **more: object) -> HostSnapshot:
    """A sample that came ``age`` seconds before ``NOW``."""
    made = HostSnapshot(
        host=host,
        seq=100,
        received_at=NOW - age,
        monotonic_s=5000.0,
        clock_skew_s=0.0,
        facts=HostFacts(
            host, "Ubuntu 24.04.1 LTS", "6.8.0-45-generic", "AMD EPYC 7763", 128, "3.12.3"
        ),
        system=system(),
        nvml=Nvml(NvmlState.OK, driver_version="570.133.20", cuda_version="12.8"),
        gpus_monotonic_s=5000.0,
        processes=(),
        probe=ProbeCost(0.3, 24 * 1024 * 1024, 8.2),
    )
    return replace(made, **more)  # type: ignore[arg-type]


def up(taken: HostSnapshot, address: str | None = None) -> HostView:
    """The view of a host that answers."""
    return HostView(
        taken.host,
        HostStatus(HostState.UP, since=NOW - 3600),
        taken,
        address or f"{taken.host}.example",
    )


def model(
    name: str, size: float, vram: float, runner: Runner | None = None, **more: object
) -> Model:
    """A loaded model; sizes in GB as Ollama counts them."""
    made = Model(
        name=name,
        digest="a2af6cc3eb7f" + "0" * 52,
        family="llama",
        parameter_size="70.6B",
        quantization="Q4_K_M",
        size_bytes=int(size * 1e9),
        vram_bytes=int(vram * 1e9),
        context_tokens=32768,
        expires_at=NOW + 262,
        runner=runner,
    )
    return replace(made, **more)  # type: ignore[arg-type]


def runner(pid: int, *slots: Slot, **more: object) -> Runner:
    """The process behind a model."""
    made = Runner(
        pid=pid,
        start_ticks=pid * 100,
        port=40000 + pid,
        context_total_tokens=sum(s.context_tokens or 0 for s in slots) or None,
        parallel_slots=len(slots) or None,
        cache_type_k="f16",
        cache_type_v="f16",
        flash_attention="on",
        slots=slots or None,
        slots_monotonic_s=5000.0,
    )
    return replace(made, **more)  # type: ignore[arg-type]


def process(
    pid: int, gpu_uuid: str, gib: float, name: str = "ollama", **more: object
) -> GpuProcess:
    """A process on a card."""
    made = GpuProcess(
        pid=pid,
        gpu_uuid=gpu_uuid,
        start_ticks=pid * 100,
        memory_bytes=int(gib * GIB),
        sm_percent=62.0,
        user="ollama",
        name=name,
        command=f"/usr/bin/ollama runner --model /var/lib/ollama/blobs/sha256-{pid} --port 40123",
        started_s_ago=5400,
        cpu_percent=101.0,
        rss_bytes=2 * GIB,
    )
    return replace(made, **more)  # type: ignore[arg-type]


def ollama(*models: Model, **more: object) -> Engine:
    """An Ollama that answers."""
    made = Engine(
        kind="ollama",
        state=EngineState.UP,
        port=11434,
        pid=900,
        version="0.33.0",
        settings={
            "OLLAMA_NUM_PARALLEL": "2",
            "OLLAMA_KV_CACHE_TYPE": "f16",
            "OLLAMA_KEEP_ALIVE": "5m",
        },
        models=models,
        installed=tuple(f"model-{n}" for n in range(14)),
        answered_monotonic_s=4996.0,
    )
    return replace(made, **more)  # type: ignore[arg-type]


def eight_gpus() -> HostView:
    """Eight cards, of which one is lost and one tells nothing but its memory."""
    utils = (97.0, 91.0, 88.0, 96.0, 74.0, None, 52.0, 0.0)
    used = (71.2, 70.9, 71.3, 71.1, 43.8, 0, 39.5, 0.6)
    gpus = [gpu(n, used=used[n], util=utils[n]) for n in range(8)]
    gpus[5] = Gpu(
        uuid=gpus[5].uuid, state=GpuState.LOST, index=5, name=gpus[5].name, detail="Xid 79",
        unknown={"util_percent": "lost", "memory_used_bytes": "lost", "power_w": "lost"},
    )  # fmt: skip
    gpus[6] = replace(
        gpus[6], util_percent=None, memory_util_percent=None, power_w=None, throttle_reasons=None,
        ecc_uncorrected=None, unknown={
            "util_percent": "unsupported", "memory_util_percent": "unsupported",
            "power_w": "no-permission", "throttle_reasons": "no-symbol",
            "ecc_uncorrected": "unsupported",
        },
    )  # fmt: skip
    gpus[4] = replace(gpus[4], throttle_reasons=("sw-power-cap",), power_w=698.0)
    big = model(
        "llama3.3:70b", 284.0, 284.0,
        runner(1201, slot(0, 32768, 30100, 212.0), slot(1, 32768, 12040, 187.4)),
    )  # fmt: skip
    middle = model("qwen3:30b", 46.0, 46.0, runner(1202, slot(0, 65536, 9800, 412.6)))
    small = model("nomic-embed-text:latest", 0.6, 0.6, runner(1203, slot(0, 8192, 0)))
    processes = (
        *(process(1201, gpus[n].uuid, 70.4) for n in range(4)),
        process(1202, gpus[4].uuid, 43.1),
        process(1203, gpus[7].uuid, 0.5),
        process(
            77012, gpus[6].uuid, 38.9, "python3", user="ana", cpu_percent=99.0,
            command="python3 train.py --epochs 30 --bf16",
        ),
    )  # fmt: skip
    taken = snapshot(
        "berlin-1", gpus=tuple(gpus), processes=processes, engines=(ollama(big, middle, small),)
    )
    return up(taken, "gpu1.berlin.example")


def mig() -> HostView:
    """A card cut into slices beside a whole one."""
    parent = gpu(
        0, used=22.4, util=None, mig_mode=True, name="NVIDIA A100-SXM4-80GB", power_w=142.0,
        power_limit_w=400, sm_clock_mhz=1410, pcie_generation=4, memory_util_percent=None,
        unknown={"util_percent": "mig-parent", "memory_util_percent": "mig-parent"},
    )  # fmt: skip
    lacking = dict.fromkeys(
        ("util_percent", "memory_util_percent", "power_w", "temperature_c", "sm_clock_mhz",
         "throttle_reasons", "ecc_uncorrected"), "mig-parent",
    )  # fmt: skip
    slices = [
        Gpu(
            uuid=f"MIG-{n}", parent_uuid=parent.uuid, mig_profile=profile, name=parent.name,
            memory_total_bytes=int(total * GIB), memory_used_bytes=int(used * GIB), unknown=lacking,
        )
        for n, (profile, used, total) in enumerate(
            (("3g.40gb", 18.1, 39.5), ("2g.20gb", 4.2, 19.5), ("1g.10gb", 0.1, 9.5))
        )
    ]  # fmt: skip
    whole = gpu(
        1, used=61.0, util=83.0, name="NVIDIA A100-SXM4-80GB", power_w=371.0, power_limit_w=400,
        sm_clock_mhz=1410, pcie_generation=4,
    )  # fmt: skip
    vllm = Engine(
        kind="vllm", state=EngineState.UP, port=8000, pid=2100, version="0.11.0",
        models=(
            Model("mistral-small", size_bytes=None, vram_bytes=None, context_tokens=32768,
                  unknown={"size_bytes": "engine-silent", "runner": "engine-silent",
                           "expires_at": "engine-silent", "quantization": "engine-silent"}),
        ),
        settings={"gpu_memory_utilization": "0.75"}, answered_monotonic_s=4998.5,
        unknown={"installed": "engine-silent"},
    )  # fmt: skip
    taken = snapshot(
        "ams-mig", gpus=(parent, *slices, whole),
        processes=(
            process(2200, "MIG-0", 18.0, "VLLM::EngineCore", user="vllm", sm_percent=None,
                    unknown={"sm_percent": "mig-parent"}),
            process(2201, whole.uuid, 60.2, "python3", user="ben", command="python3 sweep.py"),
        ),
        engines=(vllm,),
    )  # fmt: skip
    return up(taken)


def split() -> HostView:
    """One small card, its model partly on the CPU and its context shifted."""
    half = model(
        "llama3.1:8b-instruct-q4_K_M", 22.6, 12.9,
        runner(
            811, slot(0, 32768, 4480, 11.2, context_shifts=3), slot(1, 32768, 640),
            cache_type_k="f16",
        ),
    )  # fmt: skip
    card = gpu(
        0, used=13.2, util=31.0, total=24, name="NVIDIA GeForce RTX 4090", power_w=138.0,
        power_limit_w=450, sm_clock_mhz=2520, pcie_generation=4, ecc_uncorrected=None,
        unknown={"ecc_uncorrected": "unsupported"},
    )  # fmt: skip
    taken = snapshot(
        "berlin-2", gpus=(card,), processes=(process(811, card.uuid, 12.9),),
        engines=(ollama(half),), system=system(64, 41, 58.0),
    )  # fmt: skip
    return up(taken)


def cpu_only() -> HostView:
    """No card, one model on the CPU."""
    small = model("gemma3:4b", 4.1, 0.0, runner(633, slot(0, 8192, 980, 9.4)), context_tokens=8192)
    taken = snapshot(
        "cpu-vps", age=2.0, gpus=(), nvml=Nvml(NvmlState.ABSENT), gpus_monotonic_s=None,
        engines=(ollama(small),), system=system(32, 11, 82.0),
    )  # fmt: skip
    return up(
        replace(taken, facts=replace(taken.facts, cpu_model="Intel Xeon E-2388G", cpu_count=16))
    )


def hung() -> HostView:
    """Samples arrive, the driver does not answer."""
    taken = snapshot(
        "ams-gpu", gpus=tuple(gpu(n, used=60 + n, util=40.0) for n in range(4)),
        nvml=Nvml(NvmlState.HUNG, driver_version="550.90.07", cuda_version="12.4", hung_s=247.0,
                  hung_call="nvmlDeviceGetUtilizationRates"),
        gpus_monotonic_s=5000.0 - 248, engines=(ollama(),),
    )  # fmt: skip
    return up(taken)


def key_changed() -> HostView:
    """Never reached: its key is not the known one."""
    status = HostStatus(
        HostState.BLOCKED, Cause.KEY_CHANGED, since=NOW - 1260, attempts=1,
        detail="the host key of home.example changed (line 12 of ~/.ssh/known_hosts)",
        fix="ssh-keygen -R home.example  # only after checking the new key by another way",
    )  # fmt: skip
    return HostView("home", status, None, "home.example")


def lost_connection() -> HostView:
    """Down, with the values it had."""
    taken = snapshot("paris-1", age=95.0, gpus=(gpu(0, used=20.0, util=66.0, total=48),))
    status = HostStatus(
        HostState.DOWN, Cause.CONNECTION_LOST, since=NOW - 90, retry_at=NOW + 12, attempts=4,
        detail="the connection to paris-1.example was lost: no answer for 15 s",
        fix="ssh paris-1.example true",
    )  # fmt: skip
    return HostView("paris-1", status, taken, "paris-1.example")


def hostile() -> HostView:
    """Every name is an attack on the screen."""
    card = gpu(0, used=1, util=3.0, total=24, name=HOSTILE)
    bad = model(HOSTILE, 8.0, 8.0, runner(9, slot(0, 4096, 100)))
    taken = snapshot(
        "mallory", gpus=(card,), engines=(ollama(bad, settings={"A\x1b[2J": HOSTILE}),),
        processes=(process(9, card.uuid, 7.0, HOSTILE, user="\u202eroot", command=HOSTILE),),
        facts=HostFacts(HOSTILE, HOSTILE, HOSTILE, HOSTILE, 4),
    )  # fmt: skip
    return up(taken, HOSTILE)


def connecting() -> HostView:
    """Not answered yet."""
    return HostView("osaka", HostStatus(HostState.CONNECTING, since=NOW - 1), None, "osaka.example")


def fleet() -> list[HostView]:
    """All of them but the hostile one."""
    return [
        eight_gpus(), split(), mig(), hung(), cpu_only(), lost_connection(), key_changed(),
        connecting(),
    ]  # fmt: skip


@dataclass
class FakeFeed:
    """A feed of hand-made views. ``now`` is its clock."""

    hosts: list[HostView] = field(default_factory=fleet)
    state: FeedStatus = field(default_factory=FeedStatus)
    now: float = NOW
    retried: list[str] = field(default_factory=list)
    #: what ``take_over`` answers
    may_take: bool = True

    def clock(self) -> float:
        """The time of the screens."""
        return self.now

    def views(self) -> Sequence[HostView]:
        """The hosts."""
        return list(self.hosts)

    def status(self) -> FeedStatus:
        """How the feed fares."""
        return self.state

    async def take_over(self) -> bool:
        """As told by ``may_take``."""
        if self.may_take:
            self.state = FeedStatus(FeedMode.LIVE)
        return self.may_take

    async def retry(self, host: str) -> bool:
        """Remember who was retried, where this gpumon collects."""
        self.retried.append(host)
        return self.state.mode is FeedMode.LIVE

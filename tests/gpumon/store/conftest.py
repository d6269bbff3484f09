"""Views to store, and a database in a folder of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gpumon.snapshot import (
    Engine,
    EngineState,
    Gpu,
    GpuProcess,
    GpuState,
    HostSnapshot,
    HostState,
    HostStatus,
    HostView,
    Model,
    Nvml,
    NvmlState,
    Runner,
    Slot,
    SlotActivity,
    System,
)

HOSTILE = "\x1b[31mevil\u202e" + "x" * 300


def make_view(second: float, host: str = "a", gpus: int = 2, **more: object) -> HostView:
    cards = tuple(
        Gpu(
            f"GPU-{host}-{number}",
            index=number,
            name=HOSTILE,
            util_percent=12.3 + number,
            memory_used_bytes=2**33 + number,
            memory_total_bytes=2**36,
            power_w=70.125,
            temperature_c=None,
            unknown={"temperature_c": "unsupported"},
        )
        for number in range(gpus)
    )
    lost = Gpu(f"GPU-{host}-lost", GpuState.LOST, index=gpus)
    slot = Slot(0, 4096, 100, 50, 10, True, 3, SlotActivity.DECODE, 31.5, 0.0, 1)
    model = Model(
        HOSTILE,
        digest="d" * 64,
        size_bytes=5_000_000_000,
        runner=Runner(7, slots=(slot,), context_total_tokens=4096),
        unknown={"vram_bytes": "engine-nonsense"},
    )
    snapshot = HostSnapshot(
        host,
        int(second),
        second,
        second - 1000,
        system=System(cpu_percent=5.25, memory_total_bytes=2**34, memory_available_bytes=2**33),
        nvml=Nvml(NvmlState.OK),
        gpus=(*cards, lost),
        processes=(
            GpuProcess(7, f"GPU-{host}-0", 70, memory_bytes=2**32, command="=cmd|' /C'!A0"),
        ),
        engines=(Engine("ollama", EngineState.UP, port=11434, models=(model,)),),
    )
    status = HostStatus(HostState.UP, since=second)
    return HostView(host, status, snapshot, address="10.0.0.1", **more)  # type: ignore[arg-type]


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "state" / "gpumon.db"


@pytest.fixture
def view() -> Callable[..., HostView]:
    return make_view

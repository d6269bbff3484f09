"""``gpumon snapshot``: read every host once and print it."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import replace

from gpumon import __version__
from gpumon.codec import encode_view
from gpumon.collectors.fleet import Fleet
from gpumon.inventory import Inventory
from gpumon.placement import shown_processor, size_text
from gpumon.snapshot import (
    EngineState,
    Gpu,
    HostSnapshot,
    HostState,
    HostView,
    NvmlState,
)
from gpumon.text import safe
from gpumon.tui.commands.finishing import finish
from gpumon.tui.commands.settings import read_inventory, start_log
from gpumon.tui.exit_codes import ExitCode

__all__ = ["run"]

_GIB = 2**30
#: Rates need two samples; nobody should wait longer for the second one.
_PACE_S = 1.0
_ENDED = frozenset({HostState.DOWN, HostState.BLOCKED, HostState.DISABLED})


def run(options: argparse.Namespace) -> int:
    """Print one round; the status says whether every enabled host answered."""
    inventory = read_inventory(options)
    start_log(options)
    if options.interval is None:
        hosts = (
            replace(host, interval_s=min(host.interval_s, _PACE_S)) for host in inventory.hosts
        )
        inventory = replace(inventory, hosts=tuple(hosts))
    views = asyncio.run(_read_once(inventory, options.timeout))
    if options.json:
        print(json.dumps(_document(views, time.time()), indent=1, allow_nan=False))
    else:
        for line in _table(views, time.time()):
            print(line)
    return ExitCode.OK if all(map(_has_answered, views)) else ExitCode.HOST_FAILED


def _document(views: Sequence[HostView], now: float) -> dict[str, object]:
    answered = all(map(_has_answered, views))
    hosts = [encode_view(view) for view in views]
    return {"gpumon": __version__, "at": now, "all_answered": answered, "hosts": hosts}


def _has_answered(view: HostView) -> bool:
    """True for a host with a sample whose connection holds, and for one that is not asked."""
    if view.status.state is HostState.DISABLED:
        return True
    return view.snapshot is not None and view.status.state is HostState.UP


def _is_whole(snapshot: HostSnapshot) -> bool:
    """True once rates are known and neither driver nor engines are still being asked."""
    return (
        snapshot.seq >= 1
        and snapshot.nvml.state is not NvmlState.STARTING
        and all(engine.state is not EngineState.STARTING for engine in snapshot.engines)
        and all(
            model.unknown.get("runner") != "not-read"
            for engine in snapshot.engines
            for model in engine.models
        )
    )


async def _read_once(inventory: Inventory, timeout_s: float) -> list[HostView]:
    """The views once every host has given a whole sample or failed, or time is up."""
    total = len(inventory.hosts)
    waiting = {host.name for host in inventory.hosts}
    done = asyncio.Event()
    progress = sys.stderr.isatty()

    def take(view: HostView) -> None:
        whole = view.snapshot is not None and _is_whole(view.snapshot)
        if whole or view.status.state in _ENDED:
            waiting.discard(view.host)
        if progress:
            print(f"\r{total - len(waiting)} of {total} hosts", end="", file=sys.stderr)
        if not waiting:
            done.set()

    fleet = Fleet(inventory.hosts, on_view=take)
    task = asyncio.create_task(fleet.run())
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await done.wait()
        return fleet.views()
    finally:
        await finish(_end(task))
        if progress:
            print("\r\x1b[K", end="", file=sys.stderr)


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def _table(views: Sequence[HostView], now: float) -> list[str]:
    lines = []
    for view in views:
        lines.append(f"{safe(view.host, 40)}  {_headline(view, now)}")
        if view.status.fix and view.status.state is not HostState.UP:
            lines.append(f"  next: {safe(view.status.fix, 300)}")
        snapshot = view.snapshot
        if snapshot is None:
            continue
        lines.extend(f"  {_gpu_line(gpu)}" for gpu in snapshot.gpus)
        for engine in snapshot.engines:
            version = f" {safe(engine.version, 40)}" if engine.version else ""
            said = f": {safe(engine.detail, 200)}" if engine.detail else ""
            lines.append(f"  {engine.kind}{version} port {engine.port} {engine.state}{said}")
            for model in engine.models:
                size = size_text(model.size_bytes) if model.size_bytes else "n/a"
                split = "loading" if model.loading else shown_processor(model)
                lines.append(f"    {safe(model.name, 60)}  {size}  {split}")
    return lines


def _headline(view: HostView, now: float) -> str:
    snapshot = view.snapshot
    if snapshot is None:
        return f"{view.status.state}: {safe(view.status.detail or 'no answer in time', 300)}"
    system = snapshot.system
    used, total = system.memory_used_bytes, system.memory_total_bytes
    parts = [
        str(view.status.state),
        f"age {view.age_s(now) or 0.0:.0f} s",
        f"cpu {_number(system.cpu_percent, ' %')}",
        f"RAM {_gib(used)}/{_gib(total)} GiB",
    ]
    if snapshot.nvml.state is not NvmlState.ABSENT:
        detail = f" ({safe(snapshot.nvml.detail, 120)})" if snapshot.nvml.detail else ""
        parts.append(f"driver {snapshot.nvml.driver_version or snapshot.nvml.state}{detail}")
    return "  ".join(parts)


def _gpu_line(gpu: Gpu) -> str:
    indent = "  " if gpu.parent_uuid else ""
    label = "MIG" if gpu.parent_uuid else f"GPU {'?' if gpu.index is None else gpu.index}"
    name = safe(gpu.name or "n/a", 30)
    if gpu.state != "ok":
        return f"{indent}{label}  {name:<30} {gpu.state}: {safe(gpu.detail or '', 120)}"
    return (
        f"{indent}{label}  {name:<30} util {_number(gpu.util_percent, ' %')}"
        f"  VRAM {_gib(gpu.memory_used_bytes)}/{_gib(gpu.memory_total_bytes)} GiB"
        f"  {_number(gpu.temperature_c, ' °C')}  {_number(gpu.power_w, ' W')}"
    )


def _number(value: float | None, unit: str) -> str:
    return "n/a" if value is None else f"{value:.0f}{unit}"


def _gib(value: int | None) -> str:
    return "n/a" if value is None else f"{value / _GIB:.1f}"

"""What collecting costs with 10, 100 and 1000 hosts of 8 GPUs at 2 s, storing included.

Each size runs in a fresh process: ``Fleet`` and ``StoreWriter`` as ``gpumon collect`` joins
them, over real SSH to simulated hosts (12.8 kB a line: 8 cards, 4 GPU processes, an Ollama).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure, percentile
from tests.rig.scale import ScaleFleet, address_of

__all__ = ["measure"]

_BUDGETS = {10: None, 100: 3.0, 200: None, 1000: 15.0}
_CONNECT_LIMIT_S = 90.0


async def _collect(hosts: int, port: int, database: str, seconds: float) -> dict[str, Any]:
    from gpumon.collectors.fleet import Fleet
    from gpumon.inventory import HostConfig, Retention
    from gpumon.snapshot import HostView
    from gpumon.store import open_writer

    configs = [
        HostConfig(f"sim-{number:04d}", address=address_of(number), port=port)
        for number in range(hosts)
    ]
    writer = open_writer(Path(database), retention=Retention())
    heard: set[str] = set()
    everyone = asyncio.Event()
    lags: list[float] = []

    def take(view: HostView) -> None:
        writer.offer(view)
        snapshot = view.snapshot
        if snapshot is None:
            return
        if snapshot.clock_skew_s is not None:
            # both clocks are this machine's
            lags.append(time.time() - snapshot.received_at - snapshot.clock_skew_s)
        heard.add(view.host)
        if len(heard) == hosts:
            everyone.set()

    fleet = Fleet(configs, on_view=take)
    began, cpu_began = time.perf_counter(), time.process_time()
    tasks = [asyncio.create_task(fleet.run()), asyncio.create_task(writer.run())]
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(everyone.wait(), _CONNECT_LIMIT_S)
    connect_s, connect_cpu_s = time.perf_counter() - began, time.process_time() - cpu_began
    await asyncio.sleep(6)
    lags.clear()
    began, cpu_began = time.perf_counter(), time.process_time()
    await asyncio.sleep(seconds)
    took_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu_began
    counted = len(lags)
    found = {
        "connect_s": connect_s,
        "heard": len(heard),
        "connect_cpu_ms": 1000 * connect_cpu_s / hosts,
        "cpu_s_per_min": 60 * cpu_s / took_s,
        "ms_per_sample": 1000 * cpu_s / max(1, counted),
        "rss_mb": int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6,
        "lag_p99_s": percentile(lags, 0.99),
        "samples": counted,
        "expected": hosts * took_s / 2,
        "trouble": writer.trouble,
    }
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await writer.close()
    return found


def _run(hosts: int, seconds: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name, ScaleFleet(hosts, Path(name) / "sim") as fleet:
        words = [sys.executable, "-m", "benchmarks.collector", str(hosts), str(fleet.port)]
        words += [f"{name}/gpumon.db", str(seconds)]
        env = {"HOME": name, "PATH": "/usr/bin:/bin", **fleet.environment}
        done = subprocess.run(
            words, env=env, check=False, stdout=subprocess.PIPE, cwd=Path(__file__).parents[1]
        )
        if done.returncode != 0:
            raise RuntimeError(f"the collector of {hosts} hosts failed")
        return dict(json.loads(done.stdout))


def measure(*, quick: bool = False) -> list[Figure]:
    """Run each size."""
    figures = []
    for hosts, budget in _BUDGETS.items():
        seconds = 10.0 if quick else 30.0
        found = _run(hosts, seconds)
        note = f"{found['samples']} samples, {found['expected']:.0f} due"
        if found["heard"] < hosts:
            note += f"; only {found['heard']} hosts spoke in {_CONNECT_LIMIT_S:.0f} s"
        if found["trouble"]:
            note += f"; store: {found['trouble']}"
        name = f"{hosts} hosts"
        memory_mb = 80 + 0.06 * hosts
        connect = 5.0 if hosts <= 200 else None
        figures += [
            Figure(f"collector, {name}", found["cpu_s_per_min"], "CPU s/min", budget, note),
            Figure(f"  {name}: one sample to row", found["ms_per_sample"], "ms CPU", 0.4),
            Figure(f"  {name}: memory", found["rss_mb"], "MB", memory_mb),
            Figure(f"  {name}: all connected", found["connect_s"], "s", connect),
            Figure(f"  {name}: connecting one", found["connect_cpu_ms"], "ms CPU", 10),
            Figure(f"  {name}: sample to view, p99", found["lag_p99_s"], "s", 0.3),
        ]
    return figures


if __name__ == "__main__":
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65536), hard))
    given = sys.argv[1:]
    print(
        json.dumps(asyncio.run(_collect(int(given[0]), int(given[1]), given[2], float(given[3]))))
    )

"""What the screens cost: CPU, bytes to the terminal and memory, 8 hosts x 8 GPUs at 1 Hz.

The whole program is measured as a user runs it: collecting over SSH, storing and drawing.
``gpumon collect`` of the same hosts is measured beside it: the difference is the screens'.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.figures import Figure, cpu_s, rss_mb
from benchmarks.screen import Screen, gpumon_command
from tests.rig.scale import ScaleFleet

__all__ = ["measure"]

_HOSTS = 8
_SETTLE_S = 6.0


def _run(
    command: Sequence[str], env: Mapping[str, str], seconds: float
) -> tuple[float, float, float, float]:
    """(CPU % of a core, bytes/s, bytes/s while paused, MB)."""
    with Screen(command, env) as screen:
        last = f"sim-{_HOSTS - 1:04d}"
        screen.wait_for(lambda text: last in text and "connecting" not in text)
        screen.read(_SETTLE_S)
        cpu, sent, began = cpu_s(screen.pid), screen.bytes, time.perf_counter()
        screen.read(seconds)
        took_s = time.perf_counter() - began
        cpu, rate = cpu_s(screen.pid) - cpu, (screen.bytes - sent) / took_s
        memory = rss_mb(screen.pid)
        screen.type(b" ")
        screen.read(2)
        sent, began = screen.bytes, time.perf_counter()
        screen.read(seconds / 3)
        paused = (screen.bytes - sent) / (time.perf_counter() - began)
    return 100 * cpu / took_s, rate, paused, memory


def _collect_percent(config: Path, env: Mapping[str, str], seconds: float) -> float:
    command = [*gpumon_command(), "collect", "--config", str(config)]
    with subprocess.Popen(command, env=env, stderr=subprocess.DEVNULL) as collector:
        try:
            time.sleep(_SETTLE_S)
            before = cpu_s(collector.pid)
            time.sleep(seconds)
            return 100 * (cpu_s(collector.pid) - before) / seconds
        finally:
            collector.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                collector.wait(10)


def _viewer_percent(config: Path, env: Mapping[str, str], seconds: float) -> float:
    """A second gpumon on the same database draws the same and collects nothing."""
    command = [*gpumon_command(), "collect", "--config", str(config)]
    with subprocess.Popen(command, env=env, stderr=subprocess.DEVNULL) as collector:
        try:
            time.sleep(_SETTLE_S)
            viewer = [*gpumon_command(), "--config", str(config), "--theme", "ansi"]
            with Screen(viewer, env) as screen:
                screen.wait_for(lambda text: f"sim-{_HOSTS - 1:04d}" in text)
                screen.read(_SETTLE_S)
                before, began = cpu_s(screen.pid), time.perf_counter()
                screen.read(seconds)
                return 100 * (cpu_s(screen.pid) - before) / (time.perf_counter() - began)
        finally:
            collector.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                collector.wait(10)


def measure(*, quick: bool = False) -> list[Figure]:
    """Run the program twice (16 colours, 16 million colours) and its parts once."""
    seconds = 9.0 if quick else 30.0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with ScaleFleet(_HOSTS, folder / "sim", interval_s=1.0) as fleet:
            config = fleet.write_config(folder / "sim" / "config.toml")
            base = {
                **{k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLORTERM")},
                **fleet.environment,
                **{"HOME": name, "XDG_CONFIG_HOME": f"{name}/config"},
                "TERM": "xterm-256color",
            }

            def env(run: str) -> dict[str, str]:
                return {**base, "XDG_STATE_HOME": f"{name}/{run}"}

            command = [*gpumon_command(), "--config", str(config), "--theme"]
            ansi = _run([*command, "ansi"], env("ansi"), seconds)
            true_env = {**env("true"), "COLORTERM": "truecolor"}
            true = _run([*command, "dark"], true_env, seconds)
            collect = _collect_percent(config, env("collect"), seconds)
            viewer = _viewer_percent(config, env("viewer"), seconds)
    note = f"over {seconds:.0f} s, 120x40, every figure changes every second"
    return [
        Figure("screens, as a viewer (no collecting)", viewer, "% core", 3, note),
        Figure("whole program: collect, store, draw", ansi[0], "% core", None, note),
        Figure("  of which gpumon collect alone", collect, "% core", None, "interval 1 s"),
        Figure("terminal, ansi", ansi[1] / 1000, "KB/s", 10),
        Figure("terminal, truecolor", true[1] / 1000, "KB/s", 20),
        Figure("terminal, paused", max(ansi[2], true[2]) / 1000, "KB/s", None, "budget 0"),
        Figure("memory, whole program", max(ansi[3], true[3]), "MB", 90),
    ]

"""How soon gpumon is there: help, one snapshot, first paint, first live sample."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks.figures import Figure, median
from benchmarks.screen import Screen, gpumon_command
from tests.rig.scale import ScaleFleet

__all__ = ["measure"]

_HOSTS = 8


def _times_ms(command: Sequence[str], env: Mapping[str, str], rounds: int) -> list[float]:
    taken = []
    for _ in range(rounds):
        before = time.perf_counter()
        done = subprocess.run(command, env=env, check=False, capture_output=True)
        taken.append((time.perf_counter() - before) * 1000)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr.decode()}")
    return taken


def _paint_ms(
    command: Sequence[str], env: Mapping[str, str], shown: Callable[[str], bool], rounds: int
) -> list[float]:
    taken = []
    for _ in range(rounds):
        with Screen(command, env) as screen:
            taken.append(screen.wait_for(shown) * 1000)
    return taken


def _is_live(text: str) -> bool:
    """The one row of this machine has an age and no longer says that it connects."""
    row = text.splitlines()[2]
    return "cpu" in row and "connecting" not in row


def _alone(env: Mapping[str, str], folder: Path, rounds: int) -> list[float]:
    taken = []
    for number in range(rounds):
        # an empty database each time, so that what is shown is live
        fresh = {**env, "XDG_STATE_HOME": str(folder / f"empty-{number}")}
        taken += _paint_ms(gpumon_command(), fresh, _is_live, 1)
    return taken


def measure(*, quick: bool = False) -> list[Figure]:
    """Start everything several times; the median counts."""
    rounds = 3 if quick else 7
    gpumon = gpumon_command()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        env = {
            **os.environ,
            **{"HOME": name, "XDG_CONFIG_HOME": f"{name}/config", "TERM": "xterm-256color"},
            "XDG_STATE_HOME": f"{name}/state",
        }
        helped = _times_ms([*gpumon, "--help"], env, rounds + 2)
        snapped = _times_ms([*gpumon, "snapshot", "--table"], env, rounds)
        with ScaleFleet(_HOSTS, folder / "sim", interval_s=1.0) as fleet:
            config = fleet.write_config(folder / "sim" / "config.toml")
            env |= fleet.environment
            command = [*gpumon, "--config", str(config), "--theme", "ansi"]
            with Screen(command, env) as screen:
                last = f"sim-{_HOSTS - 1:04d}"
                screen.wait_for(lambda text: last in text and "connecting" not in text)
                screen.read(12)  # the views are stored every 10 s

            def stored(text: str) -> bool:
                return all(f"sim-{n:04d}" in text for n in range(_HOSTS)) and "%" in text

            painted = _paint_ms(command, env, stored, rounds)
        live = _alone(env, folder, rounds)
    note = f"median of {rounds}"
    return [
        Figure("gpumon --help", median(helped), "ms", 60, note),
        Figure("first paint, 8 hosts from the stored snapshot", median(painted), "ms", 350, note),
        Figure("first live sample of this machine", median(live), "ms", 1000, note),
        Figure("gpumon snapshot of this machine", median(snapped), "ms", None, note),
    ]

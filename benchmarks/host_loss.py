"""How soon a host that fails is noticed and its cause named, and what the others feel.

Four ways to fail at once, with hosts in namespaces of their own: frozen (SIGSTOP), cut off
(packets dropped), switched off (killed), and a driver that begins to hang.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.figures import Figure
from gpumon.collectors.fleet import Fleet
from gpumon.inventory import HostConfig
from gpumon.snapshot import HostState, HostView, NvmlState
from tests.rig.need import netns_trouble
from tests.rig.network import Network
from tests.rig.nvml_mock import scenarios
from tests.rig.nvml_mock.build import environment as nvml_environment
from tests.rig.sshd import Client, SshHost

__all__ = ["measure"]

_NAMES = ("steady", "frozen", "cut-off", "killed", "hanging")
_WATCH_S = 26.0


class _Record:
    def __init__(self) -> None:
        self.seen: list[tuple[float, HostView]] = []

    def hear(self, view: HostView) -> None:
        self.seen.append((time.monotonic(), view))

    def first(self, host: str, after: float, true: Callable[[HostView], bool]) -> float:
        return next(
            (at for at, view in self.seen if view.host == host and at > after and true(view)),
            float("nan"),
        )

    def last_sample(self, host: str, before: float) -> float:
        return max(
            at
            for at, view in self.seen
            if view.host == host and at <= before and view.status.state is HostState.UP
        )


async def _watch(hosts: dict[str, SshHost], scenario: Path) -> tuple[_Record, float, float]:
    record = _Record()
    configs = [HostConfig(name, address=name) for name in _NAMES]
    fleet = Fleet(configs, on_view=record.hear)
    running = asyncio.create_task(fleet.run())
    while not all(view.snapshot and view.snapshot.seq >= 3 for view in fleet.views()):
        await asyncio.sleep(0.1)
    failed = time.monotonic()
    hosts["frozen"].freeze()
    hosts["killed"].stop()
    scenarios.hang(scenario, hung=True)
    hosts["cut-off"].drop()
    await asyncio.sleep(_WATCH_S)
    ended = time.monotonic()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    hosts["frozen"].thaw()
    return record, failed, ended


def measure(*, quick: bool = False) -> list[Figure]:
    """One run; ``quick`` makes no difference."""
    if (trouble := netns_trouble()) is not None:
        print(f"host_loss: left out: {trouble}")
        return []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        network, client = Network(), Client(folder / "client")
        try:
            scenario = scenarios.hang(folder / "nvml.ini", hung=False)
            hosts = {
                one: SshHost(
                    one,
                    folder / one,
                    client,
                    network,
                    environment=nvml_environment(scenario) if one == "hanging" else {},
                ).start()
                for one in _NAMES
            }
            os.environ.update(client.environment)
            record, failed, ended = asyncio.run(_watch(hosts, scenario))
        finally:
            network.close()
    figures = []
    for one in ("frozen", "cut-off"):
        heard = record.last_sample(one, failed + 1)
        stale = record.first(one, heard, lambda view: view.status.state is HostState.STALE)
        down = record.first(one, heard, lambda view: view.status.state is HostState.DOWN)
        figures += [
            Figure(f"{one} host called stale", stale - heard, "s", 6, "after its last sample"),
            Figure(f"{one} host's cause named", down - heard, "s", 15, "and reconnecting"),
        ]
    down = record.first("killed", failed, lambda view: view.status.state is HostState.DOWN)
    figures.append(Figure("killed host's cause named", down - failed, "s", 15))
    hung = record.first(
        "hanging",
        failed,
        lambda view: view.snapshot is not None and view.snapshot.nvml.state is NvmlState.HUNG,
    )
    figures.append(Figure("hung driver named", hung - failed, "s", 15, "its /proc figures flow"))
    for one in ("steady", "hanging"):
        beats = [
            at
            for at, view in record.seen
            if view.host == one and view.status.state is HostState.UP and failed <= at <= ended
        ]
        worst = max(after - before for before, after in itertools.pairwise(beats))
        figures.append(Figure(f"oldest age of the {one} host meanwhile", worst, "s", 4))
    return figures

"""What a probe costs its host, and how soon it is gone when nobody listens.

A real host of the rig (sshd, network and processes of its own) with eight cards of the mock
driver, at 2 s; ``/proc`` is asked, not the probe.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.figures import Figure, cpu_s, median, rss_mb
from tests.rig.need import netns_trouble
from tests.rig.network import Network
from tests.rig.nvml_mock.build import environment as nvml_environment
from tests.rig.nvml_mock.scenarios import eight_with_lost_and_na
from tests.rig.sshd import Client, SshHost, wait_until

__all__ = ["measure"]

_CLIENT = (
    "import asyncio,sys;from gpumon.collectors.fleet import Fleet;"
    "from gpumon.inventory import HostConfig;"
    "asyncio.run(Fleet([HostConfig(n,address=n) for n in sys.argv[1:]]).run())"
)


def _start_client(host: SshHost) -> subprocess.Popen[bytes]:
    client = subprocess.Popen(
        [sys.executable, "-c", _CLIENT, host.name],
        cwd=Path(__file__).parents[1],
        env={**os.environ, **host.client.environment},
    )
    wait_until(host.probes, 20, "the probe")
    return client


def _kill(client: subprocess.Popen[bytes]) -> float:
    client.send_signal(signal.SIGKILL)
    client.wait()
    return time.perf_counter()


def _cost(host: SshHost, seconds: float) -> tuple[float, float]:
    """(% of a core, MB) of the one probe, once it has settled."""
    client = _start_client(host)
    try:
        time.sleep(5)
        (probe,) = [one.pid for one in host.probes()]
        before, began = cpu_s(probe), time.perf_counter()
        time.sleep(seconds)
        cpu = 100 * (cpu_s(probe) - before) / (time.perf_counter() - began)
        return cpu, rss_mb(probe)
    finally:
        _kill(client)
        wait_until(lambda: not host.probes(), 40, "the probe's end")


def _gone_after_kill_s(host: SshHost, rounds: int) -> list[float]:
    taken = []
    for _ in range(rounds):
        client = _start_client(host)
        killed = _kill(client)
        wait_until(lambda: not host.probes(), 40, "the probe's end")
        taken.append(time.perf_counter() - killed)
    return taken


def _gone_after_cut_s(host: SshHost) -> float:
    """Packets are dropped and the client is killed: no end of file ever arrives."""
    client = _start_client(host)
    time.sleep(6)  # a heartbeat was there
    host.drop()
    cut = time.perf_counter()
    _kill(client)
    try:
        wait_until(lambda: not host.probes(), 60, "the probe's end")
        return time.perf_counter() - cut
    finally:
        host.restore()


def measure(*, quick: bool = False) -> list[Figure]:
    """Run the parts one after the other; ``quick`` leaves the silent cut out."""
    if (trouble := netns_trouble()) is not None:
        print(f"probe: left out: {trouble}")
        return []
    seconds, rounds = (10.0, 3) if quick else (40.0, 10)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        network = Network()
        try:
            scenario = eight_with_lost_and_na(folder / "nvml.ini")
            host = SshHost(
                "gpus",
                folder / "gpus",
                Client(folder / "client"),
                network,
                environment=nvml_environment(scenario),
            ).start()
            bare = SshHost("bare", folder / "bare", host.client, network).start()
            cpu, memory = _cost(host, seconds)
            bare_cpu, bare_memory = _cost(bare, seconds)
            gone = _gone_after_kill_s(host, rounds)
            cut = None if quick else _gone_after_cut_s(host)
        finally:
            network.close()
    figures = [
        Figure("probe, 8 GPUs at 2 s", cpu, "% core", 0.5, "mock driver"),
        Figure("probe, 8 GPUs: memory", memory, "MB", 30),
        Figure("probe, no GPU at 2 s", bare_cpu, "% core", 0.5),
        Figure("probe, no GPU: memory", bare_memory, "MB", 30),
        Figure("probe gone after its client's kill -9", max(gone), "s", 1, f"worst of {rounds}"),
        Figure("  median", median(gone), "s"),
    ]
    if cut is not None:
        figures.append(Figure("probe gone after a silent cut", cut, "s", 35))
    return figures

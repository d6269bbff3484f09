"""The whole way at once: every named host of the rig, from real sshd to ``HostView``.

One run of ``Fleet`` over all hosts is watched and kept; the tests ask what was seen.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gpumon.collectors.fleet import Fleet
from gpumon.inventory import HostConfig
from gpumon.snapshot import (
    Cause,
    Engine,
    EngineState,
    GpuState,
    HostSnapshot,
    HostState,
    HostView,
    NvmlState,
    SlotActivity,
)
from tests.rig.fleet import RigFleet
from tests.rig.need import need
from tests.rig.network import Network
from tests.rig.nvml_mock.scenarios import lost_uuid
from tests.rig.scale import ScaleFleet
from tests.rig.sshd import Client, SshHost, wait_until

#: What is healthy throughout, and so must not feel the others' troubles.
STEADY = ("berlin-1", "ams-mig", "cpu-vps", "no-python", "hung")


@dataclass
class Story:
    """All views of one run with the second each came at, and what was done when."""

    seen: list[tuple[float, HostView]] = field(default_factory=list)
    frozen_at: float = 0.0
    thawed_at: float = 0.0
    ended_at: float = 0.0
    #: probes that were still on a host after the run, by host
    left: dict[str, list[tuple[str, ...]]] = field(default_factory=dict)

    def hear(self, view: HostView) -> None:
        self.seen.append((time.monotonic(), view))

    def of(self, host: str) -> list[tuple[float, HostView]]:
        return [(at, view) for at, view in self.seen if view.host == host]

    def last_snapshot(self, host: str) -> HostSnapshot:
        found = [view.snapshot for _, view in self.of(host) if view.snapshot is not None]
        assert found, f"{host} never spoke: {self.of(host)[-1:]}"
        return found[-1]

    def first(self, host: str, true: Callable[[HostView], bool], after: float = 0.0) -> float:
        """When a view of the host first was so; inf where it never was."""
        return next((at for at, view in self.of(host) if at >= after and true(view)), float("inf"))

    def engines(self) -> Iterator[Engine]:
        for _, view in self.of("cpu-vps"):
            if view.snapshot is not None:
                yield from view.snapshot.engines


async def _until(story: Story, true: Callable[[], object], timeout_s: float, what: str) -> None:
    end = time.monotonic() + timeout_s
    while not true():
        if time.monotonic() > end:
            latest = {view.host: view for _, view in story.seen}
            states = [f"{name}: {view.status}" for name, view in latest.items()]
            raise AssertionError(f"waited {timeout_s} s for {what}; " + "; ".join(states))
        await asyncio.sleep(0.05)


def _shifted(story: Story) -> bool:
    """A slot was seen decoding at a rate, and seen to forget half of its context."""
    slots = [
        slot
        for engine in story.engines()
        for model in engine.models
        if model.runner is not None
        for slot in model.runner.slots or ()
    ]
    return any(slot.context_shifts for slot in slots) and any(
        slot.activity is SlotActivity.DECODE and slot.decode_tokens_per_s for slot in slots
    )


async def _watch(rig: RigFleet) -> Story:
    story = Story()
    fleet = Fleet(rig.configs, on_view=story.hear)
    running = asyncio.create_task(fleet.run())
    try:
        await _until(
            story,
            lambda: all(
                any(view.snapshot and view.snapshot.seq >= 2 for _, view in story.of(name))
                for name in (*STEADY, "frozen")
            ),
            40,
            "samples of all healthy hosts",
        )
        rig.hosts["frozen"].freeze()
        story.frozen_at = time.monotonic()
        runner = rig.models[0]
        talk = (
            "import urllib.request as u;u.urlopen(u.Request("
            f"'http://127.0.0.1:{runner.port}/completion',"
            'b\'{"prompt":"hello","n_predict":1000000,"ignore_eos":true}\')).read()'
        )
        words = [str(rig.folder / "cpu-vps/bin/python3"), "-ISc", talk]
        talking = rig.hosts["cpu-vps"].run_inside(words, stderr=subprocess.DEVNULL)
        await _until(story, lambda: _shifted(story), 40, "a context shift")
        talking.kill()
        talking.wait()
        await _until(
            story,
            lambda: fleet.views()[rig.names.index("frozen")].status.state is HostState.DOWN,
            30,
            "the frozen host to be given up",
        )
        await _until(
            story,
            lambda: (
                story.first("tarpit", lambda view: view.status.cause is not Cause.NONE)
                < float("inf")
            ),
            30,
            "the tarpit's cause",
        )
        rig.hosts["frozen"].thaw()
        story.thawed_at = time.monotonic()
        await fleet.retry("frozen")
        await _until(
            story,
            lambda: (
                story.first(
                    "frozen", lambda view: view.status.state is HostState.UP, story.thawed_at
                )
                < float("inf")
            ),
            40,
            "the thawed host to come back",
        )
    finally:
        rig.hosts["frozen"].thaw()
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        story.ended_at = time.monotonic()
    with contextlib.suppress(AssertionError):
        wait_until(lambda: not any(host.probes() for host in rig.hosts.values()), 3)
    story.left = {
        name: [one.arguments for one in host.probes()] for name, host in rig.hosts.items()
    }
    return story


@pytest.fixture(scope="module")
def story(rig_fleet: RigFleet) -> Story:
    need("netns")
    return asyncio.run(_watch(rig_fleet))


def test_eight_gpus_one_lost_one_without_values(story: Story) -> None:
    snapshot = story.last_snapshot("berlin-1")
    assert snapshot.facts.hostname == "berlin-1"
    assert snapshot.nvml.state is NvmlState.OK
    assert snapshot.nvml.driver_version == "610.57.04"
    assert [gpu.index for gpu in snapshot.gpus] == list(range(8))
    lost = snapshot.gpus[5]
    assert (lost.state, lost.uuid) == (GpuState.LOST, lost_uuid())
    assert lost.util_percent is None
    assert lost.unknown["util_percent"] == "lost"
    silent = snapshot.gpus[6]
    assert silent.state is GpuState.OK
    assert (silent.util_percent, silent.power_w) == (None, None)
    assert silent.unknown["util_percent"] == "unsupported"
    assert silent.memory_used_bytes == 41007 * 1024**2
    healthy = [gpu for gpu in snapshot.gpus if gpu.index not in (5, 6)]
    assert all(gpu.state is GpuState.OK and gpu.util_percent is not None for gpu in healthy)
    assert all(gpu.memory_total_bytes == 81559 * 1024**2 for gpu in healthy)


def test_a_process_on_two_cards_has_two_rows_joined_with_proc(story: Story) -> None:
    snapshot = story.last_snapshot("berlin-1")
    assert snapshot.processes is not None
    rows = [row for row in snapshot.processes if "finetune.py" in (row.command or "")]
    assert [row.gpu_uuid for row in rows] == [snapshot.gpus[0].uuid, snapshot.gpus[1].uuid]
    assert [row.memory_bytes for row in rows] == [67_243_081_728, 66_120_056_832]
    assert len({(row.pid, row.start_ticks) for row in rows}) == 1
    assert rows[0].name == "python3.11"
    assert rows[0].user is not None
    assert rows[0].start_ticks is not None


def test_mig_slices_under_their_parent(story: Story) -> None:
    gpus = story.last_snapshot("ams-mig").gpus
    parents = [gpu for gpu in gpus if gpu.parent_uuid is None]
    slices = [gpu for gpu in gpus if gpu.parent_uuid is not None]
    assert [gpu.mig_mode for gpu in parents] == [True, False]
    assert parents[0].util_percent is None
    assert parents[0].unknown["util_percent"] == "mig-parent"
    assert [gpu.mig_profile for gpu in slices] == ["3g.40gb", "2g.20gb", "1g.10gb"]
    assert {gpu.parent_uuid for gpu in slices} == {parents[0].uuid}
    assert [gpu.memory_total_bytes for gpu in slices] == [
        size * 1024**2 for size in (40320, 19968, 9856)
    ]


def test_a_host_without_gpu_is_first_class(story: Story) -> None:
    snapshot = story.last_snapshot("cpu-vps")
    assert snapshot.nvml.state is NvmlState.ABSENT
    assert snapshot.gpus == ()
    system = snapshot.system
    assert system.cpu_percent is not None
    assert system.memory_total_bytes is not None
    assert system.load_1 is not None
    assert any(disk.path == "/" and disk.total_bytes for disk in system.disks)


def test_ollamas_models_are_joined_to_their_runners(story: Story, rig_fleet: RigFleet) -> None:
    (engine,) = story.last_snapshot("cpu-vps").engines
    assert (engine.kind, engine.state, engine.port) == ("ollama", EngineState.UP, 11434)
    assert engine.version == "0.33.0-rc2"
    assert engine.settings["OLLAMA_KEEP_ALIVE"] == "5m"
    assert engine.installed is not None
    assert "gemma3:270m" in engine.installed
    models = {model.name: model for model in engine.models}
    assert set(models) == {loaded.name for loaded in rig_fleet.models}
    for loaded in rig_fleet.models:
        model = models[loaded.name]
        assert not model.loading
        assert model.context_tokens == loaded.context
        assert model.size_bytes == {2048: 8011119, 8192: 28573695}[loaded.context]
        runner = model.runner
        assert runner is not None
        assert runner.model_path == str(loaded.blob)
        assert (runner.port, runner.parallel_slots) == (loaded.port, 1)
        assert (runner.context_total_tokens, runner.batch) == (loaded.context, loaded.batch)
        assert runner.context_shift is True
        assert runner.slots is not None
        assert [slot.context_tokens for slot in runner.slots] == [loaded.context]


def test_used_tokens_grow_and_a_context_shift_is_seen(story: Story) -> None:
    assert _shifted(story)
    used = [
        slot.used_tokens
        for engine in story.engines()
        for model in engine.models
        if model.name == "tiny-llama:latest" and model.runner
        for slot in model.runner.slots or ()
        if slot.used_tokens is not None
    ]
    assert used[0] < max(used) <= 2048


def test_no_python_falls_back_to_nvidia_smi(story: Story) -> None:
    snapshot = story.last_snapshot("no-python")
    assert snapshot.source == "nvidia-smi"
    assert snapshot.facts.hostname == "no-python"
    assert [gpu.util_percent for gpu in snapshot.gpus] == [87.0, 0.0]
    assert snapshot.gpus[1].power_w is None
    assert snapshot.gpus[1].unknown["power_w"] == "unsupported"
    assert snapshot.gpus[0].unknown["energy_j"] == "fallback"
    assert snapshot.system.memory_total_bytes is not None


def test_a_hung_driver_is_named_while_the_machine_is_read(story: Story) -> None:
    views = [view for _, view in story.of("hung")]
    snapshot = story.last_snapshot("hung")
    assert views[-1].status.state is HostState.UP
    assert snapshot.nvml.state is NvmlState.HUNG
    assert snapshot.nvml.hung_call is not None
    assert "UtilizationRates" in snapshot.nvml.hung_call
    assert snapshot.nvml.hung_s is not None
    assert snapshot.nvml.hung_s > 5
    cpu = {
        view.snapshot.system.cpu_percent
        for view in views
        if view.snapshot is not None and view.snapshot.nvml.state is NvmlState.HUNG
    }
    assert len(cpu) > 2, "its CPU is read on and on"


def test_a_changed_key_blocks_and_names_the_command(story: Story, rig_fleet: RigFleet) -> None:
    status = story.of("changed-key")[-1][1].status
    assert (status.state, status.cause) == (HostState.BLOCKED, Cause.KEY_CHANGED)
    assert status.fix is not None
    assert "ssh-keygen -R" in status.fix
    assert str(rig_fleet.client.known_hosts) in status.fix
    assert status.retry_at is None
    connects = rig_fleet.hosts["changed-key"].logged("Connection from")
    assert connects <= 1, "it is not tried again by itself"


def test_refused_and_tarpit_are_told_apart(story: Story) -> None:
    refused = story.of("refused")[-1][1].status
    assert refused.cause is Cause.REFUSED
    tarpit = story.of("tarpit")[-1][1].status
    assert tarpit.cause is Cause.TIMED_OUT
    assert tarpit.detail is not None
    assert tarpit.detail.startswith("tarpit: ")
    began = story.seen[0][0]
    named = story.first("tarpit", lambda view: view.status.cause is Cause.TIMED_OUT)
    assert named - began < 15


def test_a_frozen_host_is_stale_in_6_s_and_named_in_15_s(story: Story) -> None:
    heard = [
        at
        for at, view in story.of("frozen")
        if at <= story.frozen_at + 1 and view.status.state is HostState.UP
    ][-1]
    stale = story.first("frozen", lambda view: view.status.state is HostState.STALE, heard)
    assert stale - heard <= 6.5
    named = story.first("frozen", lambda view: view.status.state is HostState.DOWN, heard)
    assert named - heard <= 15
    down = next(v for at, v in story.of("frozen") if at == named)
    assert down.status.cause in (Cause.SILENT, Cause.CONNECTION_LOST, Cause.TIMED_OUT)
    assert down.snapshot is not None, "the last values stay"


def test_the_others_do_not_feel_it(story: Story) -> None:
    for name in STEADY:
        beats = [
            at
            for at, view in story.of(name)
            if view.status.state is HostState.UP and story.frozen_at <= at <= story.thawed_at
        ]
        gaps = [after - before for before, after in itertools.pairwise(beats)]
        assert len(gaps) >= 4
        assert max(gaps) < 4.0, f"{name} was {max(gaps):.1f} s old"


def test_a_thawed_host_comes_back(story: Story) -> None:
    up = story.first("frozen", lambda view: view.status.state is HostState.UP, story.thawed_at)
    assert up < story.ended_at


def test_no_probe_outlives_the_run(story: Story) -> None:
    assert story.left == {name: [] for name in story.left}
    assert set(story.left) >= {*STEADY, "frozen"}


def test_killing_the_client_leaves_no_probe_on_any_host(rig_fleet: RigFleet) -> None:
    need("netns")
    code = (
        "import asyncio,sys;from gpumon.collectors.fleet import Fleet;"
        "from gpumon.inventory import HostConfig;"
        "hosts=[HostConfig(n,address=n,interval_s=1.0) for n in sys.argv[1:]];"
        "asyncio.run(Fleet(hosts).run())"
    )
    client = subprocess.Popen(
        [sys.executable, "-c", code, *STEADY],
        cwd=Path(__file__).parents[1],
        env={**os.environ, **rig_fleet.client.environment},
        stderr=subprocess.DEVNULL,
    )
    hosts = [rig_fleet.hosts[name] for name in STEADY]
    try:
        wait_until(lambda: all(host.probes() for host in hosts), 20, "a probe on every host")
    finally:
        client.send_signal(signal.SIGKILL)
        client.wait()
    killed = time.monotonic()
    wait_until(lambda: not any(host.probes() for host in hosts), 10, "the probes to end")
    assert time.monotonic() - killed < 3


async def _until_sampled(hosts: list[HostConfig], samples: int, timeout_s: float) -> list[HostView]:
    """Views of all hosts once each has given so many samples."""
    counted = dict.fromkeys((host.name for host in hosts), 0)
    story = Story()

    def hear(view: HostView) -> None:
        story.hear(view)
        if view.snapshot is not None and view.status.state is HostState.UP:
            counted[view.host] += 1

    fleet = Fleet(hosts, on_view=hear)
    running = asyncio.create_task(fleet.run())
    try:
        wanted = f"{samples} samples of {len(hosts)} hosts"
        await _until(story, lambda: min(counted.values()) >= samples, timeout_s, wanted)
        return fleet.views()
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


def test_a_noisy_login_and_a_read_only_home_do_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need("sshd", "netns", "bash")
    banner = tmp_path / "banner"
    banner.write_text("*** AUTHORISED USE ONLY ***\n" * 20)
    network = Network()
    try:
        host = SshHost(
            "noisy",
            tmp_path / "noisy",
            Client(tmp_path / "client"),
            network,
            shell="/bin/bash",
            home_files={".bashrc": "echo loading modules; echo 'Traceback' >&2; seq 300\n"},
            read_only_home=True,
            extra=(f"Banner {banner}",),
        ).start()
        said = host.client.ssh("noisy", "touch ~/x || echo read-only")
        assert said.startswith("loading modules\n")
        assert said.endswith("read-only\n")
        for name, text in host.client.environment.items():
            monkeypatch.setenv(name, text)
        config = host.host_config(interval_s=0.5)
        (view,) = asyncio.run(_until_sampled([config], 3, 20))
    finally:
        network.close()
    assert view.status.state is HostState.UP
    assert view.snapshot is not None
    assert view.snapshot.facts.hostname == "noisy"


def test_many_hosts_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need("ssh", "ssh-keygen", "cc")
    with ScaleFleet(40, tmp_path / "sim", interval_s=1.0) as simulated:
        for name, text in simulated.environment.items():
            monkeypatch.setenv(name, text)
        views = asyncio.run(_until_sampled(list(simulated.configs), 3, 40))
    assert [view.host for view in views] == [config.name for config in simulated.configs]
    cards: set[str] = set()
    for view in views:
        assert view.status.state is HostState.UP
        assert view.snapshot is not None
        assert view.snapshot.facts.hostname == view.host
        assert len(view.snapshot.gpus) == 8
        assert [engine.state for engine in view.snapshot.engines] == [EngineState.UP]
        cards |= {gpu.uuid for gpu in view.snapshot.gpus}
    assert len(cards) == 40 * 8, "every host has cards of its own"

"""The named fleet: every host a monitor meets, healthy and not, on one machine.

==============  ==================================================================
``berlin-1``    eight H100: number 5 fell off the bus, number 6 has no utilisation
``ams-mig``     an H100 cut into three MIG slices beside a whole one
``cpu-vps``     no GPU; Ollama 0.33 with two models, each in llama.cpp's real server
``no-python``   no Python: two cards by ``nvidia-smi``
``hung``        two H100 and a driver call that never returns
``frozen``      like any, to be frozen by ``hosts["frozen"].freeze()``
``tarpit``      takes TCP connections and never speaks
``refused``     refuses them
``changed-key`` shows another key than the one known
==============  ==================================================================
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from gpumon.inventory import HostConfig
from tests.rig import fake_ollama, sleeper
from tests.rig.fake_ollama import Loaded
from tests.rig.gguf_models import TINY_GEMMA3, TINY_LLAMA, store_blob
from tests.rig.need import netns_trouble
from tests.rig.network import Network
from tests.rig.nvidia_smi import write_script
from tests.rig.nvml_mock import scenarios
from tests.rig.nvml_mock.build import environment as nvml_environment
from tests.rig.sshd import Client, SshHost, free_port, make_key, wait_until

__all__ = ["NAMES", "RigFleet"]

NAMES = (
    "berlin-1",
    "ams-mig",
    "cpu-vps",
    "no-python",
    "hung",
    "frozen",
    "tarpit",
    "refused",
    "changed-key",
)

_RECORDING = Path(__file__).parents[1] / "recordings" / "ollama" / "cpu-defaults"
_SAMPLE = "07-three-models-3s"
_GIB = 1024**3
_REGIONS = {"berlin-1": "eu-central", "ams-mig": "eu-west", "cpu-vps": "eu-north"}
_PRICES: Mapping[str, Mapping[str, object]] = {
    "berlin-1": {"hourly": 19.92, "currency": "USD"},
    "ams-mig": {"hourly": 4.98, "currency": "USD"},
    "cpu-vps": {"monthly": 38.0, "currency": "EUR"},
}
#: On berlin-1: card -> (job, bytes); the same job may sit on two cards.
_TORCHRUN = "/opt/conda/bin/python3.11 -u /home/ml/finetune.py --model llama-3.1-70b --lora-r 16"
_EMBED = "/usr/bin/python3 -m infinity_emb v2 --model-id BAAI/bge-m3 --port 7997"
_NOTEBOOK = "/opt/conda/bin/python3.11 -m ipykernel_launcher -f /run/user/1000/kernel-3f1c.json"
_JOBS: Mapping[int, Sequence[tuple[str, int]]] = {
    0: [(_TORCHRUN, 67_243_081_728)],
    1: [(_TORCHRUN, 66_120_056_832)],
    3: [(_EMBED, 21_118_320_640), (_NOTEBOOK, 3 * _GIB)],
}
_SLICE_JOBS = (
    "/usr/bin/python3 -m vllm_worker --slice 0",
    "/usr/bin/python3 /srv/whisper/serve.py --model large-v3",
    "/usr/bin/python3 /srv/ocr/serve.py --gpu MIG-1",
)


class RigFleet:
    """Starts the named hosts and ends them: ``with RigFleet(folder) as fleet``.

    ``only`` starts some of them. Without root the hosts share this machine's processes and
    loopback, and those that can't be made then are left out: see ``missing``.
    """

    def __init__(self, folder: Path, *, only: Sequence[str] = NAMES, interval_s: float = 2.0):
        self.folder = folder
        self.interval_s = interval_s
        self.hosts: dict[str, SshHost] = {}
        self.missing: dict[str, str] = {}
        self.models: list[Loaded] = []
        self.ollama_port = 11434
        self._only = tuple(only)
        self._network: Network | None = None
        self._sockets: list[socket.socket] = []
        self.client = Client(folder / "client")

    # --- what a user would write -------------------------------------------------------
    @property
    def configs(self) -> tuple[HostConfig, ...]:
        """The hosts as the inventory has them, in the order of ``NAMES``."""
        return tuple(self.config(name) for name in self.names)

    @property
    def names(self) -> tuple[str, ...]:
        """The hosts there are."""
        return tuple(one for one in NAMES if one in self._only and one not in self.missing)

    def config(self, name: str) -> HostConfig:
        """One host as the inventory has it."""
        return HostConfig(
            name,
            address=name,
            region=_REGIONS.get(name),
            price=_PRICES.get(name, {}),
            tags=("gpu",) if name in ("berlin-1", "ams-mig", "hung") else (),
            interval_s=self.interval_s,
        )

    @property
    def environment(self) -> dict[str, str]:
        """What a gpumon needs to find this fleet and nothing of its user's."""
        home = self.folder / "home"
        (home / "state").mkdir(parents=True, exist_ok=True)
        return {
            **self.client.environment,
            "HOME": str(home),
            "XDG_CONFIG_HOME": str(self.folder / "config"),
            "XDG_STATE_HOME": str(home / "state"),
        }

    def write_config(self) -> Path:
        """A ``config.toml`` that lists the fleet, where ``environment`` says it is."""
        lines = ["[defaults]", f"interval_s = {self.interval_s}", "local = false", ""]
        for config in self.configs:
            lines += [f'[hosts."{config.name}"]', f'address = "{config.address}"']
            if config.region:
                lines.append(f'region = "{config.region}"')
            if config.tags:
                lines.append(f"tags = {json.dumps(list(config.tags))}")
            if config.price:
                pairs = ", ".join(f"{k} = {json.dumps(v)}" for k, v in config.price.items())
                lines.append(f"price = {{ {pairs} }}")
            lines.append("")
        path = self.folder / "config" / "gpumon" / "config.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines))
        return path

    # --- life --------------------------------------------------------------------------
    def __enter__(self) -> RigFleet:
        try:
            if netns_trouble() is None:
                self._network = Network()
            for name in self._only:
                getattr(self, f"_start_{name.replace('-', '_')}")()
            self.write_config()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End every host and remove the network."""
        for host in self.hosts.values():
            host.stop()
        for one in self._sockets:
            one.close()
        self._sockets.clear()
        if self._network is not None:
            self._network.close()
            self._network = None

    @property
    def isolated(self) -> bool:
        """True where every host has namespaces of its own."""
        return self._network is not None

    def _host(
        self,
        name: str,
        *,
        environment: Mapping[str, str] | None = None,
        programs: Mapping[str, str] | None = None,
        python: bool = True,
    ) -> SshHost:
        host = SshHost(
            name,
            self.folder / name,
            self.client,
            self._network,
            environment=environment or {},
            programs=programs or {},
            python=python,
        )
        self.hosts[name] = host.start()
        return host

    def _scenario(self, name: str) -> Path:
        (self.folder / name).mkdir(parents=True, exist_ok=True)
        return self.folder / name / "nvml.ini"

    def _run_job(self, host: SshHost, command: str) -> int:
        """Start a stand-in; the pid that the host's driver would name."""
        argv = command.split()
        words, executable, environment = sleeper.spawn(argv)
        started = host.run_inside(words, executable=executable, env=environment)
        wanted = "\0".join([*argv, ""]).encode()
        found: list[int] = []

        def dressed() -> bool:
            assert started.poll() is None, f"{command} ended"
            # nsenter forks: the job is its child
            for pid in (started.pid, *_children(started.pid)):
                if Path(f"/proc/{pid}/cmdline").read_bytes() == wanted:
                    found.append(pid)
                    return True
            return False

        wait_until(dressed, 10, command)
        return host.pid_inside(found[0])

    # --- the hosts ---------------------------------------------------------------------
    def _start_berlin_1(self) -> None:
        path = scenarios.eight_with_lost_and_na(self._scenario("berlin-1"))
        # the kernel module goes on listing a card that is lost to the driver's library
        proc = scenarios.proc_tree(self.folder / "berlin-1" / "proc", path)
        environment = {**nvml_environment(path), "GPUMON_PROC_ROOT": str(proc)}
        host = self._host("berlin-1", environment=environment)
        pids: dict[str, int] = {}
        processes: dict[int, list[tuple[int, int]]] = {}
        for card, jobs in _JOBS.items():
            for command, size in jobs:
                if command not in pids:
                    pids[command] = self._run_job(host, command)
                processes.setdefault(card, []).append((pids[command], size))
        scenarios.eight_with_lost_and_na(path, processes=processes)

    def _start_ams_mig(self) -> None:
        path = self._scenario("ams-mig")
        host = self._host("ams-mig", environment=nvml_environment(path))
        scenarios.mig(path, pids=[self._run_job(host, command) for command in _SLICE_JOBS])

    def _start_hung(self) -> None:
        path = scenarios.hang(self._scenario("hung"))
        self._host("hung", environment=nvml_environment(path))

    def _start_frozen(self) -> None:
        path = scenarios.single_4090(self._scenario("frozen"))
        self._host("frozen", environment=nvml_environment(path))

    def _start_no_python(self) -> None:
        if self._network is None:
            self.missing["no-python"] = "this machine's Python can't be hidden"
            return
        self._host("no-python", python=False, programs={"nvidia-smi": write_script()})

    def _start_cpu_vps(self) -> None:
        host = self._host("cpu-vps")
        store = self.folder / "cpu-vps" / "models"
        ports = [37501, 44041]
        if self._network is None:
            ports = [free_port(), free_port()]
            self.ollama_port = free_port()
        self.models = [
            Loaded("tiny-llama:latest", store_blob(store, TINY_LLAMA), 2048, 512, ports[0], True),
            Loaded("tiny-gemma3:latest", store_blob(store, TINY_GEMMA3), 8192, 1024, ports[1]),
        ]
        log = self.folder / "cpu-vps" / "ollama.log"
        words, executable, environment = fake_ollama.spawn(
            self.models, _RECORDING, _SAMPLE, port=self.ollama_port, log=log
        )
        own = self.folder / "cpu-vps" / "ollama.err"
        started = host.run_inside(
            words, executable=executable, env=environment, stderr=own.open("wb")
        )

        def listening() -> bool:
            assert started.poll() is None, own.read_text() + log.read_text(errors="replace")
            return "Listening" in own.read_text()

        wait_until(listening, 30, "ollama serve")

    def _here(self) -> str:
        return self._network.here if self._network else "127.0.0.1"

    def _bound(self) -> socket.socket:
        one = socket.socket()
        one.bind((self._here(), 0))
        self._sockets.append(one)
        return one

    def _start_tarpit(self) -> None:
        one = self._bound()
        one.listen(64)  # the kernel completes the handshake; nobody ever accepts
        self.client.add("tarpit", *one.getsockname())

    def _start_refused(self) -> None:
        # bound, so that nobody else takes the port, but not listening
        self.client.add("refused", *self._bound().getsockname())

    def _start_changed_key(self) -> None:
        host = self._host("changed-key")
        other = make_key(self.folder / "changed-key" / "another_key")
        key = " ".join(Path(f"{other}.pub").read_text().split()[:2])
        self.client.trust(host.address, host.port, key)


def _children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def main() -> None:
    """Run the fleet until Ctrl-C: ``python -m tests.rig.fleet``; prints how to look at it."""
    import signal
    import tempfile

    with (
        tempfile.TemporaryDirectory(prefix="gpumon-rig-") as folder,
        RigFleet(Path(folder)) as fleet,
    ):
        words = " ".join(f"{name}={text}" for name, text in fleet.environment.items())
        print(f"{len(fleet.names)} hosts are up. In another terminal:\n\n  {words} gpumon\n")
        for name, why in fleet.missing.items():
            print(f"left out: {name}: {why}")
        signal.sigwait({signal.SIGINT, signal.SIGTERM})


if __name__ == "__main__":
    main()
